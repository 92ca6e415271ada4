"""The rule `deferred_reads`: with `--device tpu` losses are added up as tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.rewriter.result import FileResult

TRAINING = """
import torch
from torch import nn
from torch.utils.data import DataLoader

model = nn.Linear(8, 3)
loader = DataLoader(data, batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    total, best = 0, 9.0
    total = 0.0
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {step}
    {end}
"""
END = "print(f'{total / len(loader):.4f}')"


def migrated(result: Callable[..., FileResult], step: str, end: str = END, device: str = "tpu") -> str:
    training = TRAINING.replace("    total, best = 0, 9.0\n", "")
    return (result(training.format(step=step, end=end), device=device).after or b"").decode()


def test_the_sum_is_a_tensor_and_a_number_where_it_is_shown(result: Callable[..., FileResult]) -> None:
    after = migrated(result, "total += loss.item()")
    assert 'total += accelerator.reduce(loss.detach(), reduction="mean")\n' in after
    assert "{float(total) / len(loader):.4f}" in after


def test_what_is_shown_now_and_then_is_a_number_there(result: Callable[..., FileResult]) -> None:
    step = "total += loss.item()\n        if step % 10 == 9:\n            print(total / (step + 1))"
    after = migrated(result, step)
    assert "print(float(total) / (step + 1))" in after and ".item()" not in after


@pytest.mark.parametrize(
    "step",
    [
        "total += loss.item()\n        print(total)",
        "total += x.size(0) * 1.0",
        "total = loss.item()",
        "total -= loss.item()",
        "if step % 10 == 0:\n            total += loss.item()",
    ],
    ids=["it is read in each step", "no loss", "no sum", "subtracted", "now and then"],
)
def test_what_stays(step: str, result: Callable[..., FileResult]) -> None:
    assert "float(total)" not in migrated(result, step)


def test_without_the_option_nothing_waits(result: Callable[..., FileResult]) -> None:
    assert "float(total)" not in migrated(result, "total += loss.item()", device="")
