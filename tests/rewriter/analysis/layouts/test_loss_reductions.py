"""Thirty spellings of a reduction: each is found, or it is said that it is not known. No sum is silently a mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]

FUNCTIONAL = "import torch.nn.functional as F\nfrom torch import nn\n"
KEEPS = """\
class Loss(nn.Module):
    def __init__(self, reduction="sum"):
        super().__init__()
        self.reduction = reduction
    def forward(self, out, y):
        return F.cross_entropy(out, y, reduction=self.reduction)
"""
ASKS = """\
class Loss(nn.Module):
    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction
    def forward(self, out, y):
        each = F.cross_entropy(out, y, reduction="none")
        if self.reduction == "mean":
            return each.mean()
        elif self.reduction == "sum":
            return each.sum()
        return each
"""
FLAG = """\
def loss_of(out, y, mean=True):
    each = F.cross_entropy(out, y, reduction="none")
    return each.mean() if mean else each.sum()
"""
HOW = """\
def reduced(each, how):
    if how == "sum":
        return each.sum()
    return each.mean()
"""
PASSES = """\
def loss_of(out, y, **options):
    return F.cross_entropy(out, y, **options)
"""
DATA = """\
from dataclasses import dataclass
@dataclass
class Options:
    rate: float = 0.1
    reduction: str = "mean"
