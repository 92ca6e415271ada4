"""The end of the data is found by looking one batch ahead; no length is trusted."""

from __future__ import annotations

import pytest


def test_on_two_processes(job):
    assert job("lengths.py", 2) == [True] * 2


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 3])
def test_on_other_numbers_of_processes(job, processes):
    assert job("lengths.py", processes) == [True] * processes
