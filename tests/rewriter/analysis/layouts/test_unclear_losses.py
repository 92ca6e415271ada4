"""With the global batch kept, a loss that is not known to be a mean or a sum over the rows is named."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import Diagnosis
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from elsewhere import penalty
scaler = torch.amp.GradScaler()
model = torch.nn.Linear(8, 2)
loader = torch.utils.data.DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    out = model(x)
    mean = torch.nn.functional.cross_entropy(out, y)
{loss}
    optimizer.zero_grad()
{backward}
"""
STEP = "loss.backward()\noptimizer.step()"
SLOPE = "slope, = torch.autograd.grad(model(x.requires_grad_()).sum(), x, create_graph=True)\n"
FIRST_ROWS = """\
some = x[:2].detach().requires_grad_()
drawn = model(some)
slope, = torch.autograd.grad((drawn * torch.randn_like(drawn)).sum(), some, create_graph=True)
lengths = slope.pow(2).sum(dim=1).sqrt()
"""
"""The gradients of some rows: nothing tells how many they are."""
SCALED = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"


def findings(loss: str, backward: str = STEP, *, keep: bool = True) -> list[Diagnosis]:
    text = SCRIPT.format(loss=indent(loss, "    "), backward=indent(backward, "    "))
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=keep)).files
    assert "accelerator.backward(" in file.after.decode()
    return [found for found in file.diagnoses if found.id != "grad_scaler"]


@pytest.mark.hazard("U4")
@pytest.mark.parametrize(
    ("loss", "id", "told"),
    [
        ("loss = mean + 0.1 * out.norm(2)", "weighted-mean", "`loss` is no mean and no sum over the rows"),
        ("loss = mean + torch.linalg.norm(out)", "weighted-mean", "no mean and no sum over the rows"),
        ("loss = mean + out.abs().mean() / len(out)", "weighted-mean", "divided by their number once more"),
        ("loss = mean + out.max()", "weighted-mean", "no mean and no sum over the rows"),
        ("size = out.norm()\nloss = mean\nloss = loss + size", "weighted-mean", "no mean and no sum over the rows"),
        ("loss = mean + penalty(out)", "loss-reduction", "what `penalty` does with the rows of the batch is not known"),
    ],
    ids=["a norm", "a norm of torch.linalg", "a count", "a maximum", "by a variable", "code that cannot be seen"],
)
@pytest.mark.parametrize("backward", [STEP, SCALED], ids=["plain", "scaled"])
def test_a_term_that_is_no_mean_over_the_rows_is_named(loss: str, id: str, told: str, backward: str) -> None:
    (found,) = findings(loss, backward)
    assert (found.id, found.severity) == (id, Severity.REVIEW) and told in found.message
    assert "--keep-global-batch" in found.remedy
    assert findings(loss, backward, keep=False) == [], "each process computes what the script does"


@pytest.mark.parametrize(
    "loss",
    [
        "loss = mean",
        "loss = mean + 0.1 * out.norm(dim=1).mean()",
        "loss = mean + sum(p.norm() for p in model.parameters())",
        "loss = mean + 0.1 * model.weight.norm()",
        "loss = (out ** 2).sum()",
        SLOPE + "loss = mean + ((slope.norm(2, dim=1) - 1) ** 2).mean()",
    ],
    ids=["a mean", "norms of rows", "norms of weights", "the norm of a weight", "a sum", "gradients of rows"],
)
def test_means_and_sums_of_rows_are_not(loss: str) -> None:
    assert findings(loss) == []


@pytest.mark.parametrize("keep", [True, False], ids=["cut", "whole batches"])
@pytest.mark.parametrize(("reduced", "argument"), [("mean", ""), ("sum", ', reduction="sum"')])
def test_gradients_of_some_rows_are_no_sum_by_themselves(reduced: str, argument: str, keep: bool) -> None:
    """The sum from which such gradients start was taken for that of the loss: the weights got N times their mean."""
    loss = indent(f"{FIRST_ROWS}loss = (lengths - 1).pow(2).{reduced}()", "    ")
    text = SCRIPT.format(loss=loss, backward=indent(STEP, "    "))
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=keep)).files
    assert f"accelerator.backward(loss{argument})\n" in file.after.decode()


FOLDED = """\
import functools
import torch


class Judge(torch.nn.Module):
    def forward(self, out, y):
        gaps = [(out[row] - y[row]).square().mean() for row in range(len(out))]
        return {"gap": functools.reduce(torch.add, gaps)}


model, judge = torch.nn.Linear(8, 2), Judge()
loader = torch.utils.data.DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = judge(model(x), y)["gap"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("keep", [True, False], ids=["cut", "whole batches"])
def test_a_loss_that_a_module_of_the_script_folds_is_named(keep: bool) -> None:
    """It was taken for the mean, as what is one number, and nothing said it."""
    (file,) = migrate([decode(FOLDED.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=keep)).files
    assert "accelerator.backward(loss)" in file.after.decode()
    (found,) = file.diagnoses
    assert found.id == "loss-reduction" and "`functools.reduce`" in found.message
    assert 'if it is a sum, write accelerator.backward(loss, reduction="sum")' in found.remedy


def test_a_loss_of_which_a_finding_tells_already_is_named_once() -> None:
    assert [found.id for found in findings("loss = torch.sqrt(mean) + out.norm()")] == ["weighted-mean"]


SEQUENCE = """\
import torch


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.read = torch.nn.GRU(8, 2, batch_first=True)

    def forward(self, x):
        return self.read(x)[0]


model = Reader()
loader = torch.utils.data.DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    out = model(x.unsqueeze(0))
    loss = torch.nn.functional.mse_loss(out.squeeze(0), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("keep", [True, False], ids=["cut", "whole batches"])
def test_a_batch_that_is_one_sequence_is_named_where_it_is_cut(keep: bool) -> None:
    given = [decode(SEQUENCE.encode(), Path("train.py"))]
    (file,) = migrate(given, CATALOGUE, Config(keep_global_batch=keep)).files
    assert [found.id for found in file.diagnoses] == (["weighted-mean"] if keep else [])


ATTENDED = """\
import torch
from torch.utils.data import DataLoader


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.cell = torch.nn.LSTM(8, 8, batch_first=True)
        self.out = torch.nn.Linear(8, 2)

    def forward(self, x):
        seen = {first}[0].mean(1)
        share = seen.softmax(-1).mean(0)
        return self.out(seen), (share * share).sum()


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8):
    out, even = model(x)
    loss = torch.nn.functional.cross_entropy(out, y) + 0.1 * even
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("first", ["self.attend(x, x, x, need_weights=False)", "self.cell(x)"])
def test_a_term_of_a_batch_beside_the_output_of_a_layer(first: str) -> None:
    """The first of what a layer gives was taken for the first rows, and a product of means for a sum over the batch."""
    text = ATTENDED.format(first=first)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(loss)" in file.after
    assert [told.id for told in file.diagnoses] == ["weighted-mean"]
