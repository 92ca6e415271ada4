"""Promise two: every sample is seen, and counted, once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

from torchlift.runtime import Accelerator
from torchlift.runtime.collectives.world import Imagined
from torchlift.runtime.data.samplers import KeptDistributedSampler
from torchlift.runtime.data_loader import prepare_data_loader


def test_loaders_on_two_processes(job):
    assert job("loaders.py", 2, 16) == [True, True]


def test_loaders_on_three_processes(job):
    assert job("loaders.py", 3, 48) == [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3, 4])
def test_loaders_with_every_case(job, processes):
    assert job("loaders.py", processes, 1, seconds=600) == [True] * processes


class Stream(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __iter__(self):
        return iter(range(self.rows))


@pytest.mark.parametrize(
    ("batch_size", "drop_last", "length"), [(4, False, 3), (4, True, 2), (1, False, 9), (1, True, 9), (None, False, 9)]
)
def test_a_stream_that_knows_its_rows_has_the_length_of_the_shard(batch_size, drop_last, length):
    """Of 17 rows, in rounds of two batches."""
    raw = DataLoader(Stream(17), batch_size, drop_last=drop_last)
    assert [len(prepare_data_loader(raw, num_processes=2, process_index=rank)) for rank in (0, 1)] == [length] * 2


@pytest.mark.parametrize("batch_size", [3, None])
def test_a_distributed_sampler_that_is_kept_tells_the_rows_of_every_process(batch_size):
    sampler = DistributedSampler(range(9), 2, 1, shuffle=False)
    source = sampler if batch_size is None else BatchSampler(sampler, batch_size, False)
    kept = KeptDistributedSampler(source, sampler, Imagined(1, 2, torch.device("cpu")), batch_size)
    assert list(kept) == list(source) and len(kept) == len(source)
    rows = [(shares.rows, shares.valid) for shares in kept.shares]
    if batch_size is None:
        assert rows == [((1, 1), (1, 1))] * 4 + [((1, 1), (1, 0))], "the tenth row is a duplicate"
    else:
        assert rows == [((3, 3), (3, 3)), ((2, 2), (2, 1))]


def test_a_prepared_loader_has_the_gradient_state_of_its_accelerator():
    accelerator = Accelerator(gradient_accumulation_steps=4)
    loader = accelerator.prepare(DataLoader(range(4)))
    assert loader.gradient_state is accelerator.gradient_state and loader.gradient_state.num_steps == 4


@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize(("rows", "steps"), [(3, 0), (7, 1), (8, 1), (15, 2)])
def test_a_script_that_drops_a_last_batch_keeps_its_others(rows, steps, dispatch):
    """Of 7 rows, the one batch of 4 was left out on two processes: nothing was trained."""
    raw = DataLoader(range(rows), 4, drop_last=True)
    parts = [
        prepare_data_loader(raw, num_processes=2, process_index=rank, dispatch_batches=dispatch) for rank in (0, 1)
    ]
    assert [len(part) for part in parts] == [steps] * 2
    if not dispatch:
        read = [[batch.tolist() for batch in part] for part in parts]
        assert {row for part in read for batch in part for row in batch} == set(range(rows // 4 * 4))
        assert all(len(part) == steps and all(len(batch) == 4 for batch in part) for part in read)


def test_workers_that_import_the_script_anew_do_not_join_the_job() -> None:
    """A spawned worker has the RANK of its process; it tried to meet the others under that, and died."""
    script = Path(__file__).parent.parent / "jobs" / "spawned_workers.py"
    command = [Path(sys.executable).parent / "torchlift", "launch", "--num-processes", "2", "--cpu", script]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHLIFT_", "ACCELERATE_", "MASTER_"))}
    ended = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("total 28 of 2") == 2
