"""Saves on some processes, or loads on some others."""

import json
import random
import sys
import warnings
from pathlib import Path

import numpy
import torch
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator, ProjectConfiguration, set_seed

what, folder = sys.argv[1], Path(sys.argv[2])
warnings.simplefilter("ignore")
project = ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=True, total_limit=2)
accelerator = Accelerator(project_config=project, split_batches=True)
rank, size = accelerator.process_index, accelerator.num_processes


class Counter:
    def __init__(self):
        self.count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def parts():
    set_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.0), torch.nn.Linear(4, 1)).double()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    data = TensorDataset(torch.randn(11, 3).double(), torch.arange(11))
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=generator)
    return accelerator.prepare(net, optimizer, scheduler, loader)


def train(epochs):
    for _ in range(epochs):
        for x, rows in loader:
            seen.append(sorted(accelerator.gather_for_metrics(rows).tolist()))
            optimizer.zero_grad()
            accelerator.backward(net(x).pow(2).mean())
            optimizer.step()
            scheduler.step()
        counter.count += 1


net, optimizer, scheduler, loader = parts()
counter, seen = Counter(), []
accelerator.register_for_checkpointing(counter)


def report():
    gathered = accelerator.gather(torch.rand(1))
    noise = [round(value, 6) for value in gathered.tolist()]
    weights = [round(value, 9) for value in net[0].weight.flatten().tolist()]
    plain = [random.random(), float(numpy.random.rand())]
    return {"noise": noise, "weights": weights, "plain": plain, "lr": scheduler.get_last_lr(), "count": counter.count}


if what == "save":
    train(1)
    accelerator.save_state()
    train(1)
    accelerator.save_state()
    seen.clear()
    train(1)
    went_on = {"seen": list(seen), **report()}
    accelerator.save_state()
    found = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert found == ["checkpoint_1", "checkpoint_2"], found
    accelerator.load_state(folder / "checkpoints" / "checkpoint_1")
    seen.clear()
    train(1)
    assert {"seen": seen, **report()} == went_on, "on as many processes it goes on as it would have, bit for bit"
    answer = {**went_on, "next": accelerator.save_iteration}
elif what == "load":
    accelerator.load_state()
    assert counter.count == 2
    train(1)
    answer = {"seen": seen, **report(), "next": accelerator.save_iteration}
elif what == "fails":

    class Broken(Counter):
        def state_dict(self):
            raise OSError("on purpose")

    accelerator.register_for_checkpointing(Broken())
    try:
        accelerator.save_state()
    except (OSError, RuntimeError) as error:
        answer = f"{type(error).__name__}: {error}"
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert names == [".checkpoint_0.partial"], names
elif what == "hooks":

    def take(models, weights, path):
        assert len(models) == len(weights) == 1
        weights.pop()
        (Path(path) / f"own_{rank}").write_text("mine")

    accelerator.register_save_state_pre_hook(take)
    folder = accelerator.save_state(folder / "hooked")
    answer = sorted(json.loads((folder / "manifest.json").read_text())["files"])

print("RESULT " + json.dumps(answer), flush=True)
