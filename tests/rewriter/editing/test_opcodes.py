"""The difference of two texts: what is equal is shown as equal, however often its line occurs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

from torchlift.rewriter.editing.opcodes import opcodes
from torchlift.rewriter.report.diff import patch

USUAL = b"    return x\n\n\n"


def test_lines_that_occur_often_are_equal_in_a_long_file() -> None:
    """difflib takes a line for junk that is more than a hundredth of 200 lines: these would be removed and added."""
    blocks = [b"def f%d(x):\n" % number + USUAL for number in range(60)]
    before = b"".join(blocks)
    after = before.replace(b"f30", b"g").replace(b"f31", b"h")
    changed = [line for line in patch(Path("x.py"), before, after).split(b"\n")[2:] if line[:1] in (b"-", b"+")]
    assert changed == [b"-def f30(x):", b"+def g(x):", b"-def f31(x):", b"+def h(x):"]


def test_lines_without_any_that_occurs_once() -> None:
    before, after = ["pass"] * 300, ["pass"] * 150 + ["x"] + ["pass"] * 150
    assert opcodes(before, after) == [
        ("equal", 0, 150, 0, 150),
        ("insert", 150, 150, 150, 151),
        ("equal", 150, 300, 151, 301),
    ]


def test_every_line_is_in_one_opcode_and_changes_are_apart() -> None:
    random = Random(1)
    for _ in range(2000):
        before, after = ([random.choice("abcdefg") for _ in range(random.randrange(9))] for _ in range(2))
        made: list[str] = []
        last = (0, 0)
        kinds: list[bool] = []
        for kind, i1, i2, j1, j2 in opcodes(before, after):
            assert (i1, j1) == last and (i1, j1) != (i2, j2)
            made += before[i1:i2] if kind == "equal" else after[j1:j2]
            assert kind != "insert" or i1 == i2
            assert kind != "delete" or j1 == j2
            last = (i2, j2)
            kinds.append(kind == "equal")
        assert last == (len(before), len(after)) and made == after
        assert all(one != other for one, other in pairwise(kinds))
