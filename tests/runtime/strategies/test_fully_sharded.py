"""Sharded weights: the training of one process, the files of the plain script, and nothing that is silently wrong."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("processes", "mesh", "claims"), [(2, "2", ""), (3, "3", ""), (4, "2x2", "few")])
def test_training_is_that_of_one_process(job, processes, mesh, claims):
    assert job("sharded.py", processes, mesh, *claims.split()) == [True] * processes


def test_files_are_those_of_the_plain_script(job, tmp_path):
    assert job("sharded_files.py", 2, tmp_path) == [True, True]


def test_what_torch_alone_does_wrong_without_a_word_is_right_here(job):
    for answers in job("sharded_traps.py", 2, "ours"):
        assert len(answers) > 18
        assert all(answers.values()), answers


def test_torch_alone_does_it_wrong(job):
    """Where this fails, torch has mended something, and there is less to do here."""
    for answers in job("sharded_traps.py", 2, "plain"):
        assert not any(answer is True for answer in answers.values()), answers
        assert not any(isinstance(answer, str) for answer in answers.values()), answers  # an error would be a word
