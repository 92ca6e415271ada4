"""Loaders in all their ways of reading, uneven inputs, and the options of models, on several processes."""

from __future__ import annotations

import pytest

DATA = (
    "rank_0_reads_for_all",
    "rank_0_reads_batches_of_any_length",
    "rank_0_reads_batches_of_any_kind",
    "orders_follow_from_a_seed_and_the_epoch",
    "skipping_keeps_what_is_known_about_a_loader",
    "loaders_that_are_read_in_turn_are_told_apart",
    "rounds_may_be_left_open",
    "random_numbers_are_made_equal_when_asked",
)
MODELS = (
    "uneven_inputs_are_joined",
    "options_of_the_exchange",
    "buffers_stay_when_asked",
    "methods_run_in_mixed_precision_too",
    "syncing_may_be_asked_for_inside_of_no_sync",
)


def test_on_two_processes(job):
    assert job("reading.py", 2, *DATA, *MODELS) == [True] * 2


@pytest.mark.slow
def test_on_three_processes(job):
    assert job("reading.py", 3, *DATA, *MODELS, "models_are_compiled_in_place", seconds=300) == [True] * 3


def test_random_loaders(job):
    assert job("fuzz.py", 2, 0, 60) == [True] * 2


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_many_random_loaders(job, processes, seed):
    assert job("fuzz.py", processes, seed, 300, seconds=600) == [True] * processes
