"""Promise of the model engine: the object stays, gradients are those of all processes, whichever way they go."""

from __future__ import annotations

import pytest

WAYS = ["inf", "-1"]
"""Up to how many bytes a model is exchanged after a backward pass: any; none."""


@pytest.mark.parametrize("small", WAYS)
def test_models_on_two_processes(job, small):
    assert job("models.py", 2, small) == [True, True]


@pytest.mark.parametrize("small", WAYS)
def test_models_on_three_processes(job, small):
    assert job("models.py", 3, small) == [True] * 3


@pytest.mark.parametrize("small", WAYS)
def test_errors_and_rare_cases_on_two_processes(job, small):
    assert job("engine.py", 2, small) == [True, True]