"""
NONE = 'F.cross_entropy(model(x), y, reduction="none")'
GAP = "(model(x) - F.one_hot(y, 3))"

SUMS = {
    "a constant": ("RED = 'sum'\ncrit = nn.CrossEntropyLoss(reduction=RED)", "crit(model(x), y)"),
    "an item of a dictionary": ("CFG = {'red': 'sum'}\ncrit = nn.MSELoss(reduction=CFG['red'])", "crit(model(x), y)"),
    "two stars": ("OPT = {'reduction': 'sum'}\ncrit = nn.CrossEntropyLoss(**OPT)", "crit(model(x), y)"),
    "two stars of dict()": ("crit = nn.CrossEntropyLoss(**dict(reduction='sum'))", "crit(model(x), y)"),
    "two stars handed on": (PASSES, "loss_of(model(x), y, reduction='sum')"),
    "partial": ("from functools import partial\ncrit = partial(F.mse_loss, reduction='sum')", "crit(model(x), y)"),
    "in the old words": ("crit = nn.CrossEntropyLoss(size_average=False)", "crit(model(x), y)"),
    "in the old words, by position": ("crit = nn.CrossEntropyLoss(None, False)", "crit(model(x), y)"),
    "of a function, by position": ("", "F.mse_loss(model(x), y, False)"),
    "a module by position": ("crit = nn.MSELoss(None, None, 'sum')", "crit(model(x), y)"),
    "by condition": ("SUM = True\ncrit = nn.MSELoss(reduction='sum' if SUM else 'mean')", "crit(model(x), y)"),
    "a default that an object keeps": (KEEPS + "crit = Loss()", "crit(model(x), y)"),
    "an argument that an object keeps": (ASKS + "crit = Loss('sum')", "crit(model(x), y)"),
    "an argument by keyword that it keeps": (ASKS + "crit = Loss(reduction='sum')", "crit(model(x), y)"),
    "a flag of a function": (FLAG, "loss_of(model(x), y, mean=False)"),
    "a word of a function": (HOW, f"reduced({NONE}, 'sum')"),
    "a field of a data class": (DATA, "F.mse_loss(model(x), y, reduction=Options(reduction='sum').reduction)"),
    "looked up by name": ("crit = getattr(nn, 'CrossEntropyLoss')(reduction='sum')", "crit(model(x), y)"),
    "chained": ("", f"{NONE}.mul(2).sum()"),
    "a sum of rows of sums": ("", f"{GAP}.pow(2).sum(dim=1).sum()"),
    "einsum": ("", f"torch.einsum('ij,ij->', {GAP}, {GAP})"),
    "a product of vectors": ("", f"{GAP}.flatten() @ {GAP}.flatten()"),
    "a squared norm": ("", f"{GAP}.norm() ** 2"),
    "dot": ("", f"torch.dot({GAP}[:, 0], {GAP}[:, 0])"),
    "what a data class was given": (
        "from dataclasses import dataclass\n@dataclass\nclass Terms:\n    gaps: object\n    weight: float = 1.0\n"
        f"def terms(x, y):\n    return Terms(gaps=({GAP} ** 2).sum(), weight=0.5)",
        "terms(x, y).gaps",
    ),
    "what a named tuple was given": (
        "from typing import NamedTuple\nclass Terms(NamedTuple):\n    mean: torch.Tensor\n    total: torch.Tensor\n"
        f"def terms(x, y):\n    gaps = {GAP} ** 2\n    return Terms(gaps.mean(), gaps.sum())",
        "terms(x, y).total",
    ),
    "of what a function that cannot be seen gives": ("from elsewhere import gaps", "gaps(model(x), y).sum()"),
    "the trace of a product over the rows": ("", f"torch.diagonal({GAP}.T @ {GAP}).sum()"),
    "of rows that are drawn": (
        "size = 32", "F.mse_loss(model(torch.randn(size, 8)), torch.zeros(size, 2), reduction='sum')"
    ),
    "divided by a constant": ("SIZE = 10\ncrit = nn.MSELoss(reduction='sum')", "crit(model(x), y) / SIZE"),
}  # fmt: skip
LARGE = "def part0():\n    return [0]\n" + "".join(
    f"def part{n}():\n    return [{', '.join([f'part{n - 1}()'] * 17)}]\n" for n in range(1, 5)
)
"""A hundred thousand expressions, if all of it is followed."""
MEANS = {
    "beside what is large and made before": (
        LARGE + "table = part4()\nhalf = 0.5",
        "half * F.cross_entropy(model(x), y)\nseen = len(table)\nloss = loss * half",
    ),
    "a constant": ("RED = 'mean'\ncrit = nn.CrossEntropyLoss(reduction=RED)", "crit(model(x), y)"),
    "divided by the number of rows": ("crit = nn.MSELoss(reduction='sum')", "crit(model(x), y) / len(x)"),
    "of all pairs of rows, beside a mean": (
        "def apart(out):\n    n = out.size(0)\n    return (torch.sum(out @ out.t()) - n) / (n * (n - 1))",
        f"({GAP} ** 2).mean() + 0.1 * apart(model(x))",
    ),
    "of all pairs of rows, by a number of which nothing is known, beside a mean": (
        "from shapes import flat, pairs\ndef apart(out):\n    return torch.sum(out @ out.t()) / pairs(out)",
        f"({GAP} ** 2).mean() + 0.1 * apart(flat(model(x)))",
    ),
    "divided by a dimension": ("", f"{NONE}.sum() / x.size(0)"),
    "what a named tuple was given": (
        "from collections import namedtuple\nTerms = namedtuple('Terms', ['mean', 'total'])\n"
        f"def terms(x, y):\n    gaps = {GAP} ** 2\n    return Terms(gaps.mean(), gaps.sum())",
        "terms(x, y).mean",
    ),
    "an object that keeps its default": (ASKS + "crit = Loss()", "crit(model(x), y)"),
    "a flag of a function": (FLAG, "loss_of(model(x), y)"),
    "in the old words": ("crit = nn.CrossEntropyLoss(None, True)", "crit(model(x), y)"),
}
OPTION = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--red", default="mean")
args = parser.parse_args()
"""
UNKNOWN = {
    "an option": (OPTION + "crit = nn.CrossEntropyLoss(reduction=args.red)", "crit(model(x), y)"),
    "set afterwards": ("crit = nn.CrossEntropyLoss()\ncrit.reduction = 'sum'", "crit(model(x), y)"),
    "one of two": ("crit = nn.MSELoss(reduction='sum' if len(loader) > 5 else 'mean')", "crit(model(x), y)"),
}
BENT = {
    "a product over the rows": "(z.T @ z).pow(2).sum()",
    "by a method": "z.t().mm(z).pow(2).mean()",
    "divided by the number of rows": "((z.T @ z) / len(z)).pow(2).mean()",
    "less one, on the diagonal": "torch.diagonal(z.T @ z / len(z)).add(-1).pow(2).sum()",
    "less a matrix": "(z.T @ z - torch.eye(3, device=z.device)).pow(2).sum()",
    "above the diagonal": "torch.triu(z.T @ z, 1).abs().sum()",
}
"""Losses of a matrix that all rows make together, as of two views: neither a mean nor a sum over the rows."""


