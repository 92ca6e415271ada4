"""The cells of a notebook in a traced process: what they show, and what is recorded of other processes."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from torchlift.runtime.verify.hooks import cells
from torchlift.runtime.verify.hooks.recorder import Recorder


def recorder(folder: Path, rank: int) -> Recorder:
    return Recorder(path=str(folder / "trace"), rank=rank, root="/nowhere/", base="/nowhere", steps=9, most_steps=9)


def run(folder: Path, *texts: str, rank: int = 0, **names: Any) -> list[str]:
    """The lines that are recorded of cells."""
    noted = recorder(folder, rank)
    main = types.ModuleType("__main__")
    main.__dict__.update(say=lambda text: noted.write("line", x=text), **names)
    module = types.SimpleNamespace(notebook_launcher=lambda function, args=(): function(*args))
    cells.records_launches(module, noted)
    main.__dict__["notebook_launcher"] = module.notebook_launcher
    cells.run([(f"cell {n}", text) for n, text in enumerate(texts, 1)], main, noted)
    return [json.loads(line)["x"] for line in (folder / "trace").read_text().splitlines()]


@pytest.fixture(autouse=True)
def _own_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "displayhook", sys.displayhook)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("x = 3\nx, 'cpu'", "(3, 'cpu')\n"),
        ("'cpu'.upper()", "CPU\n"),
        ("{'loss': [0.5]}", "{'loss': [0.5]}\n"),
        ("x = 3\nx;", ""),
        ("print(1)", "1\n"),
        ("object()", ""),
        ("[object()]", ""),
        ('"""A text on its own."""', ""),
        ("x = 3", ""),
        ("", ""),
    ],
)
def test_the_value_of_a_last_line_is_shown(
    cell: str, shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the migrated notebook prints it from the training function. A picture is no text."""
    run(tmp_path, "say(0)", cell)
    assert capsys.readouterr().out == shown


LAUNCHED = (
    "say('data')",
    "def train(a):\n    say(a)\n    return a",
    "notebook_launcher(train, ('step',));",
    "say('shown')",
)


@pytest.mark.parametrize(("rank", "lines"), [(0, ["data", "step", "shown"]), (1, ["step"])])
def test_what_is_around_the_launched_function_is_done_once(rank: int, lines: list[str], tmp_path: Path) -> None:
    """There is one notebook, whatever the number of processes."""
    assert run(tmp_path, *LAUNCHED, rank=rank) == lines


def test_all_of_a_notebook_that_launches_nothing_counts(tmp_path: Path) -> None:
    assert run(tmp_path, *LAUNCHED[:2], "train('step');", rank=1) == ["data", "step"]
