"""Every row of the map of hazards that concerns one file has a test: here, or in the place that is named."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
SECTIONS = {"S": 14, "D": 14, "P": 12, "M": 10, "B": 9, "E": 6, "G": 9, "C": 5, "R": 3, "X": 43}
"""How many rows each section of the map has."""

ELSEWHERE = {
    "S1": "codemods/test_accelerator_setup.py",
    "S3": "codemods/test_accelerator_setup.py",
    "S4": "rewriter/test_classes.py",
    "S5": "rewriter/test_programs.py",
    "S6": "rewriter/analysis/test_roles.py",
    "S14": "rewriter/test_notebooks.py",
    "D1": "codemods/test_device_placement.py",
    "D2": "codemods/test_device_placement.py",
    "D3": "codemods/test_device_placement.py",
    "D6": "codemods/test_device_placement.py",
    "D13": "codemods/test_checkpoint_load.py",
    "P2": "codemods/test_prepare.py",
    "P3": "codemods/test_device_placement.py",
    "G2": "codemods/test_main_process.py",
    "G3": "codemods/test_main_process.py",
    "G4": "codemods/test_directories.py",
    "G5": "codemods/test_downloads.py",
    "G7": "codemods/test_tracking.py",
    "G8": "codemods/test_log_files.py",
    "G9": "rewriter/gate/test_prefilter.py",
    "C2": "codemods/test_checkpoint_save.py",
    "C3": "codemods/test_checkpoint_load.py",
    "C4": "codemods/test_checkpoint_save.py",
    "C5": "codemods/test_main_process.py",
    "X5": "rewriter/test_programs.py",
    "X11": "codemods/test_tracking.py",
    "X17": "codemods/test_checkpoint_load.py",
    "X30": "codemods/test_main_process.py",
}


def _rows() -> list[str]:
    return [f"{letter}{number}" for letter, count in SECTIONS.items() for number in range(1, count + 1)]


def _named() -> set[str]:
    """The rows that the tests of this folder name, one by one or as ``S7 to S12``."""
    files = [*Path(__file__).parent.glob("test_*.py"), *Path(__file__).parent.glob("rows/*.txt")]
    text = "\n".join(file.read_text() for file in files if file != Path(__file__))
    found = set(re.findall(r"\b[A-Z]\d+\b", text))
    for letter, first, last in re.findall(r"\b([A-Z])(\d+) to \1(\d+)\b", text):
        found.update(f"{letter}{number}" for number in range(int(first), int(last) + 1))
    return found


def test_every_row_has_a_test() -> None:
    assert [row for row in _rows() if row not in _named() and row not in ELSEWHERE] == []


def test_what_is_tested_elsewhere_is_there() -> None:
    assert [place for place in ELSEWHERE.values() if not (TESTS / place).is_file()] == []
    assert sorted(set(ELSEWHERE) & _named()) == []
