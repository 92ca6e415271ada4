"""Evaluations that stay whole, because their loader must not be prepared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
