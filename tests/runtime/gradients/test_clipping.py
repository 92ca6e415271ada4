"""Clipping: once a window, of the gradients that there are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchlift.runtime import Accelerator


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHLIFT_CPU", "1")


def prepared() -> tuple[Any, Any]:
    """An accelerator with windows of two batches, and a model of which one part has no gradient."""
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "unused": nn.Linear(3, 2)})
    model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return accelerator, model


def backward(accelerator: Any, model: Any) -> None:
    accelerator.backward(model["used"](torch.ones(4, 3)).square().sum() * 10)


def test_inside_a_window_the_norm_is_measured_and_nothing_is_clipped() -> None:
    accelerator, model = prepared()
    with accelerator.accumulate(model):
        backward(accelerator, model)
        before = [p.grad.clone() for p in model["used"].parameters()]
        norm = accelerator.clip_grad_norm_(model.parameters(), 0.5)
        assert not accelerator.sync_gradients
        assert float(norm) == pytest.approx(float(torch.cat([g.flatten() for g in before]).norm()), rel=1e-6)
        assert float(norm) > 0.5
        accelerator.clip_grad_value_(model.parameters(), 0.01)
        assert all(torch.equal(p.grad, b) for p, b in zip(model["used"].parameters(), before, strict=True))


def test_at_the_end_of_a_window_gradients_are_clipped() -> None:
    accelerator, model = prepared()
    for _ in range(2):
        with accelerator.accumulate(model):
            backward(accelerator, model)
            norm = accelerator.clip_grad_norm_(model.parameters(), 0.5)
    clipped = torch.cat([p.grad.flatten() for p in model["used"].parameters()]).norm()
    assert float(norm) > 0.5
    assert float(clipped) == pytest.approx(0.5, rel=1e-4)
    accelerator.clip_grad_value_(model.parameters(), 0.01)
    assert max(float(p.grad.abs().max()) for p in model["used"].parameters()) == pytest.approx(0.01)
