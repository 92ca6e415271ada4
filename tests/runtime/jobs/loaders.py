"""Prepared loaders on several processes: what they yield, what gather_for_metrics keeps, what stays the script's."""

import collections
import random
import sys

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from torchlift.runtime import Accelerator, DataLoaderConfiguration, MixedUseError, RemainderError, set_seed

set_seed(11)
split, each = Accelerator(split_batches=True), Accelerator()
rank, size = split.process_index, split.num_processes
both = {"split": split, "each": each}
every = int(sys.argv[1]) if len(sys.argv) > 1 else 8


def numbers(n):
    return TensorDataset(torch.arange(n))


def kept(accelerator, loader):
    got = [accelerator.gather_for_metrics(batch[0] if isinstance(batch, list) else batch) for batch in loader]
    return [int(v) for one in got for v in one]


def expect(n, batch, drop_last):
    return n // batch * batch if drop_last else n


def fuzz_of_map_loaders():
    case = 0
    for n in range(1, 41):
        for batch in (1, 2, 3, 5, 8, 13):
            for drop_last in (False, True):
                for shuffle in (False, True):
                    case += 1
                    if case % every:
                        continue
                    for accelerator in both.values():
                        loader = accelerator.prepare(
                            DataLoader(numbers(n), batch_size=batch, drop_last=drop_last, shuffle=shuffle)
                        )
                        got = kept(accelerator, loader)
                        want = expect(n, batch, drop_last)
                        assert len(got) == want == len(set(got)), (n, batch, drop_last, shuffle, got)
                        assert shuffle or got == list(range(want)), got


class Stream(IterableDataset):
    def __init__(self, n, shuffled=False):
        self.n, self.shuffled = n, shuffled

    def __iter__(self):
        order = torch.randperm(self.n).tolist() if self.shuffled else range(self.n)
        info = get_worker_info()
        for i in order:
            if info is None or i % info.num_workers == info.id:
                yield i

    def __len__(self):
        return self.n


def fuzz_of_streams():
    for n in range(0, 25, 2):
        for batch in (1, 3, 4, None):
            for drop_last in (False, True) if batch else (False,):
                for shuffled in (False, True):
                    for name, accelerator in both.items():
                        if batch is None and name == "split":
                            continue
                        loader = accelerator.prepare(
                            DataLoader(Stream(n, shuffled), batch_size=batch, drop_last=drop_last)
                        )
                        if batch is None:
                            got = sorted(accelerator.gather_for_metrics(list(loader), use_gather_object=True))
                            assert got == list(range(n)), got
                            continue
                        got = kept(accelerator, loader)
                        want = expect(n, batch, drop_last)
                        assert len(got) == want == len(set(got)), (n, batch, drop_last, shuffled, got)
                        assert shuffled or got == list(range(want)), got


def workers_change_nothing():
    for accelerator in both.values():
        got = kept(accelerator, accelerator.prepare(DataLoader(numbers(11), batch_size=3, num_workers=2)))
        assert got == list(range(11)), got
        got = kept(accelerator, accelerator.prepare(DataLoader(Stream(11, True), batch_size=2, num_workers=2)))
        assert sorted(got) == list(range(11)), got
    loader = split.prepare(DataLoader(numbers(7), batch_size=3, num_workers=1, persistent_workers=True, shuffle=True))
    for _ in range(3):
        assert sorted(kept(split, loader)) == list(range(7))


def whole_batches_of_a_data_set_are_cut():
    class Batches(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, i):
            return torch.arange(i * 5, i * 5 + (5 if i < 2 else 1))

    class BatchStream(IterableDataset):
        def __iter__(self):
            yield from (Batches()[i] for i in range(3))

    for dataset in (Batches(), BatchStream()):
        assert kept(split, split.prepare(DataLoader(dataset, batch_size=None))) == list(range(11))


