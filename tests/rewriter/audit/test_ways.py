"""Programs that are right in a way of their own, each beside one that differs in a line and is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.rewriter.findings import Severity

BY_HAND = """\
import json
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

BEFORE

dist.init_process_group("gloo")
rank = dist.get_rank()
DATA
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
AFTER
"""
SHARDED = """\
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)"""
DEVICE = """\
def evaluate(name="cuda:0"):
    net = nn.Linear(4, 1).to(torch.device(name))
    with torch.no_grad():
        return net(torch.randn(8, 4).to(name))
"""
OWN_PART = """\
class Part(Dataset):
    def __init__(self, rows, shard=0, shards=1):
        self.rows = rows[shard::shards]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.rows[index].sum()
"""
PART = """\
data = Part(torch.randn(64, 4), shard=FIRST, shards=MPI.COMM_WORLD.Get_size())
sampler = DistributedSampler([0])
loader = DataLoader(data, batch_size=4, shuffle=True)"""
ALIKE = PART.replace("FIRST", "0").replace("MPI.COMM_WORLD.Get_size()", "2")
BRANCHES = """\
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
sampler = DistributedSampler(data)
if TEST:
    loader = DataLoader(data, batch_size=4, sampler=sampler)
else:
    loader = DataLoader(data, batch_size=4, shuffle=True)"""
ROUNDS = """\
for first in range(0, 8, 2):
    if first + rank < 7:
        if first == 2:
            SKIP
            continue
        print(first)
    dist.all_reduce(torch.ones(1))
"""
LEAVES = """\
def measure(model, whole):
    main = rank == 0
    if TEST:
        return
    if whole:
        dist.barrier()


measure(model.module, len(os.environ) > 9)
"""
STARRED = """\
class Pair:
    def __init__(self, width=4, place=0):
        self.net = nn.Linear(width, 1)
        self.net.cuda(place)


settings = dict(width=4)
settings.update(place=rank)
Pair(GIVEN)
"""
MAKES = """\
def launch(folder):
    if TEST:
        os.makedirs(folder)
        with open(os.path.join(folder, "settings.json"), "w") as file:
            json.dump({}, file)


launch("run")
"""
SAVES = """\
state = model.module.state_dict() if hasattr(model, "module") else model.state_dict()
if rank == 0:
    torch.save(state, "model.pt")
"""


def by_hand(before: str = "", data: str = SHARDED, after: str = "") -> str:
    """The script with functions before it, other data, and more at its end."""
    return BY_HAND.replace("BEFORE", before).replace("DATA", data).replace("AFTER", after)


HIDDEN = 'os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["SLURM_LOCALID"]\n'
SHOWN = 'os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"\n'

RIGHT = {
    "each process sees one GPU": by_hand(HIDDEN + DEVICE, after="evaluate()"),
    "a data set that is cut by the rank of MPI": by_hand(OWN_PART, PART.replace("FIRST", "MPI.COMM_WORLD.Get_rank()")),
    "the branch without a group": by_hand(data=BRANCHES.replace("TEST", "dist.is_initialized()")),
    "the branch of one process": by_hand(data=BRANCHES.replace("TEST", "dist.get_world_size() > 1")),
    "the plain model where there is no wrapper": by_hand(after=SAVES),
    "a collective on both ways of a turn": by_hand(after=ROUNDS.replace("SKIP", "dist.all_reduce(torch.ones(1))")),
    "a device that stars hand over": by_hand(after=STARRED.replace("GIVEN", "**settings")),
    "one process makes what is missing": by_hand(
        after=MAKES.replace("TEST", "rank == 0 and not os.path.isdir(folder)")
    ),
    "who leaves is not waited for": by_hand(after=LEAVES.replace("TEST", "not whole and not main")),
}
WRONG = {
    "all processes see all GPUs": (by_hand(SHOWN + DEVICE, after="evaluate()"), "wrong-device", Severity.ERROR),
    "a data set that is cut alike": (by_hand(OWN_PART, ALIKE), "unsharded-loader", Severity.ERROR),
    "the branch of a flag": (
        by_hand(data=BRANCHES.replace("TEST", 'len(os.environ) > 9')), "unsharded-loader", Severity.ERROR
    ),
    "a device that is left at its default": (
        by_hand(after=STARRED.replace("GIVEN", "width=4")),
        "wrong-device",
        Severity.ERROR,
    ),
    "all make what is missing": (
        by_hand(after=MAKES.replace("TEST", "not os.path.isdir(folder)")),
        "unguarded-write",
        Severity.REVIEW,
    ),
    "the wrapper is saved": (
        by_hand(after="if rank == 0:\n    torch.save(model.state_dict(), 'model.pt')"), "saved-wrapper", Severity.ERROR
    ),
    "a turn without the collective": (
        by_hand(after=ROUNDS.replace("SKIP", "pass")), "collective-apart", Severity.REVIEW
    ),
    "who leaves is waited for": (
        by_hand(after=LEAVES.replace("TEST", "not main")), "collective-apart", Severity.ERROR
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_reported(name: str, found: Callable[[str], set[str]]) -> None:
    assert found(RIGHT[name]) == set()


@pytest.mark.parametrize("name", WRONG)
def test_what_differs_in_a_line_is(name: str, told: Callable[[str], dict[str, Severity]]) -> None:
    text, id, severity = WRONG[name]
    assert told(text).get(id) is severity


WITH_ACCELERATE = """\
import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

