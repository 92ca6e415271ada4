"""Whatever the processes exchange, of any size and type, and late or not: all get what was handed in."""

import random
import time

import torch

from torchlift.runtime import Accelerator, utils
from torchlift.runtime.collectives import world
from torchlift.runtime.process import watched_calls

READ = world._READ = 1 << 16
accelerator = Accelerator()
rank, size = accelerator.process_index, accelerator.num_processes
ROOM = accelerator._world._room
assert 0 < ROOM * size <= world._ROOM
numbers, own = random.Random(0), random.Random(rank)
heard = []
watched_calls.LISTENERS.append(heard.append)


def bytes_of(length, of):
    return (torch.arange(length) * 31 + of * 7).to(torch.uint8)


def check(lengths):
    """Every rank hands in so many bytes."""
    heard.clear()
    got = accelerator.gather(bytes_of(lengths[rank], rank))
    wanted = torch.cat([bytes_of(length, of) for of, length in enumerate(lengths)])
    assert torch.equal(got, wanted), lengths
    assert not watched_calls.under_way(), lengths
    assert [one is None for one in heard] == [False, True], "it is heard to begin, and to be over when it is"
    return got


kept = check([200_000] * size)
copy = kept.clone()
for edge in (ROOM // size, ROOM, 5 * ROOM):
    for length in (edge - 1, edge, edge + 1):
        check([length] * size)
        check([length if of == 0 else 0 for of in range(size)])
        check([length if of else 3 for of in range(size)])
for _ in range(20):
    check([numbers.choice([0, 1, ROOM, numbers.randrange(200_000)]) for _ in range(size)])
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
words = accelerator.gather_for_metrics(["x" * 70_000 * (1 + rank)], use_gather_object=True)
assert words == ["x" * 70_000 * (1 + of) for of in range(size)]
copied = utils.broadcast(torch.arange(5), 0)
assert copied.untyped_storage().nbytes() < 100, "what is saved of it is not more than it holds"

for _ in range(60):
    time.sleep(0.003 * own.choice([0, 0, 0, 1]))
    length = numbers.choice([0, 1, 7, 1000, ROOM // 4, ROOM // 4 + 1, 40_000])
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
    assert not watched_calls.under_way(), way

several = [torch.ones(length) * (rank + 1) for length in (100, 30_000)] + [torch.full((9_000,), rank)]
first, second, third = accelerator.reduce(several)
assert first.eq(second[:100]).all() and second.eq(size * (size + 1) / 2).all() and third.eq(sum(range(size))).all()
for length in (1000, 100_000):
    values = torch.rand(length, generator=torch.Generator().manual_seed(rank)) * 1e6
    total = accelerator.reduce(values)
    assert torch.equal(accelerator.gather(total).view(size, -1), total.expand(size, -1)), "the same bits everywhere"
    for at in (0, length - 1):
        for whose in (0, size - 1):
            values = torch.arange(float(length))
            values[at] = float("nan") if rank == whose else 1.0
            for word in ("max", "min"):
                nan = accelerator.reduce(values, word)
                assert nan[at].isnan() and nan.isnan().sum() == 1, "a NaN is the maximum of what it is among"
print("RESULT true")
