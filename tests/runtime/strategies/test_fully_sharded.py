"""Sharded weights: the training of one process, the files of the plain script, and nothing that is silently wrong."""

from __future__ import annotations

from shutil import which

import pytest
import torch
from torch import nn

from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin


@pytest.mark.parametrize(
    ("processes", "mesh", "claims"), [(2, "2", ""), (3, "3", ""), (4, "4", "few"), (4, "2x2", "few")]
)
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


def test_kinds_of_models_and_settings_and_what_cannot_be(job):
    assert job("sharded_kinds.py", 2) == [True, True]


@pytest.mark.slow
@pytest.mark.skipif(which("g++") is None, reason="inductor compiles C++")
def test_blocks_that_inductor_compiles(job, tmp_path):
    """It takes minutes."""
    place = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    assert job("sharded_kinds.py", 2, "compiled_blocks", COMPILE_WITH="inductor", seconds=900, **place) == [True, True]


def test_gradients_of_gradients(job):
    assert job("sharded_penalties.py", 2) == [True, True]


def test_trackers_printed_figures_and_the_pace(job, tmp_path):
    assert job("sharded_beside.py", 2, tmp_path) == [True, True]


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_example_in_the_shape_of_those_of_accelerate(job, tmp_path, replicas):
    assert job("sharded_example.py", 2 * replicas, tmp_path, replicas) == [True] * 2 * replicas


def test_one_process_says_that_sharding_changes_nothing(caplog, monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")
    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.backward(model(torch.ones(1, 2)).sum())
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert type(model.weight) is nn.Parameter
    assert list(accelerator.get_state_dict(model)) == ["weight", "bias"]
    assert "sharding its weights changes nothing" in caplog.text
