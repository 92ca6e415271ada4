"""gather_for_metrics: any tree, the real rows of it, at a cost that does not grow."""

from __future__ import annotations

import gc
import sys

import pytest

from torchlift.runtime.data.progress import Pass, Progress
from torchlift.runtime.data.remainder import Handed, real_rows
from torchlift.runtime.data.shares import split_one


def test_on_two_processes(job):
    assert job("metrics.py", 2) == [True] * 2


@pytest.mark.slow
def test_on_three_processes(job):
    assert job("metrics.py", 3) == [True] * 3


def steps_of(call):
    """How many lines of Python a call runs; not those of a collection of garbage that happens to fall into it."""
    count = 0

    def trace(_frame, _event, _argument):
        nonlocal count
        count += 1
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


def test_a_call_after_many_batches_costs_what_the_first_one_did():
    progress, one = Progress(), Pass(None)
    ragged = [split_one(list(range(rows)), 2)[1] for rows in (7, 8, 7, 5)]

    def step():
        shares = ragged[one.position % 4]
        one.advance(shares, None)
        progress.yielded(one)
        for times in (1, 3):
            real_rows(progress, [Handed(tuple(times * rows for rows in shares.rows), times)])

    costs = {}
    for number in range(1, 20_001):
        if number in (10, 100, 20_000):
            costs[number] = steps_of(step)
        else:
            step()
    assert costs[20_000] <= costs[100] == costs[10], costs


def test_several_values_a_row_are_told_from_collected_rows_by_what_was_gathered_before():
    shares = split_one(list(range(4)), 2)[1]
    for before, wanted in ((2, [(0, 0, 4), (1, 0, 4)]), (1, [(0, 0, 2), (1, 0, 2), (0, 2, 4), (1, 2, 4)])):
        progress, one = Progress(), Pass(None)
        for number in range(2):
            one.advance(shares, None)
            progress.yielded(one)
            if not number:
                real_rows(progress, [Handed((2 * before,) * 2, "views")])
        assert real_rows(progress, [Handed((4, 4), "views")]) == [wanted]
        assert real_rows(progress, [Handed((4, 4), "views"), Handed((2, 2), "targets")])[0] == [(0, 0, 4), (1, 0, 4)]
    progress.finished(one)
    assert len(real_rows(progress, [Handed((8, 8), "views")])[0]) == 4, "after the loop: two values of collected rows"
