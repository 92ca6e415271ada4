"""Batches that a script makes by itself and has cut: gradients, weights and errors as on one process."""

import inspect

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator, DataLoaderConfiguration
from torchlift.runtime.errors import BatchShapeError, CollectiveError, UnclearBatchError

accelerator = Accelerator()
rank, size = accelerator.process_index, accelerator.num_processes
net = accelerator.prepare(torch.nn.Linear(1, 1, bias=False).double())


def rows(count, start=1.0):
    return torch.arange(start, start + count).double()[:, None]


def trains(loss, wanted, **options):
    accelerator.backward(loss, **options)
    found, net.weight.grad = net.weight.grad.item(), None
    assert abs(found - wanted) < 1e-12, (found, wanted)


def own(count):
    """The rows of this process, of so many."""
    return [list(part) for part in np.array_split(np.arange(count), size)][rank]


def the_whole_data_once():
    x = accelerator.shard_batch(rows(7))
    assert x[:, 0].tolist() == [1.0 + one for one in own(7)]
    for _ in range(3):
        trains(net(x).mean(), 4)
    trains(net(x).sum(), 28, reduction="sum")
    trains(net(x).sum(), 28 / 7, num_items=len(own(7)))


def figures_of_arrays():
    """What is made of an array counts by the rows of the array: in the loss, and in a mean over the processes."""
    given = accelerator.shard_batch(np.arange(1.0, 8.0)[:, None])
    x = torch.from_numpy(given)
    trains(net(x).mean(), 4)
    assert abs(accelerator.reduce(x.mean(), reduction="mean").item() - 4) < 1e-12
    x = torch.from_numpy(given).float()  # a copy, while the array is still there
    assert abs(accelerator.reduce(x.mean(), reduction="mean").item() - 4) < 1e-6


def a_draw_of_rank_0_for_all():
    data = rows(10)
    generator = torch.Generator().manual_seed(rank)  # on purpose, every process draws others
    of_rank_0 = torch.Generator().manual_seed(0)
    for _ in range(5):
        x = data[accelerator.shard_batch(torch.randint(10, (5,), generator=generator))]
        trains(net(x).mean(), data[torch.randint(10, (5,), generator=of_rank_0)].mean().item())


def slices_with_a_short_end():
    for start in range(0, 7, 4):
        x = accelerator.shard_batch(rows(7)[start : start + 4])
        y = accelerator.shard_batch(rows(7, 2)[start : start + 4])
        trains((net(x) + y).mean(), rows(7)[start : start + 4].mean().item())


def fewer_rows_than_processes():
    x = accelerator.shard_batch(rows(1, 5))
    assert x.tolist() == [[5.0]]
    trains(net(x).mean(), 5)
    trains(net(x).sum(), 5, reduction="sum")


def columns_of_a_text():
    text = torch.arange(21).double().view(3, 7)
    mine = accelerator.shard_batch(text, dim=1)
    assert mine.tolist() == text[:, own(7)].tolist() and mine.is_contiguous()
    assert accelerator.shard_batch(text, dim=-1).tolist() == mine.tolist()
    trains(net(mine[0:2].reshape(-1, 1)).mean(), text[0:2].mean().item())


def trees_of_all_kinds():
    given = {
        "x": rows(7),
        "array": np.arange(14).reshape(7, 2),
        "texts": list("abcdefg"),
        "pair": (rows(7), [rows(7, 3)]),
        "name": "train",
        "number": 3,
    }
    mine = accelerator.shard_batch(given)
    assert mine["texts"] == [given["texts"][one] for one in own(7)]
    assert isinstance(mine["array"], np.ndarray) and mine["array"].tolist() == given["array"][own(7)].tolist()
    assert mine["pair"][1][0].tolist() == given["pair"][1][0][own(7)].tolist()
    assert (mine["name"], mine["number"]) == ("train", 3)
    assert accelerator.shard_batch(list(range(10, 17))) == [10 + one for one in own(7)]


def a_leaf_keeps_its_gradient():
    mine = accelerator.shard_batch(rows(7).requires_grad_())
    assert mine.is_leaf and mine.requires_grad


def losses_of_batches_with_other_shards_are_told_apart():
    x, y = accelerator.shard_batch(rows(7)), accelerator.shard_batch(rows(3, 10))
    trains(net(x).mean(), 4)
    trains(net(y).mean(), 11)
    with pytest.raises(UnclearBatchError, match="different numbers of rows"):
        accelerator.backward(net(x).mean() + net(y).mean())
    accelerator._progress.clear()


