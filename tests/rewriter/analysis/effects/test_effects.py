"""What writes a file, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_a_path_that_is_opened_to_write(trained: Trained) -> None:
    text, _ = trained(top="from pathlib import Path", end='with Path("a").open("w") as f:\n    f.write("done")')
    assert "if accelerator.is_main_process:\n    with Path" in text


def test_another_method_with_the_same_argument(trained: Trained) -> None:
    text, findings = trained(end='with store.read("w") as f:\n    f.write("done")')
    assert '\nwith store.read("w") as f:' in text
    assert findings == []