@pytest.mark.parametrize("loss", BENT.values(), ids=BENT)
def test_a_function_of_a_sum_over_the_rows_is_no_sum(loss: str, trained: Trained) -> None:
    """The gradient was N times too large, or nothing was said."""
    text, findings = trained(top=FUNCTIONAL, loss=f"z = model(x)\nloss = {loss}")
    assert "accelerator.backward(loss)\n" in text
    assert "weighted-mean" in findings


@pytest.mark.parametrize("case", SUMS)
def test_a_sum_is_told_to_the_backward_pass(case: str, trained: Trained) -> None:
    top, loss = SUMS[case]
    text, _ = trained(top=FUNCTIONAL + top, loss=f"loss = {loss}")
    assert 'accelerator.backward(loss, reduction="sum")' in text


@pytest.mark.parametrize("case", MEANS)
def test_a_mean_needs_no_word(case: str, trained: Trained) -> None:
    top, loss = MEANS[case]
    text, findings = trained(top=FUNCTIONAL + top, loss=f"loss = {loss}")
    assert "accelerator.backward(loss)\n" in text
    assert not [finding for finding in findings if "loss-reduction" in finding]


def test_a_function_without_a_name_is_named_by_its_code() -> None:
    text = (
        "import torch\nfrom torch.utils.data import DataLoader\nfrom rows import data, losses\n"
        "model = torch.nn.Linear(8, 3)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in DataLoader(data):\n    loss = losses[0](model(x), y)\n    optimizer.zero_grad()\n"
        "    loss.backward()\n    optimizer.step()\n"
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    told = next(found.message for found in file.diagnoses if found.id == "loss-reduction")
    assert "(what `losses[0]` does with the rows of the batch is not known)" in told


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_known_is_taken_for_a_mean_and_said(case: str, trained: Trained) -> None:
    top, loss = UNKNOWN[case]
    text, findings = trained(top=FUNCTIONAL + top, loss=f"loss = {loss}")
    assert "accelerator.backward(loss)\n" in text
    assert [finding for finding in findings if "loss-reduction" in finding]


ENDLESS = """\
def endless(source):
    reader = source.__iter__()
    while True:
        try:
            yield reader.__next__()
        except StopIteration:
            reader = source.__iter__()
"""
DRAWN = {
    "next": "reader = iter(loader)\nfor step in range(20):\n    x, y = next(reader)\n",
    "its method": "reader = loader.__iter__()\nfor step in range(20):\n    x, y = reader.__next__()\n",
    "a generator": "reader = endless(loader)\nfor step in range(20):\n    x, y = reader.__next__()\n",
    "a loop without end": "reader = iter(loader)\nwhile True:\n    x, y = next(reader)\n",
}
STEP = """\
    optimizer.zero_grad()
    loss = ((model(x) - F.one_hot(y, 3)) ** 2).sum()
    loss.backward()
    optimizer.step()
"""
SCRIPT = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
{top}
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{loop}"""


@pytest.mark.parametrize("case", DRAWN)
def test_batches_that_are_drawn_are_rows(
    case: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    texts, findings = trained_project(train=SCRIPT.format(top=ENDLESS, loop=DRAWN[case] + STEP))
    assert 'accelerator.backward(loss, reduction="sum")' in texts["train"]
    assert "model, optimizer, loader = accelerator.prepare(" in texts["train"]
    assert findings == []


READER = """\
import torch
from nets import Reader
from torch.utils.data import DataLoader

loader = DataLoader(rows, batch_size=8)
model = Reader("small")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    got = model(x, labels=y)
    loss = got[0]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_part_of_what_an_unknown_model_gives_is_no_choice_of_rows() -> None:
    """The loss of a model that a package makes: it was said to choose rows by their place in the batch."""
    assume = Config(assume=(("model", "model"),))
    (file,) = migrate([decode(READER.encode(), Path("train.py"))], CATALOGUE, assume).files
    (found,) = [found.message for found in file.diagnoses if found.id == "loss-reduction"]
    assert "(what `got[0]` is cannot be told)" in found


WEIGHED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)

    def forward(self, x, y=None, w=None):
        found = {{"out": {out}}}
        if y is not None:
            each = F.cross_entropy(found["out"], y, reduction="none")
            found["loss"] = (each * w).sum() / (w.sum() + 1e-5)
        return found

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(rows, batch_size=8):
    batch = {{key: value for key, value in batch.items()}}
    optimizer.zero_grad()
    found = model(**batch)
    found["loss"].backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "out",
    ["F.linear(x, self.table.weight)", "self.table(x)", "unseen(x)"],
    ids=["by the weights of another layer", "by a layer", "by code that is not seen"],
)
def test_a_table_of_the_arguments_is_not_the_model_itself(out: str) -> None:
    """`self` was taken for an entry of `**batch`, and so the weighted loss for one of which nothing is known."""
    text = WEIGHED.format(out=out).replace("import torch\n", "import torch\nfrom elsewhere import unseen\n", 1)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after
    assert "weighted-mean" in [finding.id for finding in file.diagnoses]


