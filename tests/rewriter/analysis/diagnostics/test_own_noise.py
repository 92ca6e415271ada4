"""What each process draws for its own rows is named, whatever draws it; what is drawn elsewhere is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        row = torch.ones(4)
        {row}
        return row


class Blur(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}
        self.out = nn.Linear(4, 4)
        self.start = torch.randn(4)

    def forward(self, x):
        {forward}
        return self.out(x)


@torch.no_grad()
def show(model):
    return model(torch.rand(2, 4))


def build():
    return nn.GRU(4, 4, 2, dropout=0.3)


model = Blur()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(Rows(), batch_size=4):
    {step}
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    show(model)
"""
PLAIN = {"row": "pass", "layer": "nn.Linear(4, 4)", "forward": "pass", "step": "pass"}
DRAWN = {
    "by the model": ({"forward": "x = x + torch.randn_like(x)"}, ["torch.randn_like"]),
    "in place": ({"forward": "x = x + torch.empty_like(x).normal_()"}, ["normal_"]),
    "by the step": ({"step": "x = x * torch.rand(4)"}, ["torch.rand"]),
    "a number for each row": ({"step": "x = x * torch.randint(0, 9, (len(x), 1))"}, ["torch.randint"]),
    "numbers in a shape": ({"forward": "x = x + torch.randint(0, 9, x.shape)"}, ["torch.randint"]),
    "for a row": ({"row": "row = row + torch.randn(4)"}, ["torch.randn"]),
    "between recurrent layers": ({"layer": "nn.LSTM(4, 4, 2, dropout=rate)"}, ["LSTM"]),
    "where nothing is said": ({"layer": "nn.TransformerEncoderLayer(4, 2)"}, ["TransformerEncoderLayer"]),
}
NOT_DRAWN = {
    "so many as is written": {"step": "x = x if torch.randint(0, 2, (1,)) else -x"},
    "where it is left out": {"layer": "nn.TransformerEncoderLayer(4, 2, dropout=0.0)"},
    "by one recurrent layer": {"layer": "nn.LSTM(4, 4)"},
    "by a generator of the script": {"forward": "x = x + torch.randn(4, generator=self.made)"},
    "where no gradient flows": {},
}


def named(parts: dict[str, str]) -> list[str]:
    text = SCRIPT.format(**{**PLAIN, **parts})
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after
    return [trait.name for trait in file.traits if trait.kind == "noise"]


@pytest.mark.parametrize(("parts", "names"), DRAWN.values(), ids=DRAWN)
def test_noise_is_named(parts: dict[str, str], names: list[str]) -> None:
    assert named(parts) == names


@pytest.mark.parametrize("parts", NOT_DRAWN.values(), ids=NOT_DRAWN)
def test_what_is_no_noise_of_the_training_is_not_named(parts: dict[str, str]) -> None:
    assert named(parts) == []


SAMPLED = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


class Sampler:
    def __init__(self, rows):
        self.rows = rows

    def sample(self, seeds):
        return self.rows[torch.randint(0, 9, (len(seeds), 4))]


def blurred(rows):
    return torch.stack([row + torch.randn(4) for row, in rows])


sampler = Sampler(torch.ones(9))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader({data}, batch_size=4, collate_fn={collate}):
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("data", "collate", "name"),
    [
        ("range(20)", "sampler.sample", "torch.randint"),
        ("TensorDataset(torch.ones(20, 4))", "blurred", "torch.randn"),
    ],
)
def test_what_makes_batches_of_rows_draws_noise(data: str, collate: str, name: str) -> None:
    """Only of a loader of the program's own data sets, and of no method: sampled neighbours were not named."""
    text = SAMPLED.format(data=data, collate=collate)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [trait.name for trait in file.traits if trait.kind == "noise"] == [name]


ANEW = {
    "called at once": ("x = nn.Linear(4, 4)(x)", ["Linear"]),
    "in a layer that is": ("x = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))(x)", ["Sequential"]),
    "with constant weights": ("x = nn.LayerNorm(4)(x)", []),
    "without weights": ("x = nn.Softmax(dim=-1)(x)", []),
    "made once": ("x = self.out(x)", []),
}


@pytest.mark.parametrize(("forward", "names"), ANEW.values(), ids=ANEW)
def test_a_layer_that_each_forward_pass_makes_anew_is_named(forward: str, names: list[str]) -> None:
    """Each process draws other weights for it: nothing said so."""
    text = SCRIPT.format(**{**PLAIN, "forward": forward})
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after
    assert [trait.name for trait in file.traits if trait.kind == "anew"] == names


BY_HAND = """\
import torch
from torch import nn


class Blur(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(x + torch.randn_like(x))


rows = torch.load("rows.pt")
truth = torch.load("truth.pt")
model = Blur()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    picked = torch.randint(len(rows), (8,))
    x = rows[picked] + 0.1 * torch.rand(8, 4)
    loss = (model(x) - truth[picked]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_a_batch_by_hand_is_made_of_is_that_of_all_processes() -> None:
    (file,) = migrate([decode(BY_HAND.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.shard_batch(" in file.after
    assert [trait.name for trait in file.traits if trait.kind == "noise"] == ["torch.randn_like"]
