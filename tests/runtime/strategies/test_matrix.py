"""
The matrix: shapes of models, two ways to exchange, two ways to call backward, three precisions, 2 and 3 processes.

One job for each number of processes trains all cells of it: what takes long is to start.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).parents[1] / "jobs"
SPEC = importlib.util.spec_from_file_location("cells", JOBS / "cells.py")
cells = importlib.util.module_from_spec(SPEC)
sys.modules.setdefault("cells", cells)
SPEC.loader.exec_module(cells)


def check(job, chosen, processes):
    for count, wrong in job("matrix.py", processes, chosen, seconds=900):
        assert count > 50
        assert wrong == {}


@pytest.mark.parametrize("processes", [2, 3])
def test_a_part_of_the_matrix_in_which_every_pair_of_values_occurs(job, processes):
    check(job, "pairwise", processes)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_the_whole_matrix(job, processes):
    check(job, "whole", processes)


@pytest.mark.parametrize("lengths", [(2, 2), (7, 3, 2, 2), (1, 4, 3), (54, 3, 2, 2, 2)])
def test_every_pair_of_values_occurs_in_few_cells(lengths):
    factors = {f"factor {n}": [f"{n} {value}" for value in range(length)] for n, length in enumerate(lengths)}
    found = {frozenset(pair) for cell in cells.pairwise(factors) for pair in cells.pairs_of(cell)}
    for (one, left), (two, right) in itertools.combinations(factors.items(), 2):
        assert {frozenset([(one, a), (two, b)]) for a in left for b in right} <= found
    largest = sorted(lengths)[-2:]
    assert len(cells.pairwise(factors)) <= 1.4 * largest[0] * largest[1]
    assert len(cells.whole(factors)) >= len(cells.pairwise(factors))