def samplers_of_all_kinds_agree_on_an_order():
    class Lazy(Sampler):
        def __iter__(self):
            for _ in range(9):
                yield int(torch.randint(1000, ()))

        def __len__(self):
            return 9

    class Identity(Dataset):
        def __getitem__(self, i):
            return i

        def __len__(self):
            return 1000

    for sampler in (
        Lazy(),
        WeightedRandomSampler([1.0] * 20, 9),
        RandomSampler(range(20), replacement=True, num_samples=9),
        RandomSampler(range(9), generator=torch.Generator().manual_seed(rank)),
    ):
        loader = split.prepare(DataLoader(Identity(), batch_size=4, sampler=sampler))
        torch.manual_seed(1000 + rank)
        seen = []
        for batch in loader:
            torch.rand(3)  # the script's own draws come in between
            seen.append(batch)
            whole = split.gather_for_metrics(batch)
            assert len(whole) == (4 if len(seen) < 3 else 1)
        assert loader.sampler is sampler
    generator = torch.Generator().manual_seed(3)
    reference = [b[0].tolist() for b in DataLoader(numbers(9), 9, shuffle=True, generator=generator)]
    generator = torch.Generator().manual_seed(3)
    loader = split.prepare(DataLoader(numbers(9), 9, shuffle=True, generator=generator))
    assert [kept(split, loader)] == reference, "a generator of the script's gives the script's order"


def noise_differs_and_control_flow_does_not():
    fresh = Accelerator()
    set_seed(5)
    fresh.prepare(torch.nn.Linear(1, 1))
    noise = fresh.gather(torch.rand(1, 4))
    assert len({tuple(row) for row in noise.tolist()}) == size
    choice = fresh.gather(torch.tensor([random.random()]))
    assert len(set(choice.tolist())) == 1


def batch_samplers_of_the_script_work():
    class Buckets(Sampler):
        def __iter__(self):
            yield from ([0], [1, 2, 3], [4, 5])

        def __len__(self):
            return 3

    for accelerator in both.values():
        loader = accelerator.prepare(DataLoader(numbers(6), batch_sampler=Buckets()))
        assert kept(accelerator, loader) == list(range(6))
    loader = split.prepare(DataLoader(numbers(6), batch_sampler=BatchSampler(range(6), 4, False)))
    assert kept(split, loader) == list(range(6))


