"""Random loaders, read in random ways: what is gathered is the data set, every row once. `fuzz.py SEED CASES`."""

import itertools
import random
import sys

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

from torchlift.runtime import Accelerator, DataLoaderConfiguration, set_seed

seed, cases = int(sys.argv[1]), int(sys.argv[2])
accelerators = {
    (split, dispatch): Accelerator(
        split_batches=split, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch)
    )
    for split in (True, False)
    for dispatch in (True, False)
}
size, rank = accelerators[True, True].num_processes, accelerators[True, True].process_index
uneven = {
    split: Accelerator(split_batches=split, dataloader_config=DataLoaderConfiguration(even_batches=False))
    for split in (True, False)
}


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        return (torch.tensor([i]) for i in range(self.n) if info is None or i % info.num_workers == info.id)


class Buckets:
    """Batches of the script's own making, of different sizes."""

    def __init__(self, n, largest):
        self.batches, start = [], 0
        while start < n:
            length = 1 + (start * 7 + n) % largest
            self.batches.append(list(range(start, min(start + length, n))))
            start += length

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def case(dice):
    """How one loader is made and read."""
    kind = dice.choice(["plain", "plain", "shuffled", "shuffled", "generator", "buckets", "stream", "stream"])
    return {
        "n": dice.randint(1, 40),
        "batch": dice.choice([1, 2, 3, 4, 5, 8, 13, 50]),
        "kind": kind,
        "drop_last": kind != "buckets" and dice.random() < 0.3,
        "workers": dice.choice([0] * 12 + [1, 2]),
        "split": dice.random() < 0.5,
        "dispatch": kind != "buckets" and dice.random() < 0.3,
        "skip": dice.choice([0, 0, 0, 1, 2]),
        "passes": dice.choice([1, 1, 2]),
        "read": dice.choice(["alone", "alone", "nested", "zipped", "left early", "collected", "uneven"]),
        "stop": dice.randint(1, 4),
    }


def script_batches(one):
    """What the script would see on one device after skipping, batch by batch; and how much of it a job keeps."""
    n, length, each = one["n"], one["batch"], not one["split"]
    cut = [list(range(i, min(i + length, n))) for i in range(0, n, length)]
    if one["kind"] == "buckets":
        cut = Buckets(n, length).batches
    if one["drop_last"]:
        cut = [batch for batch in cut if len(batch) == length]
        if each and one["read"] == "uneven" and not one["dispatch"]:  # a turn that is not to be filled up is left out
            cut = cut[: len(cut) // size * size]
    if one["kind"] == "stream" and one["workers"] == 2:  # each worker has a stream, and cuts it by itself
        return None
    return cut[one["skip"] * (size if each else 1) :]


def loader_of(one):
    n, more = one["n"], {"num_workers": one["workers"]}
    if one["kind"] == "buckets":
        return DataLoader(numbers(n), batch_sampler=Buckets(n, one["batch"]), **more)
    more |= {"batch_size": one["batch"], "drop_last": one["drop_last"]}
    if one["kind"] == "stream":
        return DataLoader(Stream(n), **more)
    generator = torch.Generator().manual_seed(rank) if one["kind"] == "generator" else None
    return DataLoader(numbers(n), shuffle=one["kind"] in ("shuffled", "generator"), generator=generator, **more)


def numbers(n):
    return TensorDataset(torch.arange(n)[:, None])


def rows_in(batch):
    return batch if isinstance(batch, torch.Tensor) else batch[0]


def read(one, accelerator, loader, beside):
    """The rows that are gathered in one pass, read in the way of the case."""
    held, got = [], []
    if one["read"] == "zipped":
        for batch, (other,) in zip(loader, beside, strict=False):
            x, y = rows_in(batch), other
            got.append(accelerator.gather_for_metrics((x * 2, x))[1])
            assert int(accelerator.gather_for_metrics((y * 2, y))[1].min()) >= 1000
    else:
        for number, batch in enumerate(loader, start=1):
            if one["read"] in ("collected", "uneven"):
                held.append(rows_in(batch))
            else:
                got.append(accelerator.gather_for_metrics(rows_in(batch) * 1))
            if one["read"] == "left early" and number == one["stop"]:
                break
    if one["read"] in ("collected", "uneven"):
        got.append(accelerator.gather_for_metrics(torch.cat([*held, torch.zeros(0, 1, dtype=torch.long)])))
    return [int(v) for rows in got for v in rows]


def check(one, found):
    script = script_batches(one)
    if script is None:
        assert len(found) == len(set(found)), (one, found)
        assert one["drop_last"] or one["skip"] or one["read"] in STOPPED or sorted(found) == list(range(one["n"]))
        return
    steps = len(script) if one["split"] else -(-len(script) // size)
    count = {"left early": min(one["stop"], steps), "zipped": min(steps, BESIDE)}.get(one["read"], steps)
    wanted = list(itertools.chain(*script[: count * (1 if one["split"] else size)]))
    if one["kind"] in ("shuffled", "generator"):
        assert len(found) == len(set(found)) == len(wanted), (one, sorted(found), len(wanted))
        assert set(found) <= set(range(one["n"]))
    else:
        assert found == wanted, (one, found, wanted)


STOPPED = ("left early", "zipped")
BESIDE = 6


def run(one, outer):
    accelerator = accelerators[one["split"], one["dispatch"]]
    if one["read"] == "uneven" and not one["dispatch"]:
        accelerator = uneven[one["split"]]
    prepared = accelerator.prepare(loader_of(one))
    loader = accelerator.skip_first_batches(prepared, one["skip"]) if one["skip"] else prepared
    nested, beside = outer[one["split"], one["dispatch"]]
    for _ in range(one["passes"]):
        for _ in nested if one["read"] == "nested" else [None]:
            check(one, read(one, accelerator, loader, beside))
    if one["read"] in STOPPED:  # what was left early is begun anew, and whole
        check({**one, "read": "alone"}, read({**one, "read": "alone"}, accelerator, loader, beside))


def main():
    set_seed(seed)
    dice = random.Random(seed)
    outer = {}
    for key, accelerator in accelerators.items():
        small = DataLoader(TensorDataset(torch.arange(3)), batch_size=2)
        count = BESIDE if key[0] else BESIDE * size
        other = DataLoader(TensorDataset(1000 + torch.arange(count)), batch_size=1)
        outer[key] = accelerator.prepare(small, other)
    for number in range(cases):
        one = case(dice)
        try:
            run(one, outer)
        except BaseException:
            print("FAILED", number, one, flush=True)
            raise
    print("RESULT true", flush=True)


main()
