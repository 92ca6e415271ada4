"""Promise of the model engine: the object stays, gradients are those of all processes."""

from __future__ import annotations


def test_models_on_two_processes(job):
    assert job("models.py", 2) == [True, True]


def test_models_on_three_processes(job):
    assert job("models.py", 3) == [True] * 3


def test_models_whose_gradients_go_through_the_reducer(job):
    assert job("models.py", 2, "reducer") == [True, True]
