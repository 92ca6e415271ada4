"""Memory that processes of one machine read from one another."""

from __future__ import annotations

import os
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is Linux's")


@pytest.mark.parametrize(
    ("processes", "hidden"), [(2, "none"), (3, "none"), (3, "the last"), (2, "from the first")], ids=str
)
def test_large_tensors_arrive_whole(job, processes, hidden):
    assert job("shared.py", processes, hidden) == [True] * processes


DEATH = """
import os, torch
from torchlift.runtime import Accelerator
from torchlift.runtime.process import links, shared
accelerator = Accelerator()
big = torch.ones(4 << 20)
accelerator.gather(big)
assert links._Known.links._memory is not None
if accelerator.process_index == 1:
    laid = []
    lay = shared.Shared._lay
    shared.Shared._lay = lambda *arguments: laid.append(lay(*arguments)) or len(laid) < 3 or os._exit(7)
accelerator.gather(big)
"""


def test_nobody_waits_for_a_process_that_dies_between_two_pieces(job_text):
    names = sorted(os.listdir("/dev/shm"))
    (first, text), (second, _) = job_text(DEATH, 2, fails=True, seconds=60)
    assert second == 7
    assert first == 1, text
    assert "CollectiveError: the connection to rank 1 is closed" in text
    assert not [name for name in set(os.listdir("/dev/shm")) - {*names} if "torchlift" in name]


AGAIN = """
import torch
from torchlift.runtime import Accelerator, PartialState
from torchlift.runtime.process import links
for number in range(3):
    accelerator = Accelerator()
    for _ in range(3):
        whole = accelerator.gather(torch.full((1 << 17,), number + accelerator.process_index))
        assert whole[:: 1 << 17].tolist() == [number, number + 1]
    assert links._Known.links._memory is not None
    accelerator.end_training()
    assert links._Known.links is None
    PartialState._reset_state()
print("RESULT true")
"""


def test_a_new_group_opens_new_memory(job_text):
    assert job_text(AGAIN, 2) == [True, True]


PARTED = """
import torch
from torchlift.runtime import Accelerator, CollectiveMismatch
accelerator = Accelerator()
big = torch.ones(1 << 18)
for _ in range(2):
    accelerator.gather(big)
try:
    if accelerator.is_main_process:
        accelerator.gather(big)
    else:
        accelerator.reduce(big)
except CollectiveMismatch as error:
    assert "rank 0 is in gather of [262144]" in str(error) and "rank 1 is in reduce" in str(error), error
    print("RESULT true", flush=True)
    raise
"""


def test_processes_that_part_are_told_so(job_text):
    for status, text in job_text(PARTED, 2, fails=True, seconds=60):
        assert status == 1
        assert "RESULT true" in text, text
