"""The tables as they stand: well formed, each name once, each row used by a program of the tests or listed as not."""

from __future__ import annotations

import ast
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from torchlift.rewriter.facts.torch_api.checking import check_table
from torchlift.rewriter.facts.torch_api.loading import BUILT_IN

ROOT = Path(__file__).resolve().parents[4]
TABLES = ROOT / "rewriter" / "facts" / "torch_api" / "tables"
NOT_EXERCISED = Path(__file__).with_name("not_exercised.txt")
"""The rows whose last name no program of the fixtures and tests calls or builds upon, one a line."""


def keys(table: str) -> list[str]:
    """The names of a table as its text has them: a dictionary would swallow one that is there twice."""
    dicts = [node for node in ast.walk(ast.parse((TABLES / f"{table}.py").read_text())) if isinstance(node, ast.Dict)]
    return [key.value for key in dicts[0].keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]


def test_every_table_is_loaded() -> None:
    assert {file.stem for file in TABLES.glob("*.py")} - {"__init__"} == set(BUILT_IN)


@pytest.mark.parametrize("table", BUILT_IN)
def test_a_table_is_well_formed(table: str) -> None:
    check_table(import_module(f"torchlift.rewriter.facts.torch_api.tables.{table}").ROWS, TABLES / f"{table}.py")


def test_no_name_has_two_rows() -> None:
    counts = Counter(name for table in BUILT_IN for name in keys(table))
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("table", BUILT_IN)
def test_a_table_is_data(table: str) -> None:
    """No computed rows, no imports but for the type checker: a person can read it, and so can another program."""
    body = ast.parse((TABLES / f"{table}.py").read_text()).body
    assert [type(node).__name__ for node in body] == ["Expr", "ImportFrom", "ImportFrom", "If", "AnnAssign"]
    value = body[-1].value  # type: ignore[attr-defined]
    assert ast.literal_eval(value)


def exercised() -> set[str]:
    """Every name that the programs of the tests call, build upon or decorate with."""
    here = Path(__file__).parent
    files = [*(ROOT / "fixtures").rglob("before*.py"), *(ROOT / "fixtures").rglob("before/**/*.py")]
    files += [file for file in (ROOT / "tests").rglob("*") if file.suffix in (".py", ".yaml", ".md", ".txt")]
    texts = (file.read_text(errors="replace") for file in files if here not in file.parents)
    return {name for text in texts for name in re.findall(r"(\w+)(?=\(|\)\s*:)|(?<=@torch\.)\w+", text) if name}


def test_each_row_is_exercised_or_listed_as_not() -> None:
    used, listed = exercised(), NOT_EXERCISED.read_text().splitlines()
    names = [name for table in BUILT_IN for name in keys(table)]
    unused = {name for name in names if name.rpartition(".")[2].strip("*") not in used and not name.endswith("*")}
    assert sorted(unused - set(listed)) == [], "a new row: show it in a program, or list it"
    assert sorted(set(listed) - set(names)) == [], "no row of this name"
    assert listed == sorted(set(listed))
