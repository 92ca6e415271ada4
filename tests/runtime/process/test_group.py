"""What several processes do together, and how they end."""

from __future__ import annotations

import pytest
import torch
from torch.distributed import HashStore

from torchlift.runtime.device.kinds import kind_of
from torchlift.runtime.errors import DeviceError
from torchlift.runtime.process import group


@pytest.mark.parametrize("processes", [2, 3])
def test_together(job, processes, tmp_path):
    assert job("together.py", processes, tmp_path) == [True] * processes


def test_processes_that_share_a_device_are_told_before_their_back_end_fails(monkeypatch):
    kind, store = kind_of("cuda"), HashStore()
    monkeypatch.setattr(type(kind), "count", lambda _: 1)
    monkeypatch.setattr(type(kind), "backend", lambda _: "cpu:gloo,cuda:nccl")
    for machine in ("a", "b"):  # each sees one device only, as its job says
        monkeypatch.setattr(type(kind), "identity", lambda _, __, machine=machine: machine)
        group._one_each(store, kind, torch.device("cuda", 0))
    words = r"cuda:0 .* is that of another process, too, and nccl connects only .* \(--num-processes 1\), or let them"
    with pytest.raises(DeviceError, match=words):
        group._one_each(store, kind, torch.device("cuda", 0))
    monkeypatch.setattr(type(kind), "identity", lambda *_: None)
    for _ in range(2):
        group._one_each(store, kind, torch.device("cuda", 0))


TALK = """
import sys, time, torch
from torchlift.runtime import Accelerator
accelerator = Accelerator()
net = accelerator.prepare(torch.nn.Linear(2, 2))
for _ in range(3):
    accelerator.backward(net(torch.ones(1, 2)).sum())
"""


def test_processes_leave_in_order(job_text):
    slow = TALK + "\ntime.sleep(0.5 * accelerator.process_index)\nprint('bye')"
    for status, text in job_text(slow, 2, fails=True):
        assert status == 0, text
        assert text == "bye\n", "nothing is printed on the way out"


@pytest.mark.slow
def test_twenty_runs_end_without_an_abort(job_text):
    for _ in range(20):
        assert [status for status, _ in job_text(TALK, 2, fails=True)] == [0, 0]


SWEEP = """
import torch
from torchlift.runtime import Accelerator
for rate in (0.1, 0.2, 0.3):
    accelerator = Accelerator()
    net = torch.nn.Linear(1, 1, bias=False)
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), rate))
    before = net.weight.item()
    accelerator.backward(net(torch.full((1, 1), 1.0 + accelerator.process_index)).sum())
    optimizer.step()
    assert abs(before - net.weight.item() - 1.5 * rate) < 1e-6
    assert accelerator.gather(torch.tensor([accelerator.process_index])).tolist() == [0, 1]
    accelerator.end_training()
print("RESULT true")
"""


def test_a_script_may_train_again_after_the_end_of_a_training(job_text):
    assert job_text(SWEEP, 2) == [True, True]


def test_nobody_waits_for_a_process_that_has_failed(job_text):
    crash = (
        TALK + "\nif accelerator.process_index == 1: raise ValueError('on purpose')\naccelerator.wait_for_everyone()"
    )
    (first, text0), (second, text1) = job_text(crash, 2, fails=True)
    assert second == 1
    assert "ValueError: on purpose" in text1
    assert first == 1, text0


def test_half_a_description_of_the_job_is_refused(job_text):
    source = "from torchlift.runtime import Accelerator\nAccelerator()"
    ((status, text),) = job_text(source, 1, fails=True, WORLD_SIZE="2", MASTER_PORT="")
    assert status == 1
    assert "torchlift launch --num-processes 2" in text


ENDS_AT_ONCE = """
import atexit, logging, sys
import torch
from torchlift.runtime import Accelerator
accelerator = Accelerator()
logging.basicConfig(filename=sys.argv[1] + f"/{accelerator.process_index}.log", level=logging.INFO)
atexit.register(print, "a callback of the script")
loose = torch.nn.Linear(1, 1)
loose(torch.full((1, 1), 1.0 + accelerator.process_index)).sum().backward()
torch.optim.SGD(loose.parameters(), lr=0.1).step()
logging.info("the last line")
"""


def test_a_fault_that_is_found_at_the_end_is_an_exit_status(job_text, tmp_path):
    for rank, (status, output) in enumerate(job_text(ENDS_AT_ONCE, 2, tmp_path, fails=True)):
        assert (status, "torchlift.runtime.errors.NotPreparedError: " in output) == (1, True), output
        assert "a callback of the script" in output
        assert "the last line" in (tmp_path / f"{rank}.log").read_text()


NEVER_CLOSED = """
import sys
import torch
from torchlift.runtime import Accelerator
class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)
    def forward(self, x):
        return self.layer(x)
accelerator = Accelerator()
notes = open(sys.argv[1] + f"/{accelerator.process_index}.txt", "w")
width = int(sys.argv[2])
net = Net(width)
net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
for _ in range(2):
    accelerator.backward(net(torch.ones(2, width)).sum())
    optimizer.step()
notes.write("trained")
"""


@pytest.mark.parametrize("width", [4, 800], ids=["exchanged afterwards", "exchanged during the pass"])
def test_a_file_that_the_script_never_closes_is_written_to_the_end(job_text, tmp_path, width):
    job_text(NEVER_CLOSED, 2, tmp_path, width)
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in range(2)] == ["trained", "trained"]


SCRIPTED = """
import gc
import torch
from torchlift.runtime import Accelerator
def build():
    accelerator = Accelerator()
    return accelerator.process_index, accelerator.prepare(torch.jit.script(torch.nn.Linear(1, 1)))
rank, net = build()
gc.collect()
net(torch.full((1, 1), 1.0 + rank)).sum().backward()
print("RESULT", net.weight.grad.item())
"""


def test_a_model_whose_class_cannot_be_extended_is_kept_equal_without_its_accelerator(job_text):
    assert job_text(SCRIPTED, 2) == [1.5, 1.5]
