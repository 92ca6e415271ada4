"""Means of an evaluation that are added up, and divided by the number of samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, Target
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.expect import expectations
from torchlift.rewriter.source import decode

SCRIPT = """
import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

rows = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
data = DataLoader(rows, batch_size=4, shuffle=True)
held = DataLoader(rows, batch_size=4)
model = torch.nn.Linear(8, 3)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
total, hits = 0.0, 0
with torch.no_grad():
    for x, y in held:
        out = model(x)
        {step}
        hits += (out.argmax(1) == y).sum().item()
print(total / {by}, hits / len(held.dataset))
"""
ROWS = "out, y = accelerator.gather_for_metrics((out, y))"

Migrated = Callable[..., tuple[str, list[str], list[str]]]


@pytest.fixture
def migrated() -> Migrated:
    """The text, the ids of findings and what is said of the run time, for what an evaluation does with a batch."""

    def run(step: str, by: str = "len(held.dataset)", **options: object) -> tuple[str, list[str], list[str]]:
        script = SCRIPT.format(step=step.replace("\n", "\n        "), by=by)
        result = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config(**options))  # type: ignore[arg-type]
        (file,) = result.files
        return file.after.decode(), [found.id for found in file.diagnoses], list(expectations(result))

    return run


def summed(mean: str) -> str:
    return f'accelerator.reduce({mean}.detach(), reduction="sum_of_means")'


@pytest.mark.hazard("U13")
@pytest.mark.parametrize(
    ("step", "first"),
    [
        ("total += F.cross_entropy(out, y).item()", f"total += {summed('F.cross_entropy(out, y)')}.item()"),
        ("total += float(criterion(out, y))", f"total += float({summed('criterion(out, y)')})"),
        ("total += criterion(out, y)", f"total += {summed('criterion(out, y)')}"),
        ("error = criterion(out, y)\ntotal += error.item()", f"total += {summed('error')}.item()"),
    ],
)
def test_each_process_adds_the_means_of_all(step: str, first: str, migrated: Migrated) -> None:
    """The mean over the rows of all was added N times less often, and a finding said so."""
    text, found, said = migrated(step)
    assert f"        {first}\n        {ROWS}\n        hits +=" in text
    assert "mean-of-batches" not in found
    assert any("total (line" in one and "filled up with repeated rows" in one for one in said)


def test_rows_that_are_read_before_their_mean_is_added_are_gathered_after_it_is_computed(migrated: Migrated) -> None:
    step = "error = criterion(out, y)\n_, best = torch.max(out, 1)\nhits += (best == y).sum().item()\n"
    step += "total += error.item()"
    text, found, _ = migrated(step)
    assert f"        error = criterion(out, y)\n        {ROWS}\n        _, best" in text
    assert f"        total += {summed('error')}.item()\n" in text
    assert "prepare" not in found


@pytest.mark.parametrize(
    "step",
    [
        "print(out[0])\ntotal += criterion(out, y).item()",
        "error = criterion(out, y)\nprint(error.item())\ntotal += error.item()",
        "total += criterion(out, y).item() / 2",
    ],
)
def test_what_else_reads_the_rows_keeps_the_evaluation_whole(step: str, migrated: Migrated) -> None:
    text, found, _ = migrated(step)
    assert "reduce" not in text and "gather" not in text
    assert "prepare" in found


def test_an_average_over_the_batches_is_that_of_all_rows(migrated: Migrated) -> None:
    text, _, said = migrated("total += criterion(out, y).item()", "len(held)")
    assert f"{ROWS}\n        total +=" in text
    assert not any("filled up" in one for one in said)


def test_an_array_is_no_tensor_to_reduce(migrated: Migrated) -> None:
    text, _, _ = migrated("total += np.mean(out.numpy())")
    assert "sum_of_means" not in text


def test_rows_that_only_a_mean_is_made_of_are_not_gathered(migrated: Migrated) -> None:
    text, _, _ = migrated("total += criterion(out, y).item()\ncontinue")
    assert summed("criterion(out, y)") in text
    assert ROWS in text  # what follows is not known to be left out
    alone = SCRIPT.format(step="total += criterion(out, y).item()", by="len(rows)")
    alone = alone.replace("        hits += (out.argmax(1) == y).sum().item()\n", "")
    (file,) = migrate([decode(alone.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert summed("criterion(out, y)") in file.after.decode()
    assert "gather" not in file.after.decode()


@pytest.mark.parametrize("options", [{"target": Target.ACCELERATE}, {"keep_global_batch": True}])
def test_who_does_not_know_the_word_evaluates_the_whole_set(options: dict[str, object], migrated: Migrated) -> None:
    text, found, _ = migrated("total += criterion(out, y).item()", **options)
    assert "sum_of_means" not in text
    assert ("gather" not in text) is ("prepare" in found) is ("target" in options)
