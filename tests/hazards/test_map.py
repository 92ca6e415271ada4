"""
Every row of the map of hazards that concerns one file has a test that runs.

A test says which rows it is about with `@pytest.mark.hazard("D6")`; a case of `rows/` does so by its name, `D6: ...`.
What is compared is what pytest collects: a row that is only spoken of in a comment has no test.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
WHERE = ("hazards", "codemods", "rewriter")
SECTIONS = {"S": 14, "D": 14, "P": 12, "M": 10, "B": 9, "E": 6, "G": 9, "C": 5, "R": 3, "X": 43}
"""How many rows each section of the map has."""
ROWS = {f"{letter}{number}" for letter, count in SECTIONS.items() for number in range(1, count + 1)}
SEEN = {f"U{number}" for number in range(1, 41)}
"""What was seen in our own output."""

COLLECT = """
import sys
import pytest

class Rows:
    def pytest_collection_finish(self, session):
        for item in session.items:
            skipped = item.get_closest_marker("skip") or any(all(m.args) for m in item.iter_markers("skipif"))
            if not skipped:
                for marker in item.iter_markers("hazard"):
                    print("ROWS", *marker.args)

sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Rows()]))
"""


def rows_with_tests(*where: str) -> set[str]:
    """The rows that the tests of some folders or files name, of those tests that are not skipped."""
    command = [sys.executable, "-c", COLLECT, *where]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    lines = (line.split() for line in done.stdout.splitlines())
    return {row for words in lines if words[:1] == ["ROWS"] for row in words[1:]}


def test_every_row_has_a_test() -> None:
    found = rows_with_tests(*(f"tests/{name}" for name in WHERE))
    assert sorted((ROWS | SEEN) - found) == [], "rows without a test"
    assert sorted(found - ROWS - SEEN) == [], "the map has no such rows"


FILE = """
# about S1
import pytest
'''About S2.'''

@pytest.mark.hazard("S3", "S4")
@pytest.mark.parametrize("one", [1, pytest.param(2, marks=pytest.mark.hazard("S5"))])
def test_this(one):
    '''Row S6.'''

@pytest.mark.skip(reason="not now")
@pytest.mark.hazard("S7")
def test_that():
    pass

@pytest.mark.skipif(True, reason="not here")
@pytest.mark.hazard("S8")
def test_else():
    pass

@pytest.mark.hazard("S9")
def helper():
    pass
"""


def test_a_row_counts_where_a_test_of_it_runs(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(FILE)
    assert rows_with_tests(str(tmp_path), "-c", str(TESTS.parent / "pyproject.toml")) == {"S3", "S4", "S5"}
