"""
Large tensors over memory that the processes share: whole at any size, and nothing of it left.

The argument says whose memory cannot be reached ("none": everybody's can). Then nobody uses it.
"""

import os
import random
import sys
import time
from pathlib import Path

import torch

from torchlift.runtime import Accelerator
from torchlift.runtime.collectives import world
from torchlift.runtime.process import links, shared

hidden = sys.argv[1]
before = {*os.listdir("/dev/shm")}
PIECE = shared._PIECE = 1 << 16
LARGE, ROOM = links.SMALL + 1, world._ROOM
accelerator = Accelerator()
rank, size = accelerator.process_index, accelerator.num_processes
if hidden == "the last" and rank == size - 1:
    shared._make = lambda _: -1
if hidden == "from the first" and rank == 0:
    shared._open = lambda *_: None
laid = []
lay = shared.Shared._lay


def slow_lay(*arguments):
    """One process reads late: by then the others may be laying out the next."""
    laid.append(lay(*arguments))
    time.sleep(0.005 * random.Random(len(laid) * size + rank).choice([0, 0, 0, 1]))


shared.Shared._lay = slow_lay


def opened():
    return links._Known.links is not None and links._Known.links._memory is not None


def bytes_of(length, of):
    return (torch.arange(length) * 31 + of * 7).to(torch.uint8)


def check(lengths):
    """Every rank hands in so many bytes."""
    got = accelerator.gather(bytes_of(lengths[rank], rank))
    wanted = torch.cat([bytes_of(length, of) for of, length in enumerate(lengths)])
    assert torch.equal(got, wanted), lengths
    return got


check([LARGE - 1] * size)
assert links._Known.links is not None and not opened(), "small ones need no memory"
check([LARGE] * size)
assert opened() == (hidden == "none")

kept = check([3 * PIECE] * size)
copy = kept.clone()
for edge in (ROOM, LARGE, PIECE, 2 * PIECE, 5 * PIECE) if hidden == "none" else [PIECE]:
    for length in (edge - 1, edge, edge + 1):
        check([length] * size)
        check([length if of == 0 else 0 for of in range(size)])
        check([length if of else 3 for of in range(size)])
numbers = random.Random(0)
for _ in range(30 if hidden == "none" else 5):
    check([numbers.choice([0, 1, ROOM, numbers.randrange(4 * PIECE)]) for _ in range(size)])
assert torch.equal(kept, copy), "a result is the script's own memory"

wide = torch.arange(40_000.0).reshape(80, 500)
for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
    mine = (wide + rank).to(dtype)
    for view in (lambda x: x.T, lambda x: x[::3, 7:], lambda x: x[:1].expand(60, 500), lambda x: x):
        wanted = torch.cat([view((wide + of).to(dtype)) for of in range(size)])
        assert torch.equal(accelerator.gather(view(mine)), wanted), dtype
tree = accelerator.gather({"x": [wide[: 10 * rank].requires_grad_(), wide.int()], "n": torch.tensor(rank)})
assert tree["x"][0].shape == (10 * sum(range(size)), 500) and tree["x"][1].shape == (80 * size, 500)
assert tree["n"].tolist() == list(range(size)) and not tree["x"][0].requires_grad
words = accelerator.gather_for_metrics(["x" * PIECE * (1 + rank)], use_gather_object=True)
assert words == ["x" * PIECE * (1 + of) for of in range(size)]

assert bool(laid) == (hidden == "none")
open_files = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
assert len([one for one in open_files if "torchlift-" in one]) == (size if hidden == "none" else 0), open_files
accelerator.wait_for_everyone()
assert not [name for name in {*os.listdir("/dev/shm")} - before if "torchlift" in name], "memory has no name"
accelerator.end_training()
assert links._Known.links is None
print("RESULT true")
