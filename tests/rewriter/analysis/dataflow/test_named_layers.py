"""Layers that `nn.ModuleDict` and `nn.Sequential` keep under names are those of the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = {made}

    def forward(self, x):
        {run}
        return x


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows, labels = torch.randn(100, 4), torch.randint(4, (100,))
for step in range(20):
    ix = torch.randint(100, (16,))
    loss = F.cross_entropy(model(rows[ix]), labels[ix])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TWO = 'nn.ModuleDict({"first": nn.Linear(4, 4), "last": nn.Linear(4, 4)})'
KEPT = {
    "by key": (TWO, 'x = self.parts["last"](self.parts["first"](x))'),
    "by attribute": (TWO, "x = self.parts.last(self.parts.first(x))"),
    "of a call of dict": ("nn.ModuleDict(dict(first=nn.Linear(4, 4)))", "x = self.parts.first(x)"),
    "of pairs": ('nn.ModuleDict(OrderedDict(first=nn.Linear(4, 4)))', 'x = self.parts["first"](x)'),
    "of a comprehension": (
        'nn.ModuleDict({name: nn.Linear(4, 4) for name in ("a", "b")})',
        'x = self.parts["a"](x)',
    ),
    "put in later": ('nn.ModuleDict()\n        self.parts["a"] = nn.Linear(4, 4)', 'x = self.parts["a"](x)'),
    "put in by a method": (
        'nn.ModuleDict()\n        self.parts.update({"a": nn.Linear(4, 4)})',
        'x = self.parts["a"](x)',
    ),
    "all of them": (TWO, "for layer in self.parts.values():\n            x = layer(x)"),
    "all with their names": (TWO, "for name, layer in self.parts.items():\n            x = layer(x)"),
    "under a name that is not known": (TWO, "for name in self.parts:\n            x = self.parts[name](x)"),
    "of layers one after another": ('nn.Sequential(OrderedDict(a=nn.Linear(4, 4)))', "x = self.parts.a(x)"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "run"), KEPT.values(), ids=KEPT)
def test_a_layer_that_is_kept_under_a_name_is_followed(made: str, run: str) -> None:
    """What it does with the rows of a batch was not known, and the script was refused: nanoGPT keeps its layers so."""
    text = SCRIPT.format(made=made, run=run)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "no-data-parallel-axis" not in [told.id for told in file.diagnoses]
    assert b"accelerator.shard_batch(" in file.after


MIXING = """\
class Mix(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


"""


@pytest.mark.parametrize(("name", "refused"), [("last", False), ("mix", True)])
def test_the_layer_of_another_name_is_not_taken_for_it(name: str, *, refused: bool) -> None:
    made = 'nn.ModuleDict({"mix": Mix(), "last": nn.Linear(4, 4)})'
    text = SCRIPT.replace("class Net(", f"{MIXING}class Net(").format(made=made, run=f'x = self.parts["{name}"](x)')
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ("no-data-parallel-axis" in [told.id for told in file.diagnoses]) is refused
