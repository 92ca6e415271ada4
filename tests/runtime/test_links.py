"""Sockets between the processes of one machine: what they carry is what a back end would, and nobody waits in vain."""

from __future__ import annotations

import errno
import sys

import pytest

from torchlift.runtime.process import links

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names without files are Linux's")

MANY = """
import json, random, sys, time
import torch
from torchlift.runtime import Accelerator, utils
from torchlift.runtime.process import links
hidden = sys.argv[1]
accelerator = Accelerator()
rank, size = accelerator.process_index, accelerator.num_processes
numbers, own = random.Random(0), random.Random(rank)
if hidden == "one":
    connect = links._connect
    links._connect = lambda told, mine: None if mine == size - 1 else connect(told, mine)
    links.close()
accelerator.gather(torch.ones(1))
assert (links._Known.links is None) == (hidden == "one")
for _ in range(60):
    time.sleep(0.003 * own.choice([0, 0, 0, 1]))
    length = numbers.choice([0, 1, 7, 1000, 16_380, 16_384, 16_385, 40_000])
    dtype = numbers.choice([torch.float32, torch.float64, torch.int64, torch.uint8, torch.bfloat16, torch.complex64])
    rows = [(torch.arange(length) % 7 + of).to(dtype) for of in range(size)]
    way = numbers.choice(["gather", "reduce", "broadcast", "objects", "pad", "max", "meet"])
    if way == "gather":
        assert torch.equal(accelerator.gather(rows[rank]), torch.cat(rows))
    elif way == "reduce":
        assert torch.equal(accelerator.reduce(rows[rank], "sum"), sum(rows[1:], rows[0]))
    elif way == "max" and dtype is not torch.complex64:
        assert torch.equal(accelerator.reduce(rows[rank], "max"), rows[-1])
        assert torch.equal(accelerator.reduce(rows[rank], "min"), rows[0])
    elif way == "broadcast":
        source = numbers.randrange(size)
        assert torch.equal(utils.broadcast(rows[rank], source), rows[source])
    elif way == "objects":
        assert utils.gather_object(["x" * length, rank])[::2] == ["x" * length] * size
        assert utils.broadcast_object_list([rank, "y" * length], size - 1) == [size - 1, "y" * length]
    elif way == "pad":
        assert accelerator.pad_across_processes(torch.ones(3 + rank)).shape == (2 + size,)
    else:
        accelerator.wait_for_everyone()
values = torch.rand(1000, generator=torch.Generator().manual_seed(rank)) * 1e6
total = accelerator.reduce(values)
assert torch.equal(accelerator.gather(total).view(size, -1), total.expand(size, -1)), "the same bits everywhere"
nan = accelerator.reduce(torch.tensor([float("nan") if rank else 1.0]), "max")
assert nan.isnan().all()
print("RESULT true")
"""


@pytest.mark.parametrize(("processes", "hidden"), [(2, "none"), (3, "none"), (3, "one")], ids=str)
def test_whatever_is_exchanged_is_what_all_have_handed_in(job_text, processes, hidden):
    assert job_text(MANY, processes, hidden) == [True] * processes


STRANGER = """
import socket, threading
import torch
from torchlift.runtime import Accelerator
from torchlift.runtime.process import links
accelerator = Accelerator()
links.close()
listen, strangers = links._listen, []


def visited(name):
    listener = listen(name)
    for words in (b"", b"short", b"x" * links._HELLO.size):
        stranger = socket.socket(socket.AF_UNIX)
        stranger.connect(links._address(name))
        stranger.sendall(words)
        strangers.append(stranger)
    return listener


links._listen = visited
got = accelerator.gather(torch.tensor([accelerator.process_index]))
assert links._Known.links is not None and got.tolist() == [0, 1]
assert accelerator.process_index or all(stranger.recv(1) == b"" for stranger in strangers[2:]), "sent away"
print("RESULT true")
"""


def test_somebody_else_who_connects_is_sent_away(job_text):
    assert job_text(STRANGER, 2) == [True, True]


GONE = """
import os, time, torch
from torchlift.runtime import Accelerator
accelerator = Accelerator()
accelerator.gather(torch.ones(1))
if accelerator.process_index == 1:
    if os.fork() == 0:  # a worker of its loader, for one
        time.sleep(60)
    os._exit(7)
accelerator.gather(torch.ones(1))
"""


