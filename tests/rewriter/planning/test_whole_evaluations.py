"""Evaluations that stay whole, because their loader must not be prepared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

TrainedProject = Callable[..., tuple[dict[str, str], list[str]]]

DRAWN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import data

device = torch.device("cuda")
loader = DataLoader(data, batch_size=8, shuffle=True)
held_out = DataLoader(data, batch_size=8)
model = nn.Linear(8, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def score(rows):
    hits = 0
    with torch.no_grad():
        for x, y in rows:
            x, y = x.to(device), y.to(device)
            hits += (model(x).argmax(1) == y).sum().item()
    print(hits / len(data))


for step in range(100):
    x, y = next(iter(loader))
    x, y = x.to(device), y.to(device)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
score({rows})
"""


@pytest.mark.parametrize(("rows", "whole"), [("loader", True), ("held_out", False)])
def test_a_loader_that_the_training_draws_from_by_itself(
    rows: str, whole: bool, trained_project: TrainedProject
) -> None:
    """Prepared for the evaluation, it gave shards to the training too, which were cut once more."""
    after, findings = trained_project(train=DRAWN.format(rows=rows))
    text = after["train"]
    assert "accelerator.shard_batch(" in text and "loader = accelerator.prepare(loader)" not in text
    assert "model, optimizer = accelerator.prepare(" in text or not whole
    assert ("gather_for_metrics" in text) != whole
    assert ("prepare" in findings) == whole


TWO_OF_A_CLASS = """\
import torch
from torch.utils.data import DataLoader


class Batches:
    def __init__(self, loader):
        self.loader = loader
        self.data = iter(loader)

    def next(self):
        return next(self.data, None)

    def reset(self):
        self.data = iter(self.loader)


model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches, held = Batches(DataLoader(rows, batch_size=8)), Batches(DataLoader(others, batch_size=8))
for epoch in range(3):
    batches.reset()
    batch = batches.next()
    while batch is not None:
        x, y = batch
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch = batches.next()
    held.reset()
    batch = held.next()
    right = 0
    while batch is not None:
        x, y = batch
        right += (model(x).argmax(1) == y).sum().item()
        batch = held.next()
    print(right)
"""


def test_of_several_loaders_that_may_come_to_an_evaluation_none_is_called_the_training_s() -> None:
    """The two objects have a loader each; "it reads the loader that the training reads" was not true."""
    (file,) = migrate([decode(TWO_OF_A_CLASS.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (told,) = file.diagnoses
    assert told.severity is Severity.BLOCKED and "it may read the one that the training reads" in told.message
    assert told.remedy.startswith("go through the evaluation's loader in a plain for loop")
