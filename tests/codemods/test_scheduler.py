"""The rule `scheduler`: which ones are prepared, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

EPOCH = "s = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)"
COSINE = "s = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)"

NOOPS: dict[str, dict[str, Any]] = {
    "stepped once an epoch": {"built": EPOCH, "epoch": "s.step()"},
    "stepped at the end": {"built": EPOCH, "end": "s.step()"},
    "never stepped": {"built": EPOCH},
    "a profiler that steps": {
        "imports": "from torch.profiler import profile",
        "built": "p = profile()",
        "step": "p.step()",
    },
    "an environment that steps": {"built": "env = make()", "step": "env.step(1)"},
    "a counter of one's own that steps": {
        "top": "class Count:\n    def step(self):\n        return 1\n\ncount = Count()",
        "step": "count.step()",
    },
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_not_prepared(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


READS_LATER: dict[str, dict[str, Any]] = {
    "a lambda": {
        "built": "s = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (9 * len(loader)))",
        "step": "s.step()",
    },
    "a function": {
        "built": "def poly(step):\n    total = 9 * len(loader)\n    return (1 - step / total) ** 0.9\n"
        "s = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=poly)",
        "step": "s.step()",
    },
}


@pytest.mark.parametrize("parts", READS_LATER.values(), ids=READS_LATER)
def test_what_reads_the_length_of_the_loader_at_each_step_is_not_prepared(parts: dict[str, Any], lines: Lines) -> None:
    """Prepared, it would go N steps at a time through a schedule of 1/N of the length."""
    out, come, findings = lines(**parts)
    assert (out, findings) == ([], [])
    assert not prepared(come)


def prepared(come: list[str]) -> bool:
    return any(", s = accelerator.prepare(" in line for line in come)


PER_STEP: dict[str, dict[str, Any]] = {
    "stepped once an optimizer step": {"built": COSINE, "step": "s.step()"},
    "a lambda of the step": {
        "built": "s = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))",
        "step": "s.step()",
    },
    "made by a function of the script": {
        "top": "def make(optimizer):\n    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)",
        "built": "s = make(optimizer)",
        "step": "s.step()",
    },
    "with a horizon read from the loader in front of prepare": {
        "built": "s = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=3, steps_per_epoch=len(loader))",
        "step": "s.step()",
    },
    "imported by its name": {
        "imports": "from torch.optim.lr_scheduler import OneCycleLR",
        "built": "s = OneCycleLR(optimizer, 0.1, total_steps=100)",
        "step": "s.step()",
    },
}


@pytest.mark.parametrize("parts", PER_STEP.values(), ids=PER_STEP)
def test_prepared_and_said(parts: dict[str, Any], lines: Lines) -> None:
    gone, come, findings = lines(**parts)
    assert gone == []
    assert prepared(come)
    assert findings == ["scheduler"]


def test_stepped_both_ways_is_refused(lines: Lines) -> None:
    gone, come, findings = lines(built=COSINE, step="s.step()", epoch="s.step()")
    assert (gone, come) == ([], [])
    assert set(findings) == {"scheduler"}


def test_stepped_on_a_metric_it_is_not_prepared_and_follows_all_processes(lines: Lines) -> None:
    gone, come, findings = lines(
        built="s = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)", epoch="s.step(loss)"
    )
    assert gone == ["    s.step(loss)"]
    assert come == ['    s.step(accelerator.reduce(loss.detach(), reduction="mean"))']
    assert findings == []