def test_a_process_that_dies_is_named_though_what_it_has_forked_lives(job_text):
    (first, text), (second, _) = job_text(GONE, 2, fails=True, seconds=30)
    assert (first, second) == (1, 7)
    assert "CollectiveError: the connection to rank 1 is closed" in text


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
        os._exit(3 if "this is a fork of a process of the job" in str(error) else 4)
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
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=2))])
accelerator.gather(torch.ones(1))
if accelerator.process_index == 1:
    time.sleep(30)
accelerator.gather(torch.ones(1))
"""


def test_the_timeout_of_the_group_ends_a_wait(job_text):
    (status, text), _ = job_text(LATE, 2, fails=True, seconds=20)
    assert status == 1
    assert "rank 0 has waited 2 s for rank 1, the timeout of the process group" in text


PARTED = """
import torch
from torchlift.runtime import Accelerator, CollectiveMismatch
accelerator = Accelerator()
accelerator.gather(torch.ones(1))
net = accelerator.prepare(torch.nn.Linear(2, 2))
try:
    if accelerator.is_main_process:
        accelerator.gather(torch.ones(3))
    else:
        accelerator.backward(net(torch.ones(1, 2)).sum())
except CollectiveMismatch as error:
    assert "rank 0 is in gather of [3]" in str(error) and "rank 1 is in backward" in str(error), error
    print("RESULT true", flush=True)
    raise
"""


def test_messages_of_other_lengths_are_not_taken_for_ones_own(job_text):
    for status, text in job_text(PARTED, 2, fails=True, seconds=60):
        assert status == 1
        assert "RESULT true" in text, text


INTERRUPTED = """
import signal, time, torch
from torchlift.runtime import Accelerator
accelerator = Accelerator()
rank = accelerator.process_index
accelerator.gather(torch.ones(1))
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    else:
        time.sleep(1)
    accelerator.gather(torch.full((5 + rank,), -1))
    assert rank == 1
except KeyboardInterrupt:
    assert rank == 0
for _ in range(3):
    assert accelerator.gather(torch.tensor([rank])).tolist() == [0, 1]
print("RESULT true")
"""


def test_a_script_that_is_interrupted_in_an_exchange_may_go_on(job_text):
    assert job_text(INTERRUPTED, 2) == [True, True]


CUT_SHORT = """
import signal, sys, time
import torch
from torchlift.runtime import Accelerator, CollectiveError
from torchlift.runtime.process import links
from torchlift.runtime.utils import broadcast_object_list
how = sys.argv[1]
accelerator = Accelerator()
rank = accelerator.process_index


class Alarm(Exception):
    pass


def alarm(*_):
    if how == "a handler that gathers":
        accelerator.gather(torch.ones(1))
    raise Alarm


def slowly(line, to, message):
    for part in (message[:20], message[20:]):
        line._through(to, line._peers[to].send, memoryview(part))
        time.sleep(0.6)


signal.signal(signal.SIGALRM, alarm)
got = []
for number in range(3):
    try:
        if number == 1:
            if rank == 0:
                signal.setitimer(signal.ITIMER_REAL, 0.3)
            elif how == "in a message":
                links.Links._send = slowly
            else:
                time.sleep(1.0)
        got.append(broadcast_object_list([10 * number + rank], from_process=1))
    except (Alarm, CollectiveError) as error:
        got.append(str(error))
wrong = f"{rank}: {got}"
assert got[0] == [1], wrong
assert rank == 0 or all(one == [11] or "connection to rank 0 is closed" in str(one) for one in got[1:]), wrong
if rank == 0 and how == "between two messages":
    assert got[1] == "" and "called different collectives here" in got[2], wrong
elif rank == 0 and how == "in a message":
    assert got[1] == "" and "was left in its middle (Alarm)" in got[2], wrong
elif rank == 0:
    assert "in the middle of another exchange" in got[1] and "has failed before" in got[2], wrong
print("RESULT true", flush=True)
"""


@pytest.mark.parametrize("how", ["between two messages", "in a message", "a handler that gathers"])
def test_what_an_exchange_has_left_is_not_taken_for_the_next_one(job_text, how):
    assert job_text(CUT_SHORT, 2, how) == [True, True]


def test_where_sockets_cannot_be_had_there_are_no_lines(monkeypatch):
    listener = links._listen(5)
    assert listener is not None
    with listener:
        line = links._connect([5, 1], 0)
        assert line is not None
        line.close()
        with monkeypatch.context() as small:
            small.setattr(links, "_IN_FLIGHT", 1 << 40)
            assert links._listen(6) is links._connect([5, 1], 0) is None

        def refused(*_):
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(links.socket, "socket", refused)
        assert links._listen(6) is links._connect([5, 1], 0) is None
