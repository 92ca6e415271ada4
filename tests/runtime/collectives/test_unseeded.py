"""Scripts that seed nothing: all processes draw what rank 0 draws, but for the noise behind `prepare`."""

from __future__ import annotations


def test_what_is_left_to_chance_is_rank_0s(job):
    assert job("unseeded.py", 2) == [True, True]
