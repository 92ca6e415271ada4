"""Sharded weights: the training of one process, the files of the plain script, and nothing that is silently wrong."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("processes", "mesh", "claims"), [(2, "2", ""), (3, "3", ""), (4, "2x2", "few")])
def test_training_is_that_of_one_process(job, processes, mesh, claims):
    assert job("sharded.py", processes, mesh, *claims.split()) == [True] * processes


def test_files_are_those_of_the_plain_script(job, tmp_path):
    assert job("sharded_files.py", 2, tmp_path) == [True, True]
