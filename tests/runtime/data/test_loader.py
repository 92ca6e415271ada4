"""Promise two: every sample is seen, and counted, once."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
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
    ("batch_size", "drop_last", "length"), [(4, False, 3), (4, True, 2), (1, False, 9), (1, True, 8), (None, False, 9)]
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


def _passes(rows, drop_last, skipped=0):
    """What rank 0 of two says about a pass over so many rows in batches of 4, and how many batches it gets."""
    loader = prepare_data_loader(DataLoader(range(rows), 4, drop_last=drop_last), num_processes=2, process_index=0)
    if skipped:
        loader = Accelerator().skip_first_batches(loader, skipped)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        count = len(list(loader))
    return count, [(str(one.message), one.filename) for one in said]


def test_a_pass_that_drop_last_leaves_empty_says_so():
    count, said = _passes(7, drop_last=True)
    assert count == 0 and len(said) == 1
    assert "over 7 rows has 1 batch of 4 for 2 processes" in said[0][0] and said[0][1] == __file__


@pytest.mark.parametrize(("rows", "drop_last", "skipped"), [(7, False, 0), (8, True, 0), (3, True, 0), (8, True, 1)])
def test_other_passes_say_nothing_of_that(rows, drop_last, skipped):
    """Batches for all, a data set that one process would find empty too, and the rest of a pass that goes on."""
    assert not _passes(rows, drop_last, skipped)[1]


def test_workers_that_import_the_script_anew_do_not_join_the_job() -> None:
    """A spawned worker has the RANK of its process; it tried to meet the others under that, and died."""
    script = Path(__file__).parent.parent / "jobs" / "spawned_workers.py"
    command = [Path(sys.executable).parent / "torchlift", "launch", "--num-processes", "2", "--cpu", script]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHLIFT_", "ACCELERATE_", "MASTER_"))}
    ended = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("total 28 of 2") == 2
