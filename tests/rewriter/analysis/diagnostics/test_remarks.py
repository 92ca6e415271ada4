"""Models that save themselves, where nobody sees how."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

CHOSEN = "model = settings['net'](8)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
OWN = """\
class Net(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = torch.nn.Linear(size, 2)
    def forward(self, x):
        return self.fc(x)
    def save(self, path):
        torch.save(self.state_dict(), path)
settings = {"net": Net}"""


@pytest.mark.hazard("U15")
@pytest.mark.parametrize(
    ("top", "end", "findings"),
    [
        ("from other import settings", "model.save('a.pt')", ["once"]),
        ("from other import settings", "model.save_weights('a.pt')", ["once"]),
        ("from other import settings", "saved = model.save", []),
        (OWN, "model.save('a.pt')", []),
    ],
    ids=["a class of elsewhere", "under another name", "not called", "its own class"],
)
def test_a_model_that_saves_itself(top: str, end: str, findings: list[str], trained: Trained) -> None:
    assert trained(top=top, built=CHOSEN, end=end)[1] == findings


LAYERS = """\
import torch
class Used(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.fc(x)
class Other(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
    def forward(self, x):
        return self.norm(x)
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader
import layers
from layers import Used, Other
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4):
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("model", "findings"),
    [
        ("Used()", []),
        ("Other()", ["batch-norm"]),
        ("[Used, Other][0]()", ["batch-norm"]),
        ("{'b': layers.Other}[name]()", ["batch-norm"]),
        ("layers.__dict__[name]()", ["batch-norm"]),
        ("getattr(layers, name)()", ["batch-norm"]),
        ("Used(); rate = getattr(args, 'rate', 0.1)", []),
        ("Used(); kind = getattr(layers, name); more = kind()", ["batch-norm"]),
    ],
    ids=[
        "never named",
        "built",
        "one of several",
        "in a table",
        "in the module",
        "looked up",
        "an option is looked up",
        "called later",
    ],
)
def test_layers_of_a_class_that_is_never_built(
    model: str, findings: list[str], trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    found = trained_project(train=TRAIN.format(model=model), layers=LAYERS)[1]
    assert [one for one in found if one == "batch-norm"] == findings