def a_distributed_sampler_is_kept():
    data = numbers(9)
    sampler = DistributedSampler(data, size, rank, shuffle=False)
    for accelerator in both.values():
        loader = accelerator.prepare(DataLoader(data, batch_size=2, sampler=sampler))
        assert loader.sampler is sampler and len(loader) == -(-len(sampler) // 2)
        assert sorted(kept(accelerator, loader)) == list(range(9))
    try:
        each.prepare(DataLoader(data, sampler=DistributedSampler(data, 7, 0)))
    except MixedUseError:
        pass
    else:
        raise AssertionError("a sampler for 7 processes was accepted")


def a_class_of_the_script_stays():
    class Doubling(DataLoader):
        label = "mine"

        def __iter__(self):
            for (batch,) in super().__iter__():
                yield batch * 2

        def words(self):
            return len(self.dataset)

    raw = Doubling(numbers(10), batch_size=4, collate_fn=torch.utils.data.default_collate)
    raw.extra = [1]
    loader = split.prepare(raw)
    assert loader is not raw and isinstance(loader, Doubling) and type(loader).__name__ == "Doubling"
    assert (loader.batch_size, loader.dataset, loader.sampler, loader.batch_sampler, loader.extra, loader.label) == (
        4, raw.dataset, raw.sampler, raw.batch_sampler, raw.extra, "mine"
    )  # fmt: skip
    assert loader.words() == 10 and len(loader) == len(raw) == 3
    assert kept(split, loader) == list(range(0, 20, 2))
    assert torch.cat(list(raw)).tolist() == list(range(0, 20, 2)), "the raw loader still gives everything"
    assert split.prepare(loader) is loader


Pair = collections.namedtuple("Pair", "a b")


def trees_objects_and_scalars_are_gathered():
    loader = split.prepare(DataLoader(numbers(5), batch_size=5))
    for (x,) in loader:
        tree = {"p": Pair(x, [x.double() / 2, (x > 2)]), "q": x[:, None].expand(-1, 3).to(torch.bfloat16)}
        got = split.gather_for_metrics(tree)
        assert got["p"].a.tolist() == list(range(5)) and isinstance(got["p"], Pair)
        assert got["p"].b[0].dtype is torch.double and got["p"].b[1].tolist() == [False] * 3 + [True] * 2
        assert got["q"].shape == (5, 3)
        assert split.gather_for_metrics(x.sum()).shape == (size,)
        assert split.gather(x.float().mean()).shape == (size,)
        assert split.gather_for_metrics([f"row {int(v)}" for v in x]) == [f"row {i}" for i in range(5)]
    one = split.prepare(DataLoader(numbers(1), batch_size=4))
    for (x,) in one:
        assert len(x) == 1, "a rank without rows sees one, so that its loss is a number"
        assert split.gather_for_metrics(x).tolist() == [0]
        assert split.gather_for_metrics([int(x)], use_gather_object=True) == [0]
        assert split.gather_for_metrics(torch.tensor([rank, 5])).tolist() == [0, 5], "counts of real rows only"


def loops_that_are_left_nested_or_collected():
    early = each.prepare(DataLoader(numbers(9), batch_size=-(-9 // size)))
    (batch,) = next(iter(early))
    assert sorted(each.gather_for_metrics(batch).tolist()) == list(range(9))
    train = each.prepare(DataLoader(numbers(13), batch_size=2))
    test = each.prepare(DataLoader(numbers(7), batch_size=3))
    seen = []
    for (x,) in train:
        assert kept(each, test) == list(range(7))
        held = torch.cat([y for (y,) in test])
        assert each.gather_for_metrics(held).tolist() == list(range(7)), "collected over the whole pass"
        seen += each.gather_for_metrics(x).tolist()
        for _ in test:
            break
    assert seen == list(range(13)), seen
    zipped = [[], []]
    a, b = split.prepare(DataLoader(numbers(7), 3), DataLoader(numbers(9), 4))
    for (x,), (y,) in zip(a, b, strict=True):
        zipped[0] += split.gather_for_metrics(x).tolist()
        zipped[1] += split.gather_for_metrics(y).tolist()
    # with more processes the rows of both loaders look alike, and the one that came last is taken for the source
    assert size > 3 or zipped == [list(range(7)), list(range(9))]
    for (x,) in train:
        last = x
    if size == 2:
        try:
            each.gather_for_metrics(torch.ones(3 + rank))
        except RemainderError as error:
            assert "accelerator.gather" in str(error)
        else:
            raise AssertionError(f"rows that fit nothing were accepted after {last}")


def uneven_batches_when_asked():
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=False))
    loader = accelerator.prepare(DataLoader(numbers(3 * size - 1), batch_size=3))
    assert [len(x) for (x,) in loader] == [2 if rank == size - 1 else 3]


def weights_follow_the_batch_of_the_innermost_loop():
    net = torch.nn.Linear(1, 1, bias=False).double()
    split.prepare(net)
    train = split.prepare(DataLoader(TensorDataset(torch.arange(1.0, 8.0).double()[:, None]), batch_size=7))
    test = split.prepare(DataLoader(numbers(1), batch_size=1))
    for (x,) in train:
        kept(split, test)
        split.backward(net(x).mean())
    assert torch.allclose(net.weight.grad, torch.tensor([[4.0]]).double())
    net.zero_grad()
    for (x,) in test:
        split.backward(net(x.double()[:, None] + 3).mean())
    assert torch.allclose(net.weight.grad, torch.tensor([[3.0]]).double())


SKIPPED = ("numbers", "kept", "expect", "set_seed", "Stream", "Pair")
for name, check in list(globals().items()):
    if callable(check) and getattr(check, "__module__", "") == "__main__" and name not in SKIPPED:
        try:
            check()
        except BaseException:
            print("FAILED", name, flush=True)
            raise
print("RESULT true", flush=True)
