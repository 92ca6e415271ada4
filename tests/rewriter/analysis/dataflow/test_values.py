"""Methods are looked up through the bases of a class."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from torchlift.rewriter.analysis.dataflow.program_flow import solve

Trained = Callable[..., tuple[str, list[str]]]


TOP = """\
class Root(torch.nn.Module):
    def save(self):
        torch.save(self.state_dict(), "a.pt")
class Base(Root):
    def loss_of(self, x, y):
        return torch.nn.functional.cross_entropy(self(x), y)
class Net(Base):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.fc(x)
"""


def test_methods_of_the_bases_are_run(trained: Trained) -> None:
    built = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text, _ = trained(top=TOP, built=built, loss="loss = model.loss_of(x, y)", step="model.save()")
    assert 'accelerator.save(accelerator.get_state_dict(self), "a.pt")' in text


def test_a_lineage_has_each_base_once_and_with_its_own_before_the_next() -> None:
    text = "class A: ...\nclass B(A): ...\nclass C(A): ...\nclass D(B, C): ...\n"
    (unit,) = solve([("__main__", cst.parse_module(text))]).units.values()
    last = list(unit.classes.values())[-1]
    assert [klass.node.name.value for klass in last.lineage()] == ["D", "B", "A", "C"]


def test_a_class_may_choose_its_base_by_what_is_installed(trained: Trained) -> None:
    """A program that also runs without torch is a model where it trains."""
    top = "import torch\ntry:\n    from torch import nn\nexcept ImportError:\n    nn = None\n"
    top += TOP.replace("torch.nn.Module", "nn.Module if nn is not None else object")
    built = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text, findings = trained(top=top, built=built, loss="loss = model.loss_of(x, y)")
    assert "model, optimizer, loader = accelerator.prepare(" in text and findings == []
