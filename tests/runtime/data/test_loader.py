"""Promise two: every sample is seen, and counted, once."""

from __future__ import annotations

import pytest


def test_loaders_on_two_processes(job):
    assert job("loaders.py", 2, 16) == [True, True]


def test_loaders_on_three_processes(job):
    assert job("loaders.py", 3, 48) == [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3, 4])
def test_loaders_with_every_case(job, processes):
    assert job("loaders.py", processes, 1, seconds=600) == [True] * processes