CLASSES


class Trainer:
    def __init__(self, net, loader, test):
        self.accelerator = Accelerator()
        self.net = net
        self.optimizer = OPTIMIZER
        self.net, self.optimizer, self.loader = self.accelerator.prepare(net, self.optimizer, loader)
        self.test = test

    def train(self):
        for x, y in self.loader:
            loss = nn.functional.mse_loss(self.net(x), y)
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
        if self.accelerator.is_main_process:
            torch.save(SAVED, "state.pt")

    def measure(self):
        with torch.no_grad():
            for x, y in self.test:
                guess = self.net(x.to(self.accelerator.device))
                self.accelerator.gather_for_metrics((guess, y.to(self.accelerator.device)))


def rows():
    return TensorDataset(torch.randint(0, 9, (64, 3)), torch.randn(64, 1))


TEST
trainer = Trainer(Net(), DataLoader(rows(), batch_size=4, shuffle=True), test)
trainer.train()
"""
NET = """\
def look_up(table, codes):
    return table(codes.clamp(min=0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(look_up(self.table, x)).mean(1)
"""
WARMUP = """\


class Warmup(nn.Module):
    def __init__(self, optimizer):
        super().__init__()
        self.optimizer = optimizer

    def STATE(self):
        return {"inner": self.optimizer.state_dict()}

    def step(self):
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()
"""


def with_accelerate(
    classes: str = NET, optimizer: str = "", saved: str = "self.loader", test: str = "test = []"
) -> str:
    """The trainer with other classes, another optimizer, and what it saves."""
    plain = "torch.optim.SGD(net.parameters(), lr=0.1)"
    text = WITH_ACCELERATE.replace("CLASSES", classes).replace("OPTIMIZER", optimizer or plain).replace("SAVED", saved)
    return text.replace("TEST", test)


def test_a_layer_that_forward_hands_to_a_helper(found: Callable[[str], set[str]]) -> None:
    assert "unwrapped-model" not in found(with_accelerate())
    bypassed = (
        with_accelerate()
        .replace("self.net(x), y", "self.inner(x), y")
        .replace("self.test = test", "self.test = test\n        self.inner = self.accelerator.unwrap_model(self.net)")
    )
    assert "unwrapped-model" in found(bypassed)


@pytest.mark.parametrize(("method", "reported"), [("state_dict", False), ("state", True)])
def test_the_names_of_a_state_dict_of_the_program(
    method: str, reported: bool, found: Callable[[str], set[str]]
) -> None:
    classes = NET + WARMUP.replace("STATE", method)
    text = with_accelerate(classes, "Warmup(torch.optim.SGD(net.parameters(), lr=0.1))", "self.optimizer.state_dict()")
    assert ("saved-wrapper" in found(text)) is reported


def test_an_evaluation_that_gathers_what_all_processes_read(words: Callable[[str], list[str]]) -> None:
    text = with_accelerate(test="test = DataLoader(rows(), batch_size=4)") + "trainer.measure()\n"
    told = [line for line in words(text) if "gathers batches that every process reads" in line]
    assert len(told) == 1
    unmoved = text.replace("x.to(self.accelerator.device)", "x").replace("y.to(self.accelerator.device)", "y")
    assert any("are not moved to the device" in line for line in words(unmoved))
