"""What an edit changes for the callers of a file."""

from __future__ import annotations

import pytest

from torchlift.rewriter.project.changed_calls import changed_calls, mentioned


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("def run(a, device): ...", "def run(a, accelerator): ...", ("run", "a, accelerator")),
        ("def run(a): ...", "def run(a, accelerator): ...", ("run", "a, accelerator")),
        ("def run(a, *, b=1): ...", "def run(a, *, accelerator, b=1): ...", ("run", "a, *, accelerator, b=1")),
        ("class A:\n def __init__(self, d): ...", "class A:\n def __init__(self): ...", ("A", "self")),
        ("device = 1", "pass", ("device", "")),
        ("one = two = 1", "one = 1", ("two", "")),
    ],
    ids=["another parameter", "one more", "by keyword", "a constructor", "a variable", "one of two variables"],
)
def test_calls_that_no_longer_fit(before: str, after: str, told: tuple[str, str]) -> None:
    assert changed_calls(before.encode(), after.encode()) == [told]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def run(a): return a", "def run(a): return 2 * a"),
        ("def run(a, b=1): ...", "def run(a, b=1, accelerator=None): ..."),
        ("def run(a, *rest): ...", "def run(a, *rest, accelerator=None): ..."),
        ("class A:\n  def run(self): ...", "class A:\n  own = 1\n  def run(self): ...\n  def more(self): ..."),
        ("def run(): device = 1", "def run(): pass"),
        ("def run(", "def run():"),
    ],
    ids=["same", "a default", "after the rest", "one more method", "a variable of a function", "not Python"],
)
def test_calls_that_still_fit(before: str, after: str) -> None:
    assert changed_calls(before.encode(), after.encode()) == []


def test_names_that_a_file_uses() -> None:
    assert mentioned(b"import a.b\nfrom c import d as e\nf.g(h)\n") == {"b", "d", "f", "g", "h"}
    assert mentioned(b"def (") == set()
