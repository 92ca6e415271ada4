"""Batches that a script makes without a loader, cut into the rows of the processes."""

from __future__ import annotations

import torch

from torchlift.runtime import Accelerator


def test_on_two_processes(job):
    assert job("hand_batches.py", 2) == [True] * 2


def test_on_three_processes(job):
    assert job("hand_batches.py", 3) == [True] * 3


def test_on_one_process_the_batch_itself_comes_back():
    batch = {"x": torch.arange(4), "name": "train"}
    assert Accelerator(cpu=True).shard_batch(batch) is batch
