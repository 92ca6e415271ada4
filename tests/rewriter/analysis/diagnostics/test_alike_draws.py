"""Random numbers for rows, without loader workers: the same on all processes, which the summary says."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.expect import expectations
from torchlift.rewriter.result import Result
from torchlift.rewriter.source import decode

SCRIPT = """\
import random
import numpy as np
import torch
from numba import njit
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision import transforms


class Blur:
    def __call__(self, row):
        return row * random.random()


class Fog:
    def thin(self, row):
        return row * random.random()

    def __call__(self, row):
        return self.thin(row)


class Chain(transforms.Compose):
    def __call__(self, row):
        for change in self.transforms:
            row = change(row)
        return row


def shift(row):
    return row + np.random.normal()


@njit
def scatter(row):
    return row + np.random.normal()


class Rows(Dataset):
    def __init__(self, change=None):
        self.change = change
        self.rows = torch.ones(64, 4)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        row = self.rows[index]
        {row}
        return row


{loader}
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
"""
ROWS = "loader = DataLoader(Rows({}), batch_size=8{})"


def summary(row: str, made: str = "", more: str = "", loader: str = ROWS) -> list[str]:
    text = SCRIPT.format(row=row, loader=loader.format(made, more))
    result = Result(tuple(migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files))
    assert b"accelerator.backward(" in result.files[0].after
    return list(expectations(result))


def told(found: list[str]) -> list[str]:
    """The calls that are said to draw the same."""
    return [line.partition(" (")[0] for line in found if "each process draws the same numbers" in line]


DRAWS = {
    "in the data set": ("row = row * random.random()", ""),
    "in a function": ("row = shift(row)", ""),
    "in an object that it keeps": ("row = self.change(row)", "Blur()"),
    "in a method of such an object": ("row = self.change(row)", "Fog()"),
    "in one of several": ("row = self.change(row)", "transforms.Compose([transforms.ToTensor(), Blur()])"),
    "in one of several of a chain of the script's own": ("row = self.change(row)", "Chain([Blur()])"),
    "in a function that is handed on": ("row = self.change(row)", "transforms.Lambda(shift)"),
}


@pytest.mark.parametrize(("row", "made"), DRAWS.values(), ids=DRAWS)
def test_what_is_drawn_for_a_row_without_workers_is_said(row: str, made: str) -> None:
    assert told(summary(row, made)) == ["np.random.normal" if "shift" in row + made else "random.random"]
    assert told(summary(row, made, ", num_workers=count()")) != []
    assert told(summary(row, made, ", num_workers=2")) == []


def test_a_part_of_a_data_set_is_looked_at_too() -> None:
    split = "part, rest = random_split(Rows(), [32, 32])\nloader = DataLoader(part, batch_size=8{1})"
    assert told(summary("row = shift(row)", loader=split)) == ["np.random.normal"]
    assert told(summary("row = shift(row)", more=", num_workers=2", loader=split)) == []


@pytest.mark.parametrize("row", ["row = row + torch.rand(4)", "row = scatter(row)", "row = row * 2"])
def test_what_differs_is_not(row: str) -> None:
    assert told(summary(row)) == []


FLIPPED = "row = self.flip(row)"
OWN = "each process draws its own random transforms"
NOISE = "each process draws its own noise"


@pytest.mark.parametrize("seed", ["random.randint(0, 9)", "np.random.randint(9)", "7"])
def test_torch_that_each_row_seeds_draws_the_same_after_it(seed: str) -> None:
    flip = "flip = transforms.RandomHorizontalFlip()\n" + ROWS
    row = f"seed = {seed}\n        torch.manual_seed(seed)"
    found = " ".join(summary(row, loader=flip))
    assert "torch draws after that is the same on all processes: RandomHorizontalFlip, Dropout." in found
    assert OWN not in found and NOISE not in found
    found = " ".join(summary(row, more=", num_workers=2", loader=flip))
    assert OWN in found and NOISE in found


def test_a_seed_that_differs_between_processes() -> None:
    found = " ".join(summary("torch.manual_seed(index)"))
    assert "the same on all processes" not in found and NOISE in found
