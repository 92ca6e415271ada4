"""Losses of evaluations whose mean over a batch is divided by more than the number of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import Diagnosis
from torchlift.rewriter.source import decode

PROGRAM = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from rows import kept, rows

device = torch.device("cuda")
model = nn.Linear(4, 3).to(device)
weight = torch.tensor([1.0, 2.0, 3.0]).to(device)
criterion = nn.CrossEntropyLoss(OPTION)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader, held = DataLoader(rows, batch_size=8), DataLoader(kept, batch_size=8)

def measure(x, y):
    return MEASURED

for epoch in range(3):
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for x, y in held:
            loss = measure(model(x.to(device)), y.to(device))
            total += loss.item() * len(y)
            count += len(y)
    print(total / count)
    model.train()
"""


def told(option: str, measured: str = "criterion(x, y)", *, split: bool = False) -> list[Diagnosis]:
    text = PROGRAM.replace("OPTION", option).replace("MEASURED", measured)
    config = Config(keep_global_batch=split)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, config).files
    return [d for d in file.diagnoses if d.case == "figure"]


@pytest.mark.parametrize(
    ("option", "measured"),
    [
        ("weight=weight", "criterion(x, y)"),
        ("ignore_index=0", "criterion(x, y)"),
        ("", "F.cross_entropy(x, y, weight=weight)"),
        ("", "F.nll_loss(x.log_softmax(1), y, weight)"),
    ],
)
def test_the_average_of_weighted_means_depends_on_the_batches(option: str, measured: str) -> None:
    """On two processes the batches of a step are one: the figure was another one, and nothing was said."""
    (found,) = told(option, measured)
    assert found.id == "weighted-mean" and "close to the original's figure" in found.message
    assert found.line == PROGRAM[: PROGRAM.index("MEASURED")].count("\n") + 1


@pytest.mark.parametrize(
    ("option", "measured"),
    [
        ("", "criterion(x, y)"),
        ("weight=None", "criterion(x, y)"),
        ("weight=weight, reduction='sum'", "criterion(x, y)"),
        ("", "F.cross_entropy(x, y, weight=weight, reduction='none').sum()"),
    ],
)
def test_plain_means_and_sums_are_those_of_all_rows(option: str, measured: str) -> None:
    assert told(option, measured) == []


def test_split_batches_are_the_scripts_own() -> None:
    assert told("weight=weight", split=True) == []
