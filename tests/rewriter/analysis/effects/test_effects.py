"""What writes a file, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]


def test_a_path_that_is_opened_to_write(trained: Trained) -> None:
    text, _ = trained(top="from pathlib import Path", end='with Path("a").open("w") as f:\n    f.write("done")')
    assert "if accelerator.is_main_process:\n    with Path" in text


def test_another_method_with_the_same_argument(trained: Trained) -> None:
    text, findings = trained(end='with store.read("w") as f:\n    f.write("done")')
    assert '\nwith store.read("w") as f:' in text
    assert findings == []


SCORE = """\
import numpy as np
def evaluate():
    hits = 0
    for x, y in test_loader:
        hits += (model(x).argmax(1) == y).sum().item()
    return hits
"""


def test_what_all_compute_is_computed_before_one_writes_it(trained: Trained) -> None:
    text, findings = trained(top=SCORE, end='np.save("hits.npy", evaluate())')
    assert 'output = evaluate()\nif accelerator.is_main_process:\n    np.save("hits.npy", output)\n' in text
    assert findings == []


@pytest.mark.parametrize(
    "line",
    ["np.save(next_name(), evaluate())", 'np.save("hits.npy", evaluate()); done = True'],
    ids=["another call would run later than before", "beside another statement"],
)
def test_where_that_would_change_the_order_of_things_it_is_told(line: str, trained: Trained) -> None:
    text, findings = trained(top=SCORE, end=line)
    assert f"\n{line}\n" in text
    assert findings == ["main_process"]
