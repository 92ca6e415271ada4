"""What goes by the place of a row in its batch, where each process has a shard of the batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from data import data, bank, draw

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 2)
        self.places = torch.nn.Parameter(torch.zeros(32, 8))
        self.steps = torch.nn.Parameter(torch.zeros(8))
    def forward(self, x):
        return self.head({given})

model = Net()
table = torch.nn.Embedding(32, 8)
optimizer = torch.optim.SGD([*model.parameters(), *table.parameters()], lr=0.1)
for x, y in DataLoader(data, batch_size=32):
    places = torch.arange(len(x))
    {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {step}
"""
MEAN = "loss = torch.nn.functional.cross_entropy({}, y)"


def told(loss: str, given: str = "x", step: str = "pass", *, kept: bool = True) -> list[str]:
    text = SCRIPT.format(loss=loss, given=given, step=step)
    config = Config()._replace(keep_global_batch=kept)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, config).files
    assert file.changed
    return [d.message.split("`")[1] for d in file.diagnoses if d.id == "row-place"]


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (MEAN.format("model(x + table(places))"), "torch.arange(len(x))"),
        (MEAN.format("model(x + table(torch.arange(x.size(0)).to(x.device)))"), "torch.arange(x.size(0))"),
        (MEAN.format("model(x + bank[: x.shape[0]])"), "bank[: x.shape[0]]"),
        (MEAN.format("model(x + bank[places])"), "torch.arange(len(x))"),
        (MEAN.format("model(0.5 * x + 0.5 * x.flip(0))"), "x.flip(0)"),
        ("a, b = x.chunk(2)\n    loss = (model(a) - model(b)).pow(2).mean()", "x.chunk(2)"),
        ("loss = (model(x[::2]) - model(x[1::2])).pow(2).mean()", "x[::2]"),
        (MEAN.format("model(x)") + " + model(x[:1]).mean()", "x[:1]"),
        (MEAN.format("model(x)") + " + model(x)[0].mean()", "model(x)[0]"),
    ],
)
def test_the_first_of_a_shard_is_not_the_first_of_the_batch(loss: str, found: str) -> None:
    assert told(loss) == [found]
    assert told(loss, kept=False) == []


def test_in_the_model() -> None:
    assert told(MEAN.format("model(x)"), "x + self.places[: x.size(0)]") == ["self.places[: x.size(0)]"]


@pytest.mark.parametrize(
    ("loss", "given", "step"),
    [
        ("loss = -model(x).log_softmax(1)[places, y].mean()", "x", "pass"),
        ("loss = -model(x).log_softmax(1)[range(len(x)), y].mean()", "x", "pass"),
        (MEAN.format("model(x)"), "x + self.steps[: x.size(1)]", "pass"),
        (MEAN.format("model(x[:, :8])"), "x", "pass"),
        (MEAN.format("model(x.flip(1))"), "x", "pass"),
        (MEAN.format("model(x[: len(y)])"), "x", "pass"),
        (MEAN.format("model(x)"), "x", "draw(x[:8])"),
    ],
)
def test_what_each_row_has_of_itself(loss: str, given: str, step: str) -> None:
    assert told(loss, given, step) == []
