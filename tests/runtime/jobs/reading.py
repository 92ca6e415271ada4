"""Reading for all, orders of epochs, skipping, loaders that are read in turn, uneven inputs, options of models."""

import sys
import warnings
from collections import UserDict, namedtuple

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from torchlift.runtime import Accelerator, CollectiveError, DataLoaderConfiguration, RemainderError, set_seed
from torchlift.runtime.config.handlers import DistributedDataParallelKwargs, TorchDynamoPlugin
from torchlift.runtime.data_loader import skip_first_batches

set_seed(5)
split, each = Accelerator(split_batches=True), Accelerator()
rank, size = split.process_index, split.num_processes


def numbers(n):
    return TensorDataset(torch.arange(n))


def kept(accelerator, loader):
    return [int(v) for (batch,) in loader for v in accelerator.gather_for_metrics(batch)]


class Texts(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, i):
        if i == self.bad:
            raise ValueError("on purpose")
        return {"text": f"row {i}", "x": torch.full((2,), float(i)), "n": [i, i + 1]}

    bad = None


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(torch.arange(self.n).split(1))


def rank_0_reads_for_all():
    reading = [
        Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True, split_batches=s))
        for s in (True, False)
    ]
    for accelerator in reading:
        for n in (1, 2, 5, 8, 9, 16, 17):
            for workers in (0, 1) if n == 9 else (0,):
                for shuffle in (False, True):
                    raw = DataLoader(numbers(n), batch_size=4, shuffle=shuffle, num_workers=workers)
                    loader = accelerator.prepare(raw)
                    got = kept(accelerator, loader)
                    assert sorted(got) == list(range(n)), (n, accelerator.split_batches, got)
                    assert shuffle or got == list(range(n))
                    assert len(list(loader)) == len(loader)
        stream = accelerator.prepare(DataLoader(Stream(9), batch_size=4))
        assert [int(v) for b in stream for v in accelerator.gather_for_metrics(b)] == list(range(9))
        loader = accelerator.prepare(DataLoader(Texts(), batch_size=3))
        seen = []
        for batch in loader:
            assert [f"row {int(v)}" for v in batch["x"][:, 0]] == batch["text"], batch
            seen += accelerator.gather_for_metrics(batch["text"])
        assert seen == [f"row {i}" for i in range(7)], seen
        loader.dataset.bad = 6
        try:
            list(loader)
        except (ValueError, CollectiveError) as error:
            assert ("on purpose" in str(error)) == (rank == 0)
        else:
            raise AssertionError("a batch that cannot be read was not missed")
        loader.dataset.bad = None


BUCKETS = [[0, 1, 2], [3], [4, 5], [6, 7, 8, 9], [10, 11], [12, 13, 14], [15]]


def pictures(rows):
    """As for detection: what belongs to a row has a length of its own."""
    return {"boxes": [torch.full((row % 3 + 1,), row) for row in rows], "labels": torch.tensor(rows), "none": None}


def rank_0_reads_batches_of_any_length():
    config = DataLoaderConfiguration(dispatch_batches=True)
    accelerator = Accelerator(dataloader_config=config)
    for buckets in (BUCKETS, BUCKETS[:-1], BUCKETS[:4]):
        count = sum(map(len, buckets))
        got = kept(accelerator, accelerator.prepare(DataLoader(numbers(count), batch_sampler=buckets)))
        assert got == list(range(count)), got
    loader = accelerator.prepare(DataLoader(range(10), batch_size=2, collate_fn=pictures))
    for number, batch in enumerate(loader):
        rows = batch["labels"].tolist()
        first = 2 * (size * number + rank)
        assert rows == ([first, first + 1] if first < 10 else [0, 1]), "the last round is completed by the first batch"
        assert [box.tolist() for box in batch["boxes"]] == [[row] * (row % 3 + 1) for row in rows], batch
    config = DataLoaderConfiguration(dispatch_batches=True, split_batches=True)
    loader = Accelerator(dataloader_config=config).prepare(DataLoader(range(8), batch_size=4, collate_fn=pictures))
    try:
        next(iter(loader))
    except CollectiveError as error:
        assert rank or "Stack them to one row per sample" in str(error)
    else:
        raise AssertionError("a batch whose rows cannot be told was cut")


Rows = namedtuple("Rows", "x text")
KINDS = [  # how a batch is made, and where its rows are
    (lambda rows: UserDict(x=torch.tensor(rows), text=[str(row) for row in rows]), "x"),  # as tokenizers do
    (lambda rows: Rows(torch.tensor(rows), [str(row) for row in rows]), 0),
    (lambda rows: {"text": [str(row) for row in rows]}, "text"),
]


