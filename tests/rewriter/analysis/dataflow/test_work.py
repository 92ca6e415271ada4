"""The work of the fixed point grows with the program, and not with its square."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlift.rewriter.analysis.dataflow.program_flow import solve
from torchlift.rewriter.analysis.dataflow.solver import Filter, Slot, Solver


def _calls(monkeypatch: pytest.MonkeyPatch, rows: int) -> int:
    """How many edges the analysis makes for a program that reads a table of so many rows."""
    made = [0]
    passed = Solver.flow

    def flow(self: Solver, source: Slot, target: Slot, through: Filter | None = None) -> None:
        made[0] += 1
        passed(self, source, target, through)

    monkeypatch.setattr(Solver, "flow", flow)
    table = ",\n".join(f'    ["row {n}", [{n}, {n + 1}]]' for n in range(rows))
    text = f"TABLE = [\n{table},\n]\nfor row in TABLE:\n    print(row[0], row[1][0], row[len(row) - 1])\n"
    solve([("__main__", cst.parse_module(text))])
    return made[0]


def test_reading_the_rows_of_a_table_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _calls(monkeypatch, 400) < 3 * _calls(monkeypatch, 200)
