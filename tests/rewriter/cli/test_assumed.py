"""An assumption about a name that no program has is said to have no effect."""

from __future__ import annotations

import pytest

from torchlift.rewriter.cli.assumed import unmatched

TEXT = "def step(batch):\n    err = self.net(batch)\n    return err\n"


@pytest.mark.parametrize("name", ["err", "batch", "self.net", "self"])
def test_what_is_there_is_not_mentioned(name: str) -> None:
    assert list(unmatched([("loss", name)], [TEXT])) == []


def test_one_program_of_several_is_enough() -> None:
    assert list(unmatched([("loss", "err")], ["x = 1\n", TEXT])) == []


def test_what_is_nowhere_is_said_with_the_nearest_name() -> None:
    assert list(unmatched([("loss", "er"), ("model", "zzz")], [TEXT])) == [
        "--assume loss=er matches nothing: no variable in these programs is called er. Did you mean --assume loss=err?",
        "--assume model=zzz matches nothing: no variable in these programs is called zzz.",
    ]


def test_nothing_is_said_where_nothing_was_looked_at() -> None:
    assert list(unmatched([("loss", "er")], [])) == []
    assert list(unmatched([("loss", "er")], ["x = (\n"])) == []
