"""What the tests themselves keep to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


def swallowed(text: str) -> Iterator[int]:
    """The lines of each `try` that passes with an error and without one."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Try) and not node.orelse:
            if any(isinstance(statement, ast.Pass) for handler in node.handlers for statement in handler.body):
                yield node.lineno


def test_a_check_of_an_error_fails_when_none_comes() -> None:
    files = [file for file in TESTS.rglob("*.py") if "_typing" not in file.parts]
    assert TESTS / "runtime" / "jobs" / "models.py" in files
    found = [f"{file.relative_to(TESTS)}:{line}" for file in files for line in swallowed(file.read_text())]
    assert found == [], "write an `else` that raises"


SWALLOWED = {
    "passes": ("try:\n    f()\nexcept E:\n    pass\n", [1]),
    "raises where none came": ("try:\n    f()\nexcept E:\n    pass\nelse:\n    raise AssertionError\n", []),
    "looks at it": ("try:\n    f()\nexcept E as error:\n    assert str(error)\n", []),
}


@pytest.mark.xdist_group("a group")
def test_a_group_of_tests_stays_on_one_worker(request: pytest.FixtureRequest) -> None:
    """What tests share, the first computes: with another version of pytest or xdist, each worker might do it again."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@a group")


@pytest.mark.parametrize(("text", "lines"), SWALLOWED.values(), ids=SWALLOWED)
def test_what_swallows_an_error_is_found(text: str, lines: list[int]) -> None:
    assert list(swallowed(text)) == lines
