"""The last look at a new text: whether Python takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.rewriter.pipeline import _checked
from torchlift.rewriter.source import decode

FUTURE = "from __future__ import annotations\n"
CASES = {
    "a text as good as the original": (FUTURE, FUTURE + "x = 1\n", False),
    "code before what Python wants in front": (FUTURE, "x = 1\n" + FUTURE, True),
    "a name that is declared after its use": ("def f():\n    x = 1\n", "def f():\n    x = 1\n    global x\n", True),
    "what Python does not take of the original either": ("return\n", "x = 1\nreturn\n", False),
    "what a notebook may say": ("await x\n", "await x\ny = 1\n", False),
}


@pytest.mark.parametrize(("before", "after", "wrong"), CASES.values(), ids=CASES)
def test_a_text_that_python_does_not_take_is_never_written(before: str, after: str, wrong: bool) -> None:
    source = decode(before.encode(), Path("train.py"))
    found, data = _checked(source, after)
    assert [finding.id for finding in found] == ["invalid-output"] * wrong
    assert data == (before if wrong else after).encode()
