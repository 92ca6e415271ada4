"""Promise three: nothing hangs. Processes that part are told so, those that are slow are not."""

from __future__ import annotations

import re

import pytest

from torchlift.runtime import CollectiveError
from torchlift.runtime.config.environment import read_environment
from torchlift.runtime.config.places import first_host
from torchlift.runtime.process import watched_calls
from torchlift.runtime.process.call_log import Ring, parted
from torchlift.runtime.process.topology import topology


def noted(*kinds):
    ring = Ring()
    for kind in kinds:
        ring.note(kind)
    return ring.tail(100)


def told(*kinds):
    return [entry.told() for entry in noted(*kinds)]


def test_the_first_difference_is_named_and_slowness_is_none():
    assert parted(noted("a", "b", "c"), told("a", "b", "c")) is None
    assert parted(noted("a", "b", "c"), told("a")) is None
    assert parted(noted("a"), told("a", "b", "c")) is None
    assert parted(noted(), told("a")) is None
    mine, theirs = parted(noted("a", "b", "c", "d"), told("a", "x", "c"))
    assert (mine[0], mine[2], theirs[2]) == (2, "b", "x")
    assert mine[3].startswith(__file__)


def test_a_ring_keeps_the_latest():
    ring = Ring(length=3)
    for number in range(5):
        ring.note("gather", "float32", ((number,),))
    assert [entry.number for entry in ring.tail(10)] == [3, 4, 5]
    assert ring.tail(1)[0].describe() == "gather of [4]"


class Late:
    """A collective that is completed between the end of a wait and the question whether it is."""

    def __init__(self, ends):
        self.waits, self.ends = 0, ends

    def wait(self, *_):
        self.waits += 1
        if self.waits < 3 or self.ends == "badly":
            raise RuntimeError("Operation timed out!")

    def is_completed(self):
        return self.waits > 1

    def is_success(self):
        return self.ends == "well"


def test_a_wait_that_ends_with_its_collective_is_no_error(monkeypatch):
    watching = watched_calls.Watch(None, 0, 2)
    monkeypatch.setattr(watched_calls._Here, "watch", watching)
    monkeypatch.setattr(watching, "hear", lambda: None)
    monkeypatch.setattr(watching, "late", lambda _: CollectiveError("nobody came"))
    watched_calls.finish(Late("well"))
    with pytest.raises(CollectiveError, match="nobody came"):
        watched_calls.finish(Late("badly"))


QUIET = {"one_process_ends_the_script"}
"""Here the second process has ended, and hears nothing."""


@pytest.mark.parametrize("way", ["at the end", pytest.param("reducer", marks=pytest.mark.slow)])
def test_every_bug_is_named_within_seconds(job, way):
    ((seen),) = job("divergence.py", 1, way)
    assert len(seen) == 17
    for bug, processes in seen.items():
        for rank, (_, text) in enumerate(processes):
            seconds = float(re.search(r"took (\S+)", text).group(1)) if "took" in text else 0.0
            assert seconds < 50, (bug, text)  # five on a quiet machine; gloo's own timeout is half an hour
            if bug in QUIET and rank == 1:
                continue
            assert re.search(r"CollectiveMismatch: collective mismatch at call \d+", text), (
                bug,
                text,
            )
            found = re.search(
                r"rank 0 is in (.+ at \S+divergence.py:\d+), rank 1 is in (.+ at \S+divergence.py:\d+)", text
            )
            assert found, (bug, text)
            assert found[1] != found[2], (bug, "what differs is said")


STRAGGLER = """
import sys, time, torch
from torchlift.runtime import Accelerator
accelerator = Accelerator()
net = accelerator.prepare(torch.nn.Linear(2, 2))
for step in range(3):
    if accelerator.process_index == step % 2:
        time.sleep(float(sys.argv[1]))
    accelerator.backward(net(torch.ones(1, 2)).sum())
    accelerator.gather(torch.ones(1 + accelerator.process_index))
if accelerator.is_main_process:
    time.sleep(float(sys.argv[1]))
print("RESULT true")
"""


def test_a_slow_process_disturbs_nobody(job_text):
    assert job_text(STRAGGLER, 2, 1) == [True, True]


@pytest.mark.slow
def test_a_process_that_is_late_by_a_minute_disturbs_nobody(job_text):
    assert job_text(STRAGGLER.replace("range(3)", "range(1)"), 2, 60, seconds=300) == [True, True]


LAST = """
import torch
from torchlift.runtime import Accelerator, CollectiveMismatch
accelerator = Accelerator()
accelerator.gather(torch.ones(1))
try:
    if accelerator.is_main_process:
        torch.distributed.barrier()
        from torchlift.runtime.process import watched_calls
        watched_calls.note("reduce")
    else:
        accelerator.wait_for_everyone()
    accelerator.end_training()
except CollectiveMismatch as error:
    assert "rank 1 is in wait_for_everyone" in str(error), error
    print("RESULT true")
"""


def test_collectives_that_went_past_one_another_are_named_at_the_end(job_text):
    assert job_text(LAST, 2) == [True, True]


# ---------------------------------------------------------------- who says which process this is

MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_JOB_NODELIST": "gpu[003-004]",
    "SLURM_JOB_ID": "70012",
}


@pytest.mark.parametrize(
    ("variables", "place", "meet"),
    [
        (MPI, (3, 4, 3, 4), "tcp://127.0.0.1:29500"),
        ({**MPI, "MASTER_ADDR": "head", "MASTER_PORT": "7"}, (3, 4, 3, 4), "tcp://head:7"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MASTER_ADDR": "head"}, (1, 2, 1, 2), "tcp://head:29500"),
        (SLURM, (5, 8, 1, 4), "tcp://gpu003:29512"),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, (0, 1, 0, 1), "env://"),
        ({**SLURM, "WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, (1, 2, 1, 2), "env://"),
    ],
    ids=["MPI", "MPI with an address", "PMI", "SLURM", "a batch script is one process", "torchrun comes first"],
)
def test_the_place_of_a_process(variables, place, meet):
    found = topology(read_environment(variables))
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == place
    assert found.meet == meet


@pytest.mark.parametrize(
    ("nodes", "host"),
    [("a1,a2", "a1"), ("n[07-09,12]", "n07"), ("n[3,5].cluster", "n3.cluster"), ("login", "login"), ("", None)],
)
def test_the_first_machine_of_a_list(nodes, host):
    assert first_host(nodes) == host
