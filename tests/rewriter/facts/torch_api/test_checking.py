"""What is said of a table that is not well formed."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.rewriter.facts.torch_api.checking import check_table, line_of
from torchlift.rewriter.source import SourceError


@pytest.mark.parametrize(
    ("row", "cause", "remedy"),
    [
        ('"mylib.f": "pointwise"', "the row of mylib.f is 'pointwise'", 'Write it like "package.name"'),
        ('"mylib.f": ("pointwise",)', "the row of mylib.f is ('pointwise',)", 'Write it like "package.name"'),
        ('"mylib.f": ("pointwize", {})', "the kind 'pointwize', which does not exist", "Write 'pointwise'"),
        ('"mylib.f": ("zzz", {})', "the kind 'zzz', which does not exist", "Choose one of accelerator, along"),
        (
            '"mylib.f": ("reduce", {"dims": 1})',
            "the option 'dims', and 'reduce' has none",
            "Use op, dim, keyword, gives",
        ),
        (
            '"mylib.f": ("reduce", {"dim": "1"})',
            "the option 'dim' of mylib.f is '1'",
            "Give a position, counted from 0",
        ),
        ('"mylib.f": ("reduce", {"dim": True})', "the option 'dim' of mylib.f is True", "Give a position"),
        ('"mylib.f": ("reduce", {"op": "average"})', "of mylib.f is 'average'", "Give one of 'sum', 'mean'"),
        ('"mylib.f": ("module", {"random": 1})', "the option 'random' of mylib.f is 1", "Give True or False"),
        ('"mylib.f": ("pointwise", {"shape_only": 1})', "the option 'shape_only'", "Give positions, as a tuple"),
        ('"mylib.f": ("console", {"only": "classes"})', "has the option 'only' and no star", "Leave the option out"),
        ('"my lib.f": ("console", {})', "'my lib.f' is not the full name", "Name it as it is imported"),
        ('"*.*.*": ("console", {})', "has more than two stars", "Name the operations one by one"),
        ('1: ("console", {})', "1 is not the full name", "Name it as it is imported"),
    ],
)
def test_the_first_fault_is_said_with_its_place_and_its_remedy(
    row: str, cause: str, remedy: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows.py"
    file.write_text(f'ROWS = {{\n    "mylib.right": ("reduce", {{"op": "sum", "dim": None}}),\n    {row},\n}}\n')
    rows: dict[str, object] = {}
    exec(file.read_text(), rows)
    with pytest.raises(SourceError) as caught:
        check_table(rows["ROWS"], file)
    error = caught.value
    assert (error.path, error.line) == (file, 3)
    assert cause in str(error)
    assert remedy in str(error)


def test_what_is_no_dictionary() -> None:
    with pytest.raises(SourceError, match="no dictionary"):
        check_table([], Path("rows.py"))


def test_the_line_of_a_row_that_the_text_does_not_show(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text("ROWS = dict(a=1)\n")
    assert line_of(tmp_path / "rows.py", "mylib.f") == 0
    assert line_of(tmp_path / "gone.py", "mylib.f") == 0
