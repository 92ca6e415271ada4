"""Samplers that are handed over in lists, and loaders that a generator reads again and again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.rewriter.findings import Severity

SCRIPT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset


def endless(loader):
    while True:
        for batch in loader:
            yield batch


def once(loader):
    for batch in loader:
        yield batch


def samplers_of(datasets):
    samplers = []
    for dataset in datasets:
        samplers.append(DistributedSampler(dataset))
    return samplers


def loaders_of(datasets, samplers):
    loaders = []
    for dataset, sampler in zip(datasets, samplers):
        loaders.append(DataLoader(dataset, batch_size=4, sampler=sampler))
    return loaders


def main():
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    LOADER
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    LOOP
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""
LISTED = "loader = loaders_of([data], samplers_of([data]))[0]"
SHUFFLED = "loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))"


def script(loader: str, loop: str) -> str:
    return SCRIPT.replace("LOADER", loader).replace("LOOP", loop)


def test_a_sampler_of_a_list_may_shard(told: Callable[[str], dict[str, Severity]]) -> None:
    lines = "for x, y in loader:"
    assert told(script(LISTED, lines)) == {"not-followed": Severity.NOTE}
    plain = "loader = DataLoader(data, batch_size=4, sampler=RandomSampler(data))"
    assert told(script(plain, lines)) == {"unsharded-loader": Severity.ERROR}


@pytest.mark.parametrize("generator", ["endless(loader)", "once(loader)"])
def test_a_generator_that_reads_a_loader_again_and_again(generator: str, found: Callable[[str], set[str]]) -> None:
    steps = f"batches = {generator}\n    for step in range(100):\n        x, y = next(batches)"
    repeats = generator.startswith("endless")
    assert found(script(SHUFFLED, steps)) == ({"missing-set-epoch"} if repeats else set())
    ordered = SHUFFLED.replace("DistributedSampler(data)", "DistributedSampler(data, shuffle=False)")
    assert found(script(ordered, steps)) == set()
    told = steps.replace("        x, y", "        loader.sampler.set_epoch(step)\n        x, y")
    assert found(script(SHUFFLED, told)) == set()


def test_a_sampler_of_one_process(found: Callable[[str], set[str]]) -> None:
    """It is made for as many processes as it is told."""
    built = "loader = build(data, SIZE)"
    build = (
        "def build(data, size=1):\n    sampler = DistributedSampler(data, num_replicas=size, rank=0, shuffle=False)\n"
    )
    build += "    return DataLoader(data, batch_size=4, sampler=sampler)\n\n\ndef main"
    text = script(built, "for x, y in loader:").replace("def main", build, 1)
    for size, expected in (("1", {"unsharded-loader"}), ("dist.get_world_size()", set())):
        assert found(text.replace("SIZE", size)) == expected
    assert found(text.replace(", SIZE", "")) == {"unsharded-loader"}


EVALUATES = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = nn.Linear(4, 1)
model.eval()
correct = 0
with torch.no_grad():
    for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False)):
        correct += ((model(x) > 0) == (y > 0)).sum().item()
print(correct / len(data))
"""


def test_a_script_that_only_evaluates(told: Callable[[str], dict[str, Severity]]) -> None:
    """It may be started as one process."""
    assert told(EVALUATES)["one-rank-metric"] is Severity.REVIEW
    steps = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nfor x, y in DataLoader(data, 4):\n"
    steps += "    model(x).sum().backward()\n    optimizer.step()\nmodel.eval()"
    trains = EVALUATES.replace("model.eval()", steps)
    assert told(trains)["one-rank-metric"] is Severity.ERROR
