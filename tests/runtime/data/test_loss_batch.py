"""A loss counts by the rows of its own batch; where nothing tells which batch that is, an error does."""

from __future__ import annotations

import pytest


def test_on_two_processes(job):
    assert job("loss_batches.py", 2) == [True] * 2


@pytest.mark.slow
def test_on_three_processes(job):
    assert job("loss_batches.py", 3) == [True] * 3
