"""What `make mutants` takes from the source text. The mutants themselves are Cosmic Ray's."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TEXT = """\
from __future__ import annotations
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    WIDTH = 1 + 1
LIMIT = 2 + 3


def choose(a: int | None, b: int = 4 + 5) -> int | None:
    if (
        a == 1
        and b == 2
    ):
        found: int | str = a + b
        return found
    return min(
        a,
        b,
    )
"""


@pytest.fixture(scope="module")
def sources() -> ModuleType:
    """The module, which needs nothing of what `make mutants` installs."""
    place = Path(__file__).parent / "mutants" / "sources.py"
    spec = importlib.util.spec_from_file_location("mutants_sources", place)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _place(part: str) -> tuple[int, int]:
    before, _, _ = TEXT.partition(part)
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1)


@pytest.mark.parametrize("part", ["1 + 1", "int | None, b", "int | None:", "int | str"])
def test_what_nobody_evaluates_is_not_mutated(sources: ModuleType, part: str) -> None:
    assert _place(part) in sources.unevaluated(TEXT)


@pytest.mark.parametrize("part", ["2 + 3", "4 + 5", "a == 1", "a + b", "min("])
def test_what_is_executed_is_mutated(sources: ModuleType, part: str) -> None:
    assert _place(part) not in sources.unevaluated(TEXT)


@pytest.mark.parametrize(
    "part, lines",
    [
        pytest.param("b == 2", {9, 10, 11, 12}, id="a condition without what it guards"),
        pytest.param("a + b", {13}, id="one line"),
        pytest.param("        b,\n", {15, 16, 17, 18}, id="a call over several lines"),
        pytest.param("2 + 3", None, id="a module's own statement"),
        pytest.param("4 + 5", None, id="a default is evaluated at the definition"),
    ],
)
def test_the_lines_of_a_statement(sources: ModuleType, part: str, lines: set[int] | None) -> None:
    found = sources.statement(TEXT, _place(part)[0])
    assert found == (None if lines is None else sum(1 << line for line in lines))


def test_spread_by_size(sources: ModuleType) -> None:
    assert sources.spread({"large": 300, "middle": 149, "small": 51}, 10) == {"large": 6, "middle": 3, "small": 1}
    assert sum(sources.spread({str(number): number for number in range(90)}, 37).values()) == 37


def test_the_mirror_is_always_tried_and_others_by_lot(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("mutants_under_test")
    package.__path__ = [str(Path(__file__).parent / "mutants")]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    covering = importlib.import_module(f"{package.__name__}.covering")
    file = "rewriter/analysis/training/training.py"
    mirror = [f"tests/rewriter/analysis/training/test_x.py::test_{number}" for number in range(4)]
    others = [f"tests/codemods/test_x.py::test_{number}" for number in range(400)]
    seconds = {**dict.fromkeys(mirror, covering.ENOUGH / 8), **dict.fromkeys(others, covering.ENOUGH / 40)}
    lines = {**dict.fromkeys(seconds, 0b110), others[7]: 0b1110}
    chosen = covering.Traces(seconds, {file: lines}).choose(file, 1).limits
    assert {*mirror, others[7]} < set(chosen)  # what executes other lines comes first
    assert len(chosen) == 4 + 20  # half of the time is left for the others
    assert list(chosen) == sorted(chosen, key=lambda test: (seconds[test], test))
    assert chosen == covering.Traces(seconds, {file: lines}).choose(file, 1).limits