@pytest.mark.parametrize(("other", "told"), [('reduction="sum"', True), ("", False)])
def test_a_criterion_by_option_beside_one_of_the_program(other: str, told: bool, trained: Trained) -> None:
    """The class of the program alone was asked, which is a mean."""
    top = "import sys\n" + FUNCTIONAL + KEEPS.replace('"sum"', '"mean"')
    top += f'criterion = Loss() if "own" in sys.argv else nn.CrossEntropyLoss({other})\n'
    _, findings = trained(top=top, loss="loss = criterion(model(x), y)")
    assert any("loss-reduction" in one for one in findings) == told


KEPT = """\
class Settings:
    how = "mean"
    def change(self, **given):
        for name, value in given.items():
            setattr(self, name, value)
settings = Settings()
"""
CHANGED = {
    "an attribute, on one path": 'if len(loader) > 3:\n    settings.how = "sum"',
    "an attribute of its class": 'Settings.how = "sum"',
    "by its name": 'setattr(settings, "how", "sum")',
    "by a name that is handed over": 'settings.change(how="sum")',
    "in the table of its attributes": 'vars(settings)["how"] = "sum"',
    "with others": 'settings.__dict__.update(how="sum")',
    "by a loop": 'for settings.how in ("mean", "sum"):\n    pass',
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_setting_that_is_changed_is_not_what_it_was(change: str, trained: Trained) -> None:
    """What its class says alone was taken for what it is."""
    criterion = "def criterion(out, y):\n    return F.cross_entropy(out, y, reduction=settings.how)\n"
    parts = {"top": FUNCTIONAL + KEPT + criterion, "loss": "loss = criterion(model(x), y)"}
    text, findings = trained(built=change, **parts)
    assert "loss-reduction" in findings or 'reduction="sum")' in text
    assert "loss-reduction" not in trained(**parts)[1]
