"""Dropout that leaves out nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.expect import expectations
from torchlift.rewriter.source import decode

TRAINED = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader
options = argparse.ArgumentParser()
options.add_argument("--rate", type=float, default=0.0)
args = options.parse_args()
RATE = 0.0
class Settings:
    rate, wide = 0.0, 8
class Net(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.wide = nn.Linear(8, settings.wide)
        self.drop = {layer}
        self.head = nn.Linear(settings.wide, 2)
    def forward(self, x):
        return self.head(self.drop(self.wide(x)))
net = Net(Settings())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4, shuffle=True):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        ("nn.Dropout(settings.rate)", False),
        ("nn.Dropout(p=RATE)", False),
        ("nn.Dropout2d(0)", False),
        ("nn.Dropout(args.rate)", True),
        ("nn.Dropout()", True),
        ("nn.Dropout(RATE + 0.1)", True),
    ],
)
def test_the_summary_names_dropout_that_may_leave_something_out(layer: str, told: bool) -> None:
    result = migrate([decode(TRAINED.format(layer=layer).encode(), Path("train.py"))], CATALOGUE, Config())
    assert result.files[0].changed
    assert any("Dropout" in line for line in expectations(result)) is told
