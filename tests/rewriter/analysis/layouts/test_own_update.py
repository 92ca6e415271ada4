"""A model that owns its optimizer: its ``update`` is a step of the training, and no meter takes the batch in."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

LEARNER = """\
import torch
from torch.utils.data import DataLoader

class Learner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 2)
        self.opt = torch.optim.Adam(self.parameters())

    def forward(self, x):
        return self.net(x)

    def {name}(self, batch):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

loader = DataLoader(data, batch_size=16)
learner = Learner()
for epoch in range(3):
    for batch in loader:
        loss = learner.{name}(batch)
    print(epoch, loss)
torch.save(learner.state_dict(), "learner.pt")
"""


@pytest.mark.parametrize("name", ["update", "add", "learn"])
def test_an_update_that_trains_is_no_total(name: str) -> None:
    (file,) = migrate([decode(LEARNER.format(name=name).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "    accelerator.backward(loss)\n" in file.after.decode()
    assert "learner, learner.opt, loader = accelerator.prepare(" in file.after.decode()
    assert file.diagnoses == ()
    assert [(trait.kind, trait.name) for trait in file.traits if trait.kind == "figure"] == [("figure", "loss")]


KEEPING = """\
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, net, opt):
        self.net, self.opt, self.rate, self.seen = net, opt, 0.5, []

    def fit(self, loader):
        for x, y in loader:
            loss = self.update(x, y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            print(loss)

    def keep(self, x):
        self.last = x

    @staticmethod
    def gap(x, y):
        x = x - y
        return x.pow(2).mean()

    def update(self, x, y):
        {keeps}
        return self.rate * self.gap(self.net(x), y)

net = torch.nn.Linear(8, 2)
Trainer(net, torch.optim.Adam(net.parameters())).fit(DataLoader(data, batch_size=16))
"""
KEPT = {
    "nothing": ("pass", False),
    "a list": ("self.seen.append(x)", True),
    "a sum": ("self.rate += 1", True),
    "by another method": ("self.keep(x)", True),
}


@pytest.mark.parametrize(("keeps", "told"), KEPT.values(), ids=KEPT)
def test_an_update_that_keeps_nothing_collects_nothing(keeps: str, told: bool) -> None:
    text = KEEPING.format(keeps=keeps)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ("self" in [trait.name for trait in file.traits]) is told
