"""What processes exchange arrives whole; who dies, is late, forked or interrupted does not confuse the others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from torchlift.runtime.process import peers
from torchlift.runtime.process.call_log import Ring, parted


@pytest.mark.parametrize("processes", [2, 3])
def test_whatever_is_exchanged_is_what_all_have_handed_in(job, processes):
    assert job("exchanges.py", processes) == [True] * processes


GONE = """
import os, sys, time, torch
from torchlift.runtime import Accelerator
accelerator = Accelerator()
big = torch.ones(int(sys.argv[1]))
accelerator.gather(big)
time.sleep(1)
if accelerator.process_index == 1:
    if sys.argv[2] == "forked" and os.fork() == 0:  # a worker of its loader, for one
        time.sleep(60)
    os._exit(7)
accelerator.gather(big)
"""


@pytest.mark.parametrize("how", ["alone", "forked"])
@pytest.mark.parametrize("length", [1, 4 << 20])
def test_a_process_that_dies_is_named_though_what_it_has_forked_lives(job_text, length, how):
    (first, text), (second, _) = job_text(GONE, 2, length, how, fails=True, seconds=50)
    assert (first, second) == (1, 7), text
    assert "CollectiveError: rank 1 has ended, or left the job, while rank 0 waits for it in a collective call" in text


def test_a_process_is_known_to_have_ended_by_its_own_machine_alone():
    machine, number, started = peers.here()
    if not machine:
        pytest.skip("only Linux tells")
    assert not peers.ended((machine, number, started))
    assert peers.ended((machine, number, started + "0")), "another one with the same number"
    assert not peers.ended(("elsewhere", number, started + "0"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        home = (machine, other.pid, peers.started_at(other.pid))
        assert home[2] and not peers.ended(home)
        other.stdin.close()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert peers.ended(home), "also before somebody has asked for its status"


FORKED = """
import os, torch
from torchlift.runtime import Accelerator, CollectiveError
accelerator = Accelerator()
child = os.fork()
if child == 0:
    try:
        accelerator = Accelerator() if accelerator.is_main_process else accelerator
        accelerator.gather(torch.ones(1))
    except CollectiveError as error:
        os._exit(3 if "this process is a fork of a rank" in str(error) else 4)
    os._exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert accelerator.gather(torch.ones(1)).tolist() == [1.0, 1.0]
print("RESULT true")
"""


def test_a_fork_of_a_process_cannot_speak_for_it(job_text):
    assert job_text(FORKED, 2, seconds=60) == [True, True]


LATE = """
import time, torch
from datetime import timedelta
from torchlift.runtime import Accelerator, InitProcessGroupKwargs
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=3))])
accelerator.gather(torch.ones(1))
if accelerator.process_index == 1:
    time.sleep(20)
accelerator.gather(torch.ones(1))
"""


@pytest.mark.slow
def test_the_timeout_of_the_group_ends_a_wait(job_text):
    (status, text), (_, late) = job_text(LATE, 2, fails=True, seconds=100)
    assert status == 1
    assert "CollectiveError: rank 0 has waited 3 s for rank 1, the timeout of the process group" in text
    assert "CollectiveError: " in late, "who comes then hears of it, too"


AGAIN = """
import torch
from torchlift.runtime import Accelerator, PartialState
for number in range(3):
    accelerator = Accelerator()
    for _ in range(3):
        whole = accelerator.gather(torch.full((1 << 17,), number + accelerator.process_index))
        assert whole[:: 1 << 17].tolist() == [number, number + 1]
    accelerator.end_training()
    PartialState._reset_state()
print("RESULT true")
"""


def test_a_new_group_exchanges_as_the_one_before(job_text):
    assert job_text(AGAIN, 2) == [True, True]


PARTED = """
import sys, torch
from torchlift.runtime import Accelerator, CollectiveMismatch
from torchlift.runtime.collectives.gather import broadcast_tensors
way = sys.argv[1]
accelerator = Accelerator()
accelerator.gather(torch.ones(1))
rank = accelerator.process_index
big = torch.ones(1 << 18)
nets = [accelerator.prepare(torch.nn.Linear(2, width)) for width in (2, 9_000)]


def backward(net):
    accelerator.backward(net(torch.ones(1, 2)).sum())


def broadcast(length):
    broadcast_tensors(accelerator._world, [torch.ones(length)])


WAYS = {
    "gather and backward": [lambda: accelerator.gather(torch.ones(3)), lambda: backward(nets[0])],
    "gather and reduce": [lambda: accelerator.gather(big), lambda: accelerator.reduce(big)],
    "two models": [lambda: backward(nets[0]), lambda: backward(nets[1])],
    "two lengths": [lambda: broadcast(2), lambda: broadcast(90_000)],
}
try:
    WAYS[way][rank]()
    accelerator.wait_for_everyone()
