"""The best of all batches: a figure of each, compared with those before."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

PROGRAM = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from rows import kept, rows

loader, held = DataLoader(rows, batch_size=8), DataLoader(kept, batch_size=8)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    best, hits = None, 0
    with torch.no_grad():
        for x, y in held:
            out = model(x)
            hits += (out.argmax(1) == y).sum().item()
            EACH
    print(best, hits)
"""


def is_whole(each: str) -> bool:
    """Whether the evaluation is left as it is."""
    (file,) = migrate([decode(PROGRAM.replace("EACH", each).encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert "accelerator.backward(loss)" in text
    return "whole-evaluation" in [d.case for d in file.diagnoses] and "gather" not in text


LOSS = "loss = F.cross_entropy(out, y)\n            "
BEST = {
    "the lowest of the highest rows": "best = min(best, out.max().item())",
    "a lower loss": LOSS + "if best is None or loss.item() < best:\n                best = loss.item()",
    "the lowest loss": LOSS + "best = min(best, loss.item())",
    "an accuracy": "share = (out.argmax(1) == y).float().mean().item()\n            best = max(share, best)",
    "a number of hits": "good = (out.argmax(1) == y).sum().item()\n            if best < good: best = good",
    "another thing of the best": LOSS + "if best is None or best[0] > loss:\n                best = loss, x[0]",
}


@pytest.mark.parametrize("each", BEST.values(), ids=BEST)
def test_the_best_batch_is_found_among_the_scripts_own(each: str) -> None:
    """The rows of several batches were joined, and the lowest of their means was another number; nobody said so."""
    assert is_whole(each)


SHARED = {
    "the highest row": "best = max(best or 0, out.max().item())",
    "a figure of the epoch": LOSS + "best = (best or 0) + loss.item() * len(y)",
    "a new variable": LOSS + "low = loss.item()\n            if low < 1: low = 1",
    "the number of rows": "if len(y) > 0: best = 1",
}


@pytest.mark.parametrize("each", SHARED.values(), ids=SHARED)
def test_what_rows_give_together_is_shared(each: str) -> None:
    assert not is_whole(each)