def rank_0_reads_batches_of_any_kind():
    for split_batches in (False, True):
        config = DataLoaderConfiguration(dispatch_batches=True)
        accelerator = Accelerator(split_batches=split_batches, dataloader_config=config)
        for collate, name in KINDS:
            for n in (8, 10, 11):
                loader = accelerator.prepare(DataLoader(range(n), batch_size=4, collate_fn=collate))
                own = [int(row) for batch in loader for row in accelerator.gather_for_metrics(batch[name])]
                assert own == list(range(n)), (split_batches, name, own)
                lengths = {len(batch[name]) for batch in loader}
                assert name == "text" or max(lengths) <= (-(-4 // size) if split_batches else 4), lengths


def orders_follow_from_a_seed_and_the_epoch():
    config = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=3)
    for accelerator in (
        Accelerator(dataloader_config=config),
        Accelerator(split_batches=True, dataloader_config=config),
    ):
        loader = accelerator.prepare(DataLoader(numbers(12), batch_size=3, shuffle=True))
        orders = [kept(accelerator, loader) for _ in range(2)]
        for _ in loader:  # left early: the next pass is another epoch
            break
        orders.append(kept(accelerator, loader))
        assert all(sorted(order) == list(range(12)) for order in orders)
        assert len({tuple(order) for order in orders}) == 3
        assert loader.iteration == 4
        torch.manual_seed(rank)
        again = accelerator.prepare(DataLoader(numbers(12), batch_size=3, shuffle=True))
        again.set_epoch(1)
        assert kept(accelerator, again) == orders[1]
        again.iteration = 3
        part = kept(accelerator, accelerator.skip_first_batches(again, 1))
        whole = accelerator.num_processes * 3 if accelerator.split_batches is False else 3
        assert part == orders[2][whole:], (part, orders[2])
        assert again.iteration == 4


def skipping_keeps_what_is_known_about_a_loader():
    for accelerator, step in ((split, 4), (each, 4 * size)):
        for n in (9, 14, 17, 29):
            for raw in (DataLoader(numbers(n), batch_size=4), DataLoader(numbers(n), batch_size=4, num_workers=1)):
                if raw.num_workers and n != 17:
                    continue
                loader = accelerator.prepare(raw)
                rest = accelerator.skip_first_batches(loader, 1)
                assert len(rest) == max(len(loader) - 1, 0)
                assert rest.total_batch_size == step
                assert kept(accelerator, rest) == list(range(min(step, n), n))
                assert kept(accelerator, loader) == list(range(n))
        stream = accelerator.prepare(DataLoader(Stream(17), batch_size=4))
        got = [int(v) for b in accelerator.skip_first_batches(stream, 1) for v in accelerator.gather_for_metrics(b)]
        assert got == list(range(step, 17)), got
    plain = split.skip_first_batches(DataLoader(numbers(5), batch_size=2), 2)
    assert [b.tolist() for (b,) in plain] == [[4]] and len(plain) == 1
    for raw in (DataLoader(numbers(9), batch_size=2), DataLoader(Stream(9), batch_size=2)):
        # skipped first and prepared then: batches of the script are left out, and the rest is shared
        loader = each.prepare(skip_first_batches(raw, 1))
        got = [int(v) for b in loader for v in each.gather_for_metrics(b[0] if type(b) is list else b)]
        assert got == list(range(2, 9)), got


def loaders_that_are_read_in_turn_are_told_apart():
    """Two loaders whose last batches hold as many rows, and another number of duplicates."""
    a = each.prepare(DataLoader(numbers(4 * size + 1), batch_size=2))
    b = each.prepare(DataLoader(numbers(4 * size + 2 * size - 1), batch_size=2))
    got = [[], []]
    refused = False
    for (x,), (y,) in zip(a, b, strict=True):
        out, x2 = each.gather_for_metrics((x * 1, x))
        assert torch.equal(out, x2)
        got[0] += x2.tolist()
        got[1] += each.gather_for_metrics(y).tolist()
        try:
            each.gather_for_metrics(x * 1)
        except RemainderError as error:
            refused = "(output, target)" in str(error)
    assert got == [list(range(4 * size + 1)), list(range(6 * size - 1))], got
    assert refused, "rows that may be those of either loader"


def rounds_may_be_left_open():
    own = Accelerator()
    loader = own.prepare(DataLoader(numbers(3 * size - 2), batch_size=3))
    with own.join_uneven_inputs([], even_batches=False):
        short = [len(x) for (x,) in loader]
    assert short == ([1] if rank == size - 1 else [3]), short
    assert [len(x) for (x,) in loader] == [3]
    own.even_batches = False
    assert not own.even_batches
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        own.prepare(DataLoader(Stream(4)))
        with own.join_uneven_inputs([], even_batches=False):
            pass
    assert size == 1 or any("map-style" in str(one.message) for one in seen)


def random_numbers_are_made_equal_when_asked():
    own = Accelerator(rng_types=["torch", "generator"])
    loader = own.prepare(DataLoader(numbers(2 * size), batch_size=1))
    for _ in loader:
        break
    assert len(set(own.gather(torch.rand(1)).tolist())) == 1


# ---------------------------------------------------------------- models


def uneven_inputs_are_joined():
    for plain in (True, False):
        own = Accelerator()
        set_seed(3)
        net = nn.Linear(1, 1, bias=False)
        net, opt = own.prepare(net, torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9))
        rows = 2 + rank
        seen = []
        with own.join_uneven_inputs([net]):
            for i in range(rows):
                loss = net(torch.full((1, 1), 1.0 + i)).sum()
                loss.backward() if plain else own.backward(loss)
                seen.append(net.weight.grad.item())
                opt.step()
                opt.zero_grad()
        wanted = [(1.0 + i) * sum(1 for r in range(size) if i < 2 + r) / size for i in range(rows)]
        assert torch.allclose(torch.tensor(seen), torch.tensor(wanted)), seen
        weights = own.gather(net.weight.detach()).flatten().tolist()
        momenta = own.gather(opt.state[net.weight]["momentum_buffer"]).flatten().tolist()
        assert len(set(weights)) == len(set(momenta)) == 1, (weights, momenta)
        own.backward(net(torch.ones(1, 1)).sum())
        assert abs(net.weight.grad.item() - 1.0) < 1e-6, "afterwards gradients are exchanged as before"


