"""
The list of what goes wrong with Accelerate (W) and Fabric (F), row by row: every row has its test.

Most rows are checks in one job, whose names begin with the row (`w1_...`). The others are tests of their own.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS = [*(f"W{n}" for n in (*range(1, 6), *range(7, 20), *range(22, 28), *range(30, 37))), "F2", "F4"]
CHECKS = re.findall(r"^def ([wf]\d\w+)", (HERE / "jobs" / "traps.py").read_text(), re.M)
ALSO = {
    "W2": "gradients/test_window.py::test_schedules_and_windows",
    "W3": "gradients/test_window.py::test_schedules_and_windows",
    "W10": "data/test_loader.py::test_loaders_on_two_processes",
    "W13": "accelerator/test_training.py::test_fifty_steps_with_the_global_batch_kept_are_those_of_one_process",
    "W15": "launch/test_notebook.py::test_functions_run_on_processes_that_know_each_other",
    "W17": "data/test_reading.py::test_on_two_processes",
    "W18": "checkpoint/test_state.py::test_a_kill_in_the_middle_of_a_save_costs_nothing_that_was_saved",
    "W30": "process/test_watchdog.py::test_every_bug_is_named_within_seconds",
    "W33": "compat/test_names.py::test_wrappers_are_looked_through",
    "W36": "compat/test_names.py::test_filling",
    "F4": "test_import.py::test_nothing_heavy_comes_along",
}
"""Where a row has been looked at more closely."""


def rows_of(check):
    return {row.upper() for row in re.findall(r"(?:^|_)([wf]\d+)(?=_)", check)}


@pytest.fixture(scope="module")
def outcomes(job, tmp_path_factory):
    return job("traps.py", 2, tmp_path_factory.mktemp("traps"))


@pytest.mark.xdist_group("traps")
@pytest.mark.parametrize("check", CHECKS)
def test_row(outcomes, check):
    assert [one[check] for one in outcomes] == ["", ""]


def test_every_row_has_a_test():
    assert set().union(*map(rows_of, CHECKS)) == set(ROWS)
    for row, place in ALSO.items():
        file, _, name = place.partition("::")
        names = {node.name for node in ast.parse((HERE / file).read_text()).body if isinstance(node, ast.FunctionDef)}
        assert name in names, f"{row}: {place}"
