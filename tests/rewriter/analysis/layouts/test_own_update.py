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
