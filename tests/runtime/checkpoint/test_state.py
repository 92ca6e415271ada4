"""Checkpoints of several processes: whole, verified, and loaded on another number of processes."""

from __future__ import annotations

import json
import shutil

import pytest

LAYOUT = [
    "custom_checkpoint_0.pkl",
    "model.safetensors",
    "optimizer.bin",
    "random_states_0.pkl",
    "random_states_1.pkl",
    "sampler.bin",
    "scheduler.bin",
]


def test_saved_on_two_processes_loaded_on_two_one_and_four(job, tmp_path):
    first, second = job("checkpoints.py", 2, "save", tmp_path)
    assert first == second
    assert first["next"] == 2, "counting goes on from the name of the folder that was loaded"
    folder = tmp_path / "checkpoints" / "checkpoint_1"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(manifest["files"]) == LAYOUT
    assert manifest["num_processes"] == 2
    assert sorted(p.name for p in folder.parent.iterdir()) == ["checkpoint_1", "checkpoint_2"]

    # damaged and empty ones are passed over when the newest is looked for
    (tmp_path / "checkpoints" / "checkpoint_2" / "optimizer.bin").write_bytes(b"cut off")
    (tmp_path / "checkpoints" / "checkpoint_7").mkdir()
    for processes in (1, 4):
        for result in job("checkpoints.py", processes, "load", tmp_path):
            for key in ("seen", "lr", "count", "plain", "next"):
                assert result[key] == first[key], f"{key} on {processes} processes"
            assert max(abs(a - b) for a, b in zip(result["weights"], first["weights"], strict=True)) < 1e-8
            assert len(set(result["noise"])) == processes, "every process has noise of its own"


def test_where_one_process_fails_all_raise_and_no_folder_appears(job, tmp_path):
    first, second = job("checkpoints.py", 2, "fails", tmp_path)
    assert first == "OSError: on purpose"
    assert second.startswith("CheckpointError: the checkpoint was not saved: process 0 could not write")


def test_a_hook_runs_on_every_process_and_takes_over_weights(job, tmp_path):
    for files in job("checkpoints.py", 2, "hooks", tmp_path):
        assert sorted({*LAYOUT, "own_0", "own_1"} - {"model.safetensors"}) == files
    shutil.rmtree(tmp_path / "hooked")


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_what_is_continued_is_what_would_have_been(job, tmp_path, processes):
    assert job("resume.py", processes, tmp_path) == [True] * processes


def test_a_kill_in_the_middle_of_a_save_costs_nothing_that_was_saved(job, tmp_path):
    """Before every single change of the file system, once; also while what was cut off is brought to its end."""
    assert job("killed_everywhere.py", 1, tmp_path) == [True]


@pytest.mark.slow
def test_sixty_kills_at_any_moment_of_a_save(job, tmp_path):
    assert job("killed.py", 1, tmp_path, 60, seconds=600) == [True]
