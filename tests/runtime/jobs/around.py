"""What stands around training, on several processes."""

import json
import logging
import sys
from collections import UserDict
from pathlib import Path

import numpy
import torch

from torchlift.runtime import Accelerator, PartialState
from torchlift.runtime.local_sgd import LocalSGD
from torchlift.runtime.logging import get_logger
from torchlift.runtime.tracking.profiling import ProfileKwargs

folder = Path(sys.argv[1])
accelerator = Accelerator()
rank, size = accelerator.process_index, accelerator.num_processes
assert size == 2


def split(inputs, padding=False):
    with accelerator.split_between_processes(inputs, apply_padding=padding) as mine:
        return mine


def sharing_out():
    letters = ["a", "b", "c"]
    assert split(letters) == (["a", "b"], ["c"])[rank]
    assert split(letters, True) == (["a", "b"], ["c", "c"])[rank]
    assert split(tuple(letters), True) == (("a", "b"), ("c", "c"))[rank]
    assert split(["a"]) == (["a"], [])[rank]
    assert split(["a"], True) == ["a"]
    rows = {"x": torch.arange(3), "y": letters, "z": numpy.arange(3)}
    mine = split(rows, True)
    assert mine["x"].tolist() == mine["z"].tolist() == ([0, 1], [2, 2])[rank] and mine["y"][0] == "ac"[rank]
    assert list(rows) == ["x", "y", "z"] and len(rows["x"]) == 3, "the dict of the caller stays as it was"
    assert split(UserDict(a=[1, 2]))["a"] == ([1], [2])[rank]
    data = torch.utils.data.TensorDataset(torch.arange(3))
    assert [int(x) for (x,) in split(data)] == ([0, 1], [2])[rank]
    with PartialState().split_between_processes([5, 6]) as mine:
        assert mine == ([5], [6])[rank]
    for bad, error in (({"a": [1], "b": [1, 2]}, ValueError), ("text", TypeError), ({"a": "xy"}, TypeError)):
        try:
            split(bad)
        except error:
            continue
        raise AssertionError(bad)


def indexed_decorators():
    @accelerator.on_process(process_index=1)
    def second():
        return 5

    assert second() == (None, 5)[rank]
    assert accelerator.on_local_process(lambda: 6, local_process_index=0)() == (6, None)[rank]
    assert accelerator.on_process(lambda: 7, 1)() == (None, 7)[rank]


def words_of_the_documents():
    if rank:
        accelerator.set_trigger()
    assert accelerator.check_breakpoint() and not accelerator.check_breakpoint()
    moved = accelerator.to_device({"a": [torch.ones(1)], "b": "text"})
    assert moved["a"][0].device.type == "cpu" and moved["b"] == "text"


def loggers():
    said = []

    class Keep(logging.Handler):
        def emit(self, record):
            said.append((record.getMessage(), record.funcName))

    logger = get_logger("around", log_level="INFO")
    logging.getLogger("around").addHandler(Keep())
    logger.info("once")
    logger.info("%s", "all", main_process_only=False)
    for _ in range(2):
        logger.warning_once("twice")
    logger.debug("never")
    file = folder / "order"
    logger.info("in order", in_order=True)
    expected = ["once", "all", "twice", "in order"] if rank == 0 else ["all", "in order"]
    assert said == [(f"[RANK {rank}] {words}", "loggers") for words in expected], said
    assert not file.exists()


def traces():
    with accelerator.profile(ProfileKwargs(activities=["cpu"], output_trace_dir=folder / "traces")) as profiler:
        torch.ones(3) + 1
    assert any("add" in event.key for event in profiler.key_averages())
    assert sorted(p.name for p in (folder / "traces").iterdir()) == ["profile_0.json", "profile_1.json"]
    assert json.loads((folder / "traces" / f"profile_{rank}.json").read_text())["traceEvents"]


def local_sgd():
    net = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net, optimizer = accelerator.prepare(net, optimizer)

    def step():
        optimizer.zero_grad()
        accelerator.backward(net(torch.full((1, 1), float(rank + 1))).sum())
        optimizer.step()

    with LocalSGD(accelerator, net, local_sgd_steps=2) as local:
        for expected in (-(rank + 1.0), -3.0, -3.0 - (rank + 1)):
            step()
            local.step()
            assert net.weight.item() == expected, (net.weight.item(), expected)
    assert net.weight.item() == -4.5, "averaged at the end"
    step()
    assert net.weight.item() == -6.0, "gradients are exchanged again"
    with LocalSGD(accelerator, net, local_sgd_steps=2, enabled=False) as local:
        step()
        local.step()
    assert net.weight.item() == -7.5


for check in (sharing_out, indexed_decorators, words_of_the_documents, loggers, traces, local_sgd):
    try:
        check()
    except BaseException:  # noqa: PERF203
        print("FAILED", check.__name__, flush=True)
        raise
print("RESULT true", flush=True)
