"""Models that no `prepare` takes and nothing moves: each is on the device where it computes with a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

LEARNER = """\
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.predictor = nn.Linear(4, 4)
        self.target = {early}

    def follow(self):
        if self.target is None:
            {late}copy.deepcopy(self.encoder)
            setattr(self, "target", target)
        return self.target

    def forward(self, x):
        with torch.no_grad():
            goal = self.follow()(x)
        return (self.predictor(self.encoder(x)) - goal).pow(2).mean()


device = "cuda" if torch.cuda.is_available() else "cpu"
learner = Learner(){moved}
optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
for x in DataLoader(torch.load("rows.pt"), batch_size=4):
    loss = learner(x{moved})
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for slow, quick in zip(learner.target.parameters(), learner.encoder.parameters()):
        slow.data.lerp_(quick.data, 0.1)
"""


@pytest.mark.parametrize("moved", [".to(device)", ""], ids=["moved by the script", "of the CPU"])
@pytest.mark.parametrize("early", ["None", "copy.deepcopy(self.encoder)"])
@pytest.mark.parametrize("late", ["target = ", "self.target = target = "])
def test_a_copy_of_a_part_of_a_model_is_where_the_model_is(early: str, late: str, moved: str) -> None:
    """The class read an accelerator that only the script's own run has: who imports it has none."""
    text = LEARNER.format(early=early, late=late, moved=moved)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    after = file.after.decode()
    assert "accelerator.backward(loss)" in after and "deepcopy(self.encoder)\n" in after
    assert "deepcopy(self.encoder).to(" not in after
