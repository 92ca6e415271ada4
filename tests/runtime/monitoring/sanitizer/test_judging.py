"""Which differences between the records of ranks are reports, and which are not."""

from __future__ import annotations

import math

import pytest

from torchlift.runtime.monitoring.sanitizer.judging import judge
from torchlift.runtime.monitoring.sanitizer.records import RankRecord


def ranks(*events, ended=True):
    """The records of ranks: each argument is the list of events of one rank."""
    return [RankRecord(rank, len(events), "launcher", "/job", list(own), ended) for rank, own in enumerate(events)]


def reports(*events, **more):
    return [(one.kind, one.at, one.text, one.times) for one in judge(ranks(*events, **more)).reports]


def compared(*values, way=True, turn=(0, 1), time=False):
    return {
        "e": "compared",
        "at": "/job/a.py:3",
        "x": "x < y",
        "n": list(turn),
        "v": list(values),
        "way": way,
        "time": time,
    }


def logged(value, key="", own=(), loops=(), turn=(0, 1), kind="logged"):
    return {
        "e": kind,
        "at": "/job/a.py:3",
        "c": 1,
        "x": "x",
        "n": list(turn),
        "v": {key: value},
        "own": list(own),
        "loops": list(loops),
    }


def line(text):
    return {"e": "line", "at": "/job/a.py:3", "x": text}


def collective(name, at="/job/a.py:3", of_all=True):
    return {"e": "collective", "op": name, "at": at, "all": of_all}


@pytest.mark.parametrize(
    ("mine", "theirs", "found"),
    [
        (compared(1.0, 2), compared(1.0, 2), False),
        (compared(1.0, 2), compared(1.5, 2), True),
        (compared(math.nan, 2), compared(math.nan, 2), False),
        (compared(1.0, 2), compared(1.5, 2, turn=(1, 1)), False),
        (compared(1, 2), compared(0, 2), False),
        (compared(1, 2), compared(3, 2, way=False), True),
        (compared(0, 2), compared(1, 2, way=False), False),
        (compared(1.0, 2, time=True), compared(1.5, 2, time=True), False),
        (compared(1.0, 2, time=True), compared(2.5, 2, way=False, time=True), True),
        (logged(1.0), logged(1.5), True),
        (logged(1), logged(2), True),
        (logged(0), logged(1), False),
        (logged(1.0), logged(1.5, own=[""]), False),
        (logged(1.0, key="a"), logged(1.5, key="b"), False),
        (logged("tensor 1", kind="saved"), logged("tensor 2", kind="saved"), True),
        (line("everybody"), line("everybody"), True),
        (line("loss 1.5"), line("loss 2.5"), True),
        (line("rank 0 has 5"), line("rank 1 has 5"), False),
        (line("one thing"), line("another"), False),
        (collective("gather of [2]"), collective("gather of [3]"), False),
        (collective("gather of [2]"), collective("reduce of [2]"), True),
        (collective("send of [2]", of_all=False), collective("recv of [2]", of_all=False), False),
    ],
)
def test_two_ranks(mine, theirs, found):
    assert bool(reports([mine], [theirs])) == found


def test_what_one_line_does_again_and_again_is_one_report():
    mine, theirs = ([logged(value + step, turn=(step, 1)) for step in range(3)] for value in (1.0, 1.5))
    ((kind, at, text, times),) = reports(mine, theirs)
    assert (kind, at, times) == ("logged value differs", "/job/a.py:3", 3)
    assert text == "`x`: 1 on rank 0, 1.5 on rank 1"


def test_other_expressions_of_a_line_are_named():
    def both(value):
        return [logged(value, turn=(turn, 1)) | {"x": name} for turn in range(2) for name in ("x", "y")]

    ((_, _, text, times),) = reports(both(1.0), both(1.5))
    assert (text, times) == ("`x`: 1 on rank 0, 1.5 on rank 1; also `y`", 2)


def test_a_branch_that_ranks_do_not_share_is_said():
    ((_, _, text, _),) = reports([compared(1.0, 2)], [compared(2.5, 2, way=False)])
    assert text == "`x < y`: 1 on rank 0, 2.5 on rank 1; they took different branches"


def test_different_branches_come_before_equal_ones_and_are_counted():
    mine = [compared(1.0, 2, turn=(turn, 1)) for turn in range(3)]
    theirs = [compared(1.5, 2, turn=(0, 1)), *(compared(2.5, 2, way=False, turn=(turn, 1)) for turn in (1, 2))]
    ((_, _, text, times),) = reports(mine, theirs)
    assert (text, times) == ("`x < y`: 1 on rank 0, 2.5 on rank 1; they took different branches, 2 of 3 times", 3)
    ((_, _, text, _),) = reports(mine[:1], theirs[:1])
    assert text.endswith("both took the same branch each time")


def test_checksums_are_not_shown():
    ((_, _, text, _),) = reports([logged("tensor 1", kind="saved")], [logged("tensor 2", kind="saved")])
    assert text == "`x`: another tensor on rank 0 than on rank 1"


def test_texts_of_one_line_are_counted():
    found = reports(*[[line("one thing"), line("another"), line("a third")]] * 2)
    assert [text for _, _, text, _ in found] == ["'one thing' and 2 other texts, by ranks 0 and 1"]


def test_values_of_a_training_loop_are_listed_apart():
    step = {"e": "step", "at": "/job/a.py:2", "of": 1, "n": [0, 1], "sums": ["a"], "loops": ["/job/a.py:1"]}
    mine, theirs = ([step, logged(value, loops=["/job/a.py:1"])] for value in (1.0, 1.5))
    judgement = judge(ranks(mine, theirs))
    assert (judgement.reports, judgement.natural) == ([], ["/job/a.py:3"])


def test_values_that_ranks_save_to_files_of_their_own():
    def saves(path, value):
        return [{"e": "saved to", "at": "/job/a.py:3", "n": [0, 1], "path": path}, logged(value, kind="saved")]

    assert reports(saves("0.pt", 1.0), saves("1.pt", 1.5)) == []
    assert len(reports(saves("a.pt", 1.0), saves("a.pt", 1.5))) == 1


def test_collectives_that_one_rank_makes_alone():
    text = "call 2: rank 0 makes reduce at a.py:4, rank 1 makes barrier at a.py:9"
    mine = [collective("gather"), collective("reduce", "/job/a.py:4")]
    theirs = [collective("gather"), collective("barrier", "/job/a.py:9")]
    assert reports(mine, theirs) == [("collective calls differ", "/job/a.py:4", text, 1)]
    assert reports(mine, theirs[:1]) == [
        ("collective calls differ", "/job/a.py:4", "only rank 0 makes this call: reduce", 1)
    ]
    assert reports(mine, theirs[:1], ended=False) == []  # nobody knows what it would have done


def test_lines_beside_one_that_names_the_rank():
    mine, theirs = ([line("Process index:"), line(f"  {rank}")] for rank in range(2))
    assert reports(mine, theirs) == []
    assert len(reports(mine[:1], theirs[:1])) == 1


def test_files_are_of_those_who_have_opened_them():
    opened = {"e": "open", "at": "/job/a.py:3", "path": "/job/log"}
    other = {**opened, "at": "/job/b.py:7"}
    assert reports([opened], [opened], [other]) == [
        ("file written by several ranks", "/job/a.py:3", "/job/log, by ranks 0, 1 and 2 (also at b.py:7)", 1)
    ]
    assert reports([opened], [{**opened, "path": "/job/log1"}]) == []
