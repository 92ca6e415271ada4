"""Starts functions on processes that know each other, from a process without any of the kind."""

import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from torchlift.runtime import Accelerator
from torchlift.runtime.launchers import debug_launcher, notebook_launcher

folder = Path(sys.argv[1])
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
    os.environ.pop(name, None)
torch.rand(1000, 1000) @ torch.rand(1000, 1000)  # a notebook has used torch, and its threads, before


def refused(words, function, *arguments, **more):
    try:
        function(*arguments, **more)
    except Exception as error:  # noqa: BLE001
        assert words in str(error), error
        return error
    raise AssertionError(f"not refused: {words}")


def train(name, expected):
    accelerator = Accelerator()
    ranks = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
    assert ranks == [0, 1] and accelerator.mixed_precision == expected
    assert accelerator.gather(torch.full((1 << 18,), accelerator.process_index)).sum() == 1 << 18
    net = accelerator.prepare(torch.nn.Linear(500, 500))
    accelerator.backward(net(torch.rand(500, 500)).sum())
    (folder / f"{name}_{accelerator.process_index}").write_text("done")


def fails(kind):
    accelerator = Accelerator()
    if accelerator.process_index == 1:
        raise kind("on purpose")
    time.sleep(600)


def flaky():
    accelerator = Accelerator()
    runs = folder / "runs"
    if accelerator.is_main_process:
        runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    accelerator.wait_for_everyone()
    if runs.read_text() == "x":
        raise OSError("the first time")


def returns(what):
    accelerator = Accelerator()
    rank = accelerator.process_index
    if what == "a function":
        return (lambda: rank) if accelerator.is_main_process else 1
    if what == "restarted":
        first = not (folder / "returned").exists()
        accelerator.wait_for_everyone()
        (folder / "returned").touch()
        if not first:
            return None
        if not accelerator.is_main_process:
            while True:  # the main process has ended, and written what it returns
                time.sleep(0.1)
                if list(Path(tempfile.gettempdir()).glob("torchlift-*/returned.pt")):
                    raise OSError("the first time")
        return 5
    return {"rank": rank, "tensor": torch.ones(2, requires_grad=True) * 3, "history": [0.5, 0.25]}


def alone(value):
    assert os.environ["TORCHLIFT_MIXED_PRECISION"] == "bf16"
    (folder / "alone").write_text(str(os.getpid()))


notebook_launcher(train, ("notebook", "bf16"), num_processes=2, mixed_precision="bf16", rdzv_backend="c10d")
debug_launcher(train, ("debug", "no"))
begin = time.monotonic()
refused("ValueError: on purpose", debug_launcher, fails, (ValueError,))
assert time.monotonic() - begin < 90, "nobody waits for a process that has failed"
failed = refused("ValueError: on purpose", notebook_launcher, fails, (ValueError,), 2)
assert isinstance(failed, ChildFailedError) and list(failed.failures) == [1], failed
notebook_launcher(flaky, num_processes=2, max_restarts=2)
assert (folder / "runs").read_text() == "xx"
given = notebook_launcher(returns, ("values",), num_processes=2)
assert given["rank"] == 0 and given["tensor"].tolist() == [3, 3] and given["history"] == [0.5, 0.25], given
assert notebook_launcher(returns, ("a function",), num_processes=2) is None
assert notebook_launcher(returns, ("restarted",), num_processes=2, max_restarts=1) is None
assert notebook_launcher(lambda: 7, num_processes=1) == 7
notebook_launcher(alone, (1,), num_processes=1, mixed_precision="bf16")
assert (folder / "alone").read_text() == str(os.getpid()) and "TORCHLIFT_MIXED_PRECISION" not in os.environ

assert isinstance(refused("mixed_precision is 'fp7'", notebook_launcher, train, mixed_precision="fp7"), ValueError)
assert isinstance(refused("the number of processes is not known", notebook_launcher, train), ValueError)
refused("must be 1 or more", debug_launcher, train, num_processes=0)
refused("rendezvous", notebook_launcher, train, num_processes=2, num_nodes=2, use_port=5, rdzv_backend="c10d")
refused("must be one of: static, c10d", notebook_launcher, train, num_processes=2, rdzv_backend="etcd")
refused("several machines need use_port", notebook_launcher, train, num_processes=2, num_nodes=2)
Accelerator()
assert isinstance(refused("inside your training function", debug_launcher, train, ("x", "no")), ValueError)
names = sorted(path.name for path in folder.iterdir())
assert names == ["alone", "debug_0", "debug_1", "notebook_0", "notebook_1", "returned", "runs"], names
print("RESULT true", flush=True)