def gradients_with(options):
    own = Accelerator(kwargs_handlers=[options])
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    net = own.prepare(net)
    for _ in range(3):
        net.zero_grad()
        own.backward(net(torch.full((2, 8), 1.0 + rank)).sum())
    return torch.cat([p.grad.flatten() for p in net.parameters()])


def options_of_the_exchange():
    plain = gradients_with(DistributedDataParallelKwargs())
    for more in (
        {"bucket_cap_mb": 1},
        {"gradient_as_bucket_view": True},
        {"static_graph": True, "find_unused_parameters": True},
    ):
        found = gradients_with(DistributedDataParallelKwargs(**more))
        assert torch.equal(found, plain) or (size > 2 and torch.allclose(found, plain, rtol=1e-6)), more
    for hook, more in (("fp16", {}), ("power_sgd", {"comm_state_option": {"start_powerSGD_iter": 2}})):
        compressed = gradients_with(DistributedDataParallelKwargs(comm_hook=hook, **more))
        assert torch.allclose(compressed, plain, rtol=0.02, atol=0.05), hook
    both = DistributedDataParallelKwargs(
        comm_hook="power_sgd", comm_wrapper="fp16", comm_state_option={"start_powerSGD_iter": 2}
    )
    assert torch.allclose(gradients_with(both), plain, rtol=0.02, atol=0.05)


def buffers_stay_when_asked():
    own = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)])
    net = own.prepare(nn.BatchNorm1d(1))
    own.backward(net(torch.full((2, 1), float(rank)) + torch.arange(2.0)[:, None]).sum())
    assert len(set(own.gather(net.running_mean).tolist())) == size


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x):
        return self.encode(x).sum()

    def encode(self, x):
        self.seen = self.inner(x).dtype
        return self.inner(x)

    def name(self):
        return "coder"


def methods_run_in_mixed_precision_too():
    own = Accelerator(mixed_precision="bf16")
    net = own.prepare(Coder())
    code = net.encode(torch.ones(1, 2))
    assert (net.seen, code.dtype, net.name()) == (torch.bfloat16, torch.float32, "coder")
    own.mark_forward_method(net, "name", "encode")
    assert net.name() == "coder"
    own.backward(code.sum())
    assert torch.equal(own.gather(net.inner.weight.grad[None])[0], net.inner.weight.grad)


def models_are_compiled_in_place():
    own = Accelerator(dynamo_plugin=TorchDynamoPlugin(backend="eager"))
    model = nn.Linear(2, 1)
    net = own.prepare(model)
    assert net is model and net._compiled_call_impl is not None
    own.backward(net(torch.full((1, 2), 1.0 + rank)).sum())
    assert torch.allclose(net.weight.grad, torch.full((1, 2), (1 + size) / 2))


def syncing_may_be_asked_for_inside_of_no_sync():
    own = Accelerator()
    net = own.prepare(nn.Linear(1, 1, bias=False))
    with own.no_sync(net):
        own.backward(net(torch.full((1, 1), float(rank))).sum())
        loss = net(torch.full((1, 1), float(rank))).sum()
        with own.trigger_sync_in_backward(net):
            own.backward(loss)
    assert net.weight.grad.item() == size - 1.0


if __name__ == "__main__":
    for check in [globals()[name] for name in sys.argv[1:]]:
        try:
            check()
        except BaseException:  # noqa: PERF203
            print("FAILED", check.__name__, flush=True)
            raise
    print("RESULT true", flush=True)
