"""The arithmetic of sharing: every row is seen once, whatever the sizes are."""

from __future__ import annotations

import pytest

from torchlift.runtime.data.progress import Pass, Progress
from torchlift.runtime.data.remainder import Handed, real_rows
from torchlift.runtime.data.shares import RoundRules, bounds, count_rounds, rounds, split_one
from torchlift.runtime.errors import RemainderError


def batches_of(length, size, drop_last):
    cut = [list(range(i, min(i + size, length))) for i in range(0, length, size)]
    return [batch for batch in cut if len(batch) == size] if drop_last else cut


def rows_kept(progress, sizes, kind=None):
    (segments,) = real_rows(progress, [Handed(sizes, kind)])
    return segments


def gathered(steps, progress):
    """What gather_for_metrics keeps of the indices themselves, and each rank's batch sizes."""
    kept = []
    for parts, shares in steps:
        progress[0].advance(shares, False)
        progress[1].yielded(progress[0])
        for rank, start, end in rows_kept(progress[1], tuple(map(len, parts))):
            kept += parts[rank][start:end]
    return kept


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_row_once_and_in_order(size, drop_last):
    for length in range(1, 41):
        for batch in (1, 2, 3, 4, 7, 16, 50):
            script = batches_of(length, batch, drop_last)
            rows = [row for one in script for row in one]
            split = [split_one(one, size) for one in script]
            assert gathered(split, (Pass(None), Progress())) == rows
            for even in (True, False):
                rules = RoundRules(size=size, batch_size=batch, drop_last=drop_last, even=even)
                steps = list(rounds(script, rules))
                left_out = len(script) % size if drop_last and not even else 0
                whole = [row for one in script[: len(script) - left_out] for row in one]
                assert gathered(steps, (Pass(None), Progress())) == whole
                for rank in range(size):
                    seen = [parts[rank] for parts, _ in steps if parts[rank]]
                    assert len(seen) == count_rounds(len(script), rules, rank)
                    assert not even or all(len(one) == batch for one in seen)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_shares_differ_by_at_most_one_row_and_weights_restore_the_mean(size):
    for rows in range(1, 20):
        lengths = [end - start for start, end in bounds(rows, size)]
        assert max(lengths) - min(lengths) <= 1
        assert sum(lengths) == rows
        values = [float(3 * i + 1) for i in range(rows)]
        parts, shares = split_one(values, size)
        assert all(parts), "a rank without rows still gets one to compute a finite loss from"
        mean = sum(w * sum(part) / len(part) for w, part in zip(shares.weights, parts, strict=True)) / size
        assert mean == pytest.approx(sum(values) / rows, rel=1e-13)


def test_even_batches_loop_back_to_the_start_as_documented():
    rules = RoundRules(size=2, batch_size=2, drop_last=False, even=True)
    assert [parts for parts, _ in rounds(batches_of(9, 2, False), rules)] == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
        [[8, 0], [1, 2]],
    ]
    rules = RoundRules(size=2, batch_size=4, drop_last=False, even=True)
    assert [parts for parts, _ in rounds([[0]], rules)] == [[[0, 0, 0, 0], [0, 0, 0, 0]]]


def test_batches_without_a_fixed_size_go_round_and_count_alike():
    rules = RoundRules(size=2, batch_size=None, drop_last=False, even=True)
    steps = list(rounds([[0], [1, 2, 3], [4, 5]], rules))
    assert [parts for parts, _ in steps] == [[[0], [1, 2, 3]], [[4, 5], [4, 5]]]
    assert steps[0][1].weights == (1.0, 1.0)
    assert steps[1][1].valid == (2, 0)
    assert steps[1][1].weights == (2.0, 0.0)


def test_a_short_batch_in_the_middle_does_not_hold_the_rest_back():
    rules = RoundRules(size=2, batch_size=2, drop_last=False, even=True)
    seen = [parts for parts, _ in rounds([[0, 1], [2], [3, 4], [5, 6], [7, 8]], rules)]
    assert seen[:2] == [[[0, 1], [2]], [[3, 4], [5, 6]]]
    assert seen[2][0] == [7, 8]


def progress_at(steps):
    progress, one = Progress(), Pass(len(steps))
    for _, shares in steps:
        one.advance(shares, False)
        progress.yielded(one)
    return progress, one


def test_collected_rows_are_put_back_in_the_order_of_the_loader():
    steps = [split_one(batch, 2) for batch in batches_of(7, 3, False)]
    progress, _one = progress_at(steps)
    held = [[row for parts, _ in steps for row in parts[rank]] for rank in range(2)]
    kept = rows_kept(progress, tuple(map(len, held)))
    assert [row for rank, a, b in kept for row in held[rank][a:b]] == list(range(7))


def test_several_values_per_row_are_cut_in_proportion():
    rules = RoundRules(size=2, batch_size=2, drop_last=False, even=True)
    progress, _one = progress_at(list(rounds(batches_of(5, 2, False), rules)))
    assert rows_kept(progress, (2, 2)) == [(0, 0, 1), (1, 0, 0)]
    assert rows_kept(progress, (6, 6)) == [(0, 0, 3), (1, 0, 0)]


def test_rows_that_fit_nothing_are_refused_only_where_duplicates_exist():
    rules = RoundRules(size=2, batch_size=2, drop_last=False, even=True)
    script = batches_of(5, 2, False)
    progress, _one = progress_at(list(rounds(script, rules)))
    with pytest.raises(RemainderError, match=r"one row per row of the batch"):
        rows_kept(progress, (7, 5))
    clean, _two = progress_at(list(rounds(script[:2], rules)))
    assert rows_kept(clean, (7, 5)) == [(0, 0, 7), (1, 0, 5)]


def test_a_pass_that_was_left_is_remembered_until_another_one_begins():
    progress, one = Progress(), Pass(1, alive := lambda: None)
    one.advance(split_one([0], 2)[1], False)
    progress.yielded(one)
    assert alive() is None
    assert progress.innermost() is None, "its loop is over"
    assert progress.in_hand() is None, "a value that is reduced now is not of its batch"
    assert rows_kept(progress, (1, 1)) == [(0, 0, 1), (1, 0, 0)]
    assert progress.left() == [one]
