"""Data sets that read on by themselves: each process would read the same rows, which is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import random
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self, path):
        self.table = torch.load(path)
        self.file = open(path)
        self.feed = iter(self.table)
        self.at = 0

    def __len__(self):
        return 100

    def take(self):
        return next(self.feed)

    def __getitem__(self, place):
        {row}

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(Rows("rows.pt"), batch_size=4):
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def _told(row: str) -> list[tuple[str, str]]:
    text = SCRIPT.format(row=row.replace("\n", "\n        "))
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return [(d.severity.value, d.message) for d in file.diagnoses if d.id in ("own-stream", "same-noise")]


@pytest.mark.parametrize(
    ("row", "read"),
    [
        ("return torch.tensor([float(w) for w in self.file.readline().split()])", "self.file.readline()"),
        ("return next(self.feed)", "next(self.feed)"),
        ("return self.take()", "next(self.feed)"),
        ("if place >= len(self):\n    raise IndexError\nreturn next(self.feed)", "next(self.feed)"),
        ("self.at += 1\nreturn self.table[self.at]", "self.at += 1"),
        ("self.at = self.at + random.randint(1, 3)\nreturn self.table[self.at]", "self.at = "),
        ("w = next(self.feed)\nreturn self.table[random.randint(0, 9)] + w", "next(self.feed)"),
    ],
)
def test_a_row_that_does_not_depend_on_the_index_is_refused(row: str, read: str) -> None:
    ((severity, message),) = _told(row)
    assert severity == "blocked"
    assert message.startswith(f"`Rows.__getitem__` does not use `place`: it reads on with `{read}")


@pytest.mark.parametrize(
    "row",
    [
        "return self.table[place]",
        "self.at = place\nreturn self.table[self.at]",
        "self.file.seek(8 * place)\nreturn torch.tensor(float(self.file.readline()))",
        "return torch.rand(4)",
        "return torch.zeros(4)",
    ],
    ids=["by the index", "by a copy of it", "a place of the file", "drawn by torch", "constant"],
)
def test_a_row_of_the_index_or_a_draw_is_no_stream(row: str) -> None:
    assert _told(row) == []


def test_what_may_read_on_is_told() -> None:
    ((severity, message),) = _told("return torch.tensor(self.table.sample_row())")
    assert severity == "review" and "if `self.table.sample_row()` gives another row each time" in message