except CollectiveMismatch as error:
    assert "rank 0 is in " in str(error) and "rank 1 is in " in str(error), error
    print("RESULT true", flush=True)
    raise
"""


@pytest.mark.parametrize("way", ["gather and backward", "gather and reduce", "two models", "two lengths"])
def test_messages_of_other_lengths_are_not_taken_for_ones_own(job_text, way):
    for status, text in job_text(PARTED, 2, way, fails=True, seconds=60):
        assert status == 1
        assert "RESULT true" in text, text


INTERRUPTED = """
import signal, sys, time
import torch
from torchlift.runtime import Accelerator
from torchlift.runtime.utils import broadcast_object_list
accelerator = Accelerator()
rank = accelerator.process_index
accelerator.gather(torch.ones(1))
both = sys.argv[2] == "both"
signal.signal(signal.SIGALRM, signal.default_int_handler)
if sys.argv[1] == "small":
    exchange = lambda: accelerator.gather(torch.full((5 + rank,), -1))
else:
    exchange = lambda: broadcast_object_list(["x" * 200_000], from_process=1)
try:
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    else:
        time.sleep(1.5)
        if both:
            raise KeyboardInterrupt
    exchange()
    assert rank == 1
except KeyboardInterrupt:
    assert rank == 0 or both
for _ in range(3):
    assert accelerator.gather(torch.tensor([rank])).tolist() == [0, 1]
print("RESULT true")
"""


def test_a_script_that_is_interrupted_in_an_exchange_may_go_on(job_text):
    assert job_text(INTERRUPTED, 2, "small", "one") == [True, True]


def test_an_exchange_that_the_others_have_never_begun_is_named(job_text):
    for status, text in job_text(INTERRUPTED, 2, "large", "both", fails=True, seconds=60):
        assert status == 1
        assert "CollectiveMismatch" in text, text


def test_an_exchange_that_is_left_between_two_messages_is_named(job_text):
    for status, text in job_text(INTERRUPTED, 2, "large", "one", fails=True, seconds=60):
        assert status == 1
        assert "rank 0 is in broadcast_object_list from 1, which was interrupted at " in text, text


def test_all_may_leave_the_same_collective():
    rings = [Ring(), Ring(), Ring()]
    for ring in rings:
        ring.note("gather")
    for ring in rings[:2]:
        ring.leave()
    one, other, finished = ([entry.told() for entry in ring.tail(1)] for ring in rings)
    assert parted(rings[0].tail(1), other) is None is parted(rings[1].tail(1), one)
    assert parted(rings[0].tail(1), finished) is not None


HANDLED = """
import signal, time, torch
from torchlift.runtime import Accelerator, CollectiveError
accelerator = Accelerator()
rank = accelerator.process_index
seen = []


def alarm(*_):
    try:
        accelerator.gather(torch.ones(1))
    except CollectiveError as error:
        seen.append(str(error))


signal.signal(signal.SIGALRM, alarm)
accelerator.gather(torch.ones(1))
if rank == 0:
    signal.setitimer(signal.ITIMER_REAL, 0.3)
else:
    time.sleep(1.5)
for _ in range(3):
    assert accelerator.gather(torch.tensor([rank])).tolist() == [0, 1]
assert rank or "already in a collective call. A signal handler should only call" in seen[0], seen
print("RESULT true")
"""


def test_a_handler_of_a_signal_may_not_exchange_in_the_middle_of_an_exchange(job_text):
    assert job_text(HANDLED, 2) == [True, True]


MODES = """
import sys, torch
from torch import nn
from torchlift.runtime import Accelerator
accelerator = Accelerator(cpu=True)
wide = int(sys.argv[1])
model = nn.Sequential(nn.Linear(4, wide), nn.BatchNorm1d(wide), nn.Linear(wide, 1))
model = accelerator.prepare(model)
model.train(accelerator.process_index == 0)
for _ in range(3):
    accelerator.backward(model(torch.randn(8, 4)).mean())
"""


@pytest.mark.parametrize("wide", [8, 30000])
def test_buffers_of_a_model_that_only_one_process_trains_are_not_taken_for_gradients(job_text, wide):
    """Rank 0 waits for nobody when it sends them: the watch has to find that the other one does not read them."""
    for code, text in job_text(MODES, 2, wide, fails=True, seconds=50):
        assert code and "CollectiveMismatch: collective mismatch at call" in text, text
        assert "is in backward of model 1 at" in text
