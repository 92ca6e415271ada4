"""What an old script calls fails on one device too, and is said wherever it is."""

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

model = torch.nn.Linear(4, 2)
loader = DataLoader(rows, batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(loader)
for step in range(8):
    x, y = DRAW
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    THEN
"""


def told(draw: str, then: str) -> list[tuple[str, str, str]]:
    text = SCRIPT.replace("DRAW", draw).replace("THEN", then)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return [(d.id, d.severity.value, d.message.partition(",")[0]) for d in file.diagnoses]


@pytest.mark.parametrize(
    ("draw", "then", "says"),
    [
        ("batches.next()", "pass", ("unknown-loader", "blocked", "`batches.next()` fails")),
        ("next(batches)", "batches.next()", ("outdated", "review", "`batches.next()` fails")),
        ("next(batches)", "print(loss.data[0])", ("outdated", "review", "`loss.data[0]` fails")),
        ("next(batches)", "total = loss[0]", None),
        ("next(batches)", "first = x.data[0]", None),
    ],
)
def test_what_pytorch_does_not_have_any_more(draw: str, then: str, says: tuple[str, str, str] | None) -> None:
    assert told(draw, then) == ([says] if says else [])