def batches_that_are_cut_beforehand():
    parts = [accelerator.shard_batch(rows(7)[start : start + 4]) for start in (0, 4)]
    trains(net(parts[0]).mean(), 2.5)
    trains(net(parts[1]).mean(), 6)
    trains(net(parts[0] * 1.0).mean(), 2.5, batch=parts[0])


def a_shard_is_no_view():
    whole = rows(7)
    accelerator.shard_batch(whole).zero_()
    assert whole.tolist() == rows(7).tolist()


def a_loader_that_cuts_too_closes_its_window():
    each = Accelerator(gradient_accumulation_steps=4)
    other = each.prepare(torch.nn.Linear(1, 1, bias=False).double())
    each.shard_batch(rows(7))
    for (x,) in each.prepare(DataLoader(TensorDataset(rows(2 * size)), batch_size=1)):
        each.shard_batch(rows(7))
        with each.accumulate(other):
            each.backward(other(x).mean(), batch=x)
    assert each.sync_gradients


def totals_of_batches_that_are_gone():
    def last():
        accelerator.shard_batch(rows(1))

    last()
    assert accelerator.reduce(torch.tensor(1.0), reduction="sum").item() == size


def a_batch_that_its_function_has_replaced():
    """By what it has gathered, and by a copy: a mean of single numbers still counts the rows."""
    x = accelerator.shard_batch(rows(7))
    mean = x.mean()
    x = accelerator.gather_for_metrics(x)
    assert abs(accelerator.reduce(mean, reduction="mean").item() - 4) < 1e-12
    x = accelerator.shard_batch(rows(7))
    x = x.float()
    assert abs(accelerator.reduce(x.mean(), reduction="mean").item() - 4) < 1e-6


def a_loader_beside_it_keeps_its_own():
    accelerator.shard_batch(rows(7))
    loader = accelerator.prepare(DataLoader(TensorDataset(rows(4 * size)), batch_size=4))
    for (x,) in loader:
        trains(net(x).mean(), (4 * size + 1) / 2)
    accelerator._progress.clear()


def accumulated():
    each = Accelerator(gradient_accumulation_steps=2)
    other = each.prepare(torch.nn.Linear(1, 1, bias=False).double())
    optimizer = each.prepare(torch.optim.SGD(other.parameters(), lr=1.0))
    before = other.weight.item()
    for start in (1, 4):
        x = each.shard_batch(rows(3, start))
        with each.accumulate(other):
            each.backward(other(x).mean())
            optimizer.step()
            optimizer.zero_grad()
    assert abs(other.weight.item() - (before - (2 + 5) / 2)) < 1e-12


def a_value_of_all_rows():
    x = accelerator.shard_batch(rows(7))
    assert abs(accelerator.reduce(x.mean(), reduction="mean").item() - 4) < 1e-12


def rank_0_reads_fewer_rows_than_processes():
    config = DataLoaderConfiguration(dispatch_batches=True, split_batches=True)
    each = Accelerator(dataloader_config=config)
    other = each.prepare(torch.nn.Linear(1, 1, bias=False).double())
    for (x,) in each.prepare(DataLoader(TensorDataset(rows(1, 5)), batch_size=4)):
        each.backward(other(x).mean())
    assert abs(other.weight.grad.item() - 5) < 1e-12


def what_cannot_be_cut():
    kind = BatchShapeError if rank == 0 else CollectiveError
    with pytest.raises(kind) as said:
        accelerator.shard_batch({"x": rows(7), "y": rows(6)})
    assert rank or ("['x'] has 7" in str(said.value) and "['y'] has 6" in str(said.value)), said
    for wrong, words in (
        ((torch.tensor(1.0), 0), "no such dimension"),
        ((rows(7), 2), "no such dimension"),
        (({"name": "train"}, 0), "no rows"),
        ((rows(0), 0), "no rows"),
        ((net(rows(7)), 0), "before the forward pass"),
        ((np.array([None, "a"]), 0), "Python objects"),
        (([("hello", "hallo"), ("world", "Welt")], 0), "type tuple, which may be its rows or its columns"),
        (([[1, 2, 3], [4, 5, 6]], 0), "type list, which may be its rows or its columns"),
    ):
        with pytest.raises(kind) as said:
            accelerator.shard_batch(*wrong)
        assert rank or words in str(said.value), said


CHECKS = [one for one in list(globals().values()) if inspect.isfunction(one) and not inspect.signature(one).parameters]
for check in CHECKS:
    accelerator._progress.clear()
    print(check.__name__, flush=True)
    check()
assert len(CHECKS) == 19, len(CHECKS)
print("RESULT true", flush=True)
