"""Loops that train in one phase and evaluate in another."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

PASSES = """\
import torch
from torch.utils.data import DataLoader
from data import data, test_data

model = torch.nn.Linear(8, 2)
loader, test_loader = DataLoader(data, batch_size=32), DataLoader(test_data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

def run(loader, optimizer, train, amp=False):
    losses, hits = [], []
    for i, (x, y) in enumerate(loader):
        scores = model(x)
        loss = torch.nn.functional.cross_entropy(scores, y)
        {step}
        losses.append(loss.item())
        hits.append((scores.argmax(1) == y).float().mean().item())
    return sum(losses) / len(losses), sum(hits) / len(hits)

for epoch in range(3):
    print(run(loader, optimizer, True))
    print(run(test_loader, None, False))
"""


@pytest.mark.parametrize(
    "step",
    [
        "if optimizer is not None: update(loss)",
        "if optimizer: update(loss)",
        "if train: update(loss)",
        "if model.training: update(loss)",
        "if torch.is_grad_enabled(): update(loss)",
        "if loss.requires_grad: update(loss)",
    ],
)
def test_one_function_for_training_and_evaluation(step: str) -> None:
    """Its means over joined batches were not mentioned."""
    (file,) = migrate([decode(PASSES.format(step=step).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.changed and [d.id for d in file.diagnoses] == ["filled-batch", "mean-of-batches"]
    assert "`hits` collects a mean over the rows of each batch" in file.diagnoses[1].message


@pytest.mark.parametrize(
    "step", ["update(loss)", "if i % 2 == 0: update(loss)", "update(2 * loss) if amp else update(loss)"]
)
def test_a_function_that_trains_alone(step: str) -> None:
    (file,) = migrate([decode(PASSES.format(step=step).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.changed and file.diagnoses == ()
