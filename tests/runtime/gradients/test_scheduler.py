"""Schedulers: what counts their steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from torchlift.runtime import Accelerator


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHLIFT_CPU", "1")


@pytest.mark.parametrize(("coupled", "counted"), [(True, 2), (False, 4)], ids=["with the optimizer", "by itself"])
def test_a_plateau_counts_windows(coupled: bool, counted: int) -> None:
    """Four batches in windows of two: a metric is taken at the end of a window, or at each call."""
    accelerator = Accelerator(gradient_accumulation_steps=2, step_scheduler_with_optimizer=coupled)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = ReduceLROnPlateau(optimizer, patience=100)
    model, optimizer, plateau = accelerator.prepare(model, optimizer, plateau)
    for _ in range(4):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.ones(4, 3)).sum())
            optimizer.step()
            plateau.step(1.0)
            optimizer.zero_grad()
    assert plateau.last_epoch == counted
