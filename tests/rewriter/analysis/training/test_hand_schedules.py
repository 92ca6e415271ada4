"""Learning rates that a script sets by itself from a count of its steps, of which each process counts its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

class Warm:
    def __init__(self, inner):
        self.inner = inner
        self.turns = 0
    def rate(self):
        return 0.1 * min(1, self.turns / 500)
    def advance(self):
        self.turns += 1
        for group in self.inner.param_groups:
            group["lr"] = self.rate()
        self.inner.step()

def warm(optimizer, done, most=1000):
    share = min(1.0, done / most)
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * share

def decay(optimizer, factor=0.5):
    for group in optimizer.param_groups:
        group["lr"] *= factor

model = torch.nn.Linear(8, 2)
loader = DataLoader(train, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
warmer = Warm(optimizer)
step = 0
for epoch in range(3):
    EPOCH
    for i, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        STEP
        step += 1
"""


def rates(step: str, epoch: str = "pass", *, keep: bool = False) -> list[str]:
    text = SCRIPT.replace("STEP", step).replace("EPOCH", epoch)
    config = Config(keep_global_batch=keep)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, config).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"
    return [trait.name for trait in file.traits if trait.kind == "rate"]


FOLLOW = {
    "an argument": ("warm(optimizer, step + 1); optimizer.step()", "step"),
    "one group": ('optimizer.param_groups[0]["lr"] = 0.1 / (1 + step); optimizer.step()', "step"),
    "with other settings": ("optimizer.param_groups[0].update(lr=0.1 / (1 + step)); optimizer.step()", "step"),
    "through a variable": (
        "rate = 0.1 * 0.9 ** step\n        for g in optimizer.param_groups: g['lr'] = rate\n        optimizer.step()",
        "step",
    ),
    "the number of enumerate": ("warm(optimizer, i + 900 * epoch); optimizer.step()", "i"),
    "an attribute, through a method": ("warmer.advance()", "self.turns"),
    "a threshold": (
        "if step > 300:\n            for g in optimizer.param_groups: g['lr'] = 0.01\n        optimizer.step()",
        "step",
    ),
    "every step": ("decay(optimizer, 0.999); optimizer.step()", 'group["lr"]'),
}


@pytest.mark.parametrize(("step", "name"), FOLLOW.values(), ids=FOLLOW)
def test_a_rate_that_follows_the_steps_of_one_process(step: str, name: str) -> None:
    assert rates(step) == [name]
    assert rates(step, keep=True) == []


OTHERS = {
    "nothing": ("optimizer.step()", "pass"),
    "epochs": ("optimizer.step()", "warm(optimizer, epoch)"),
    "every epoch": ("optimizer.step()", "decay(optimizer)"),
    "a share of an epoch": ("warm(optimizer, epoch + i / len(loader)); optimizer.step()", "pass"),
    "the first batch of an epoch": (
        "if i == 0:\n            for g in optimizer.param_groups: g['lr'] = 0.01\n        optimizer.step()",
        "pass",
    ),
    "a loop that ends at a count": ("warm(optimizer, step); optimizer.step()\n        if step > 99: break", "pass"),
    "another setting": ('optimizer.param_groups[0]["momentum"] = 0.1 / (1 + step); optimizer.step()', "pass"),
    "a dict of the script's": ('options = {}; options["lr"] = 0.1 / (1 + step); optimizer.step()', "pass"),
}


@pytest.mark.parametrize(("step", "epoch"), OTHERS.values(), ids=OTHERS)
def test_a_rate_that_is_as_on_one_process(step: str, epoch: str) -> None:
    assert rates(step, epoch) == []


TOTAL = """\
import torch
from torch.utils.data import DataLoader

def shrink(optimizer, done, whole):
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * (1 - done / whole)

model = torch.nn.Linear(8, 2)
loader = DataLoader(train, batch_size=32)
EARLY
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
LATE
step = 0
for epoch in range(3):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        shrink(optimizer, COUNT, whole)
"""


def horizons(early: str, late: str, count: str, *, keep: bool = False) -> list[str]:
    text = TOTAL.replace("EARLY", early).replace("LATE", late).replace("COUNT", count)
    (file,) = migrate([decode(text.encode(), Path("t.py"))], CATALOGUE, Config(keep_global_batch=keep)).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"
    return [d.message for d in file.diagnoses if d.id == "early-length"]


@pytest.mark.parametrize("early", ["whole = 3 * len(loader)", "steps = len(loader)\nwhole = steps * 3"])
def test_a_total_from_before_prepare_is_no_horizon_of_the_steps_of_one_process(early: str) -> None:
    (told,) = horizons(early, "model(torch.zeros(1, 8))", "step")
    assert "`step`" in told and "`len(loader)`" in told and "N times too slowly" in told
    assert horizons(early, "model(torch.zeros(1, 8))", "step", keep=True) == []
    assert horizons(early, "model(torch.zeros(1, 8))", "epoch") == []


def test_a_total_from_after_prepare_is_as_long_as_the_steps() -> None:
    assert horizons("", "model(torch.zeros(1, 8))\nwhole = 3 * len(loader)", "step") == []


def test_a_total_of_rows_is_not_shared_by_the_processes() -> None:
    text = SCRIPT.replace("STEP", "warm(optimizer, step, len(train) // 32); optimizer.step()").replace("EPOCH", "pass")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [trait.name for trait in file.traits if trait.kind == "rate"] == ["step"]
