"""Saves in the middle or at the end of an epoch, goes on; then loads into fresh objects, and goes on from there."""

import json
import random
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from torchlift.runtime import Accelerator, DataLoaderConfiguration, set_seed

folder = Path(sys.argv[1])
EPOCHS, AT = 3, 1


class Stream(IterableDataset):
    """The rows of a data set, one after the other."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def release(loader):
    """End its workers. Where the collector finds them in a cycle, torch waits five seconds for each."""
    loader._iterator = None


def train(kind, split, middle, load, stateful=False, persists=False):
    """The weights and draws at the end; `load` begins where the checkpoint of the other run was saved."""
    config = DataLoaderConfiguration(
        use_seedable_sampler=kind == "seedable",
        data_seed=4,
        use_stateful_dataloader=stateful,
        dispatch_batches=kind == "dispatched",
    )
    accelerator = Accelerator(split_batches=split, dataloader_config=config)
    set_seed(30 + load)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)).double()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    generator = torch.Generator().manual_seed(5)
    data = TensorDataset(torch.arange(66.0).double().view(22, 3) / 66)
    order = {"shuffle": True, "generator": generator if kind == "generator" else None}
    if kind == "stream":
        data, order = Stream(list(data)), {}
    workers = 1 if persists else 2 * (kind == "workers")
    loader = DataLoader(data, batch_size=4, **order, num_workers=workers, persistent_workers=persists)
    net, optimizer, scheduler, loader = accelerator.prepare(net, optimizer, scheduler, loader)
    place = folder / f"{kind}-{split}-{middle}-{stateful}-{persists}"
    whole = sum(1 for _ in range(0, 22, 4 if split else 4 * accelerator.num_processes))
    skip = 0
    if load:
        accelerator.load_state(place)
        skip = 0 if stateful else middle
    for epoch in range(AT if load and middle else AT + 1 if load else 0, EPOCHS):
        batches = accelerator.skip_first_batches(loader, skip) if skip else loader
        already = middle if load and stateful and epoch == AT else skip
        for number, (x,) in enumerate(batches, start=already + 1):
            optimizer.zero_grad()
            accelerator.backward((net(x) * random.random()).square().mean())
            optimizer.step()
            scheduler.step()
            if not load and epoch == AT and number == middle:
                accelerator.save_state(place)
        assert number == whole, (epoch, number, "an epoch is not whole")
        if skip:
            release(batches)
        skip = 0
        if not load and epoch == AT and not middle:
            accelerator.save_state(place)
    release(loader)
    flat = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    return [*flat.tolist(), *scheduler.get_last_lr(), random.random(), torch.rand(()).item()]


def main():
    for kind in ("seedable", "generator", "plain"):
        for split in (True, False):
            for middle in (0, 2) if kind == "seedable" else (0,):
                went_on, came_back = (train(kind, split, middle, load) for load in (False, True))
                assert went_on == came_back, (kind, split, middle, went_on[:3], came_back[:3])
    for kind in ("seedable", "generator", "plain", "stream", "dispatched", "workers"):
        for split, middle in ((True, 2), (False, 1)):
            went_on, came_back = (train(kind, split, middle, load, stateful=True) for load in (False, True))
            assert went_on == came_back, ("stateful", kind, split, middle, went_on[:3], came_back[:3])
    for kind in ("seedable", "plain", "stream", "dispatched"):
        for split, middle in ((True, 2), (False, 1), (True, 0))[: 3 if kind in ("seedable", "plain") else 1]:
            for stateful in (False, True) if kind == "seedable" or not middle else (True,):
                case = kind, split, middle
                went_on, came_back = (train(*case, load, stateful, persists=True) for load in (False, True))
                assert went_on == came_back, ("persistent", *case, stateful, went_on[:3], came_back[:3])
    print("RESULT " + json.dumps(True), flush=True)


main()
