"""Decisions by how many elements a list has, and by what is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]

LOSS = "loss = torch.nn.functional.cross_entropy(model(x), y)"
HITS = "(model(x).argmax(1) == y).float().mean().item()"


@pytest.mark.parametrize(
    ("built", "loss"),
    [
        ("kept = []", "kept.append(x)\nif len(kept) < 2:\n    continue"),
        ("kept = []", "kept.append(x)\nif not kept:\n    continue"),
        ("kept = []", "kept.append(x)\nif len(kept) == 2:\n    kept = []\nelse:\n    continue"),
        ("kept = []", "kept.append(x)\nif len(kept) > 2:\n    kept.pop(0)\n    continue"),
        ("from collections import deque\nkept = deque(maxlen=4)", "kept.append(x)\nif len(kept) < 4:\n    continue"),
        ("", "kept = [x * scale for scale in (1, 2)]\nif len(kept) < 2:\n    continue"),
        ("def few(rows):\n    return len(rows) < 2\n\nkept = []", "kept.append(x)\nif few(kept):\n    continue"),
    ],
    ids="appended_to asked_by_itself emptied shortened a_queue a_comprehension in_a_function".split(),
)
def test_a_list_that_each_turn_fills_is_as_long_everywhere(trained: Trained, built: str, loss: str) -> None:
    text, findings = trained(built=built, loss=f"{loss}\n{LOSS}")
    assert findings == [] and "accelerator.backward(loss)" in text


@pytest.mark.parametrize(
    ("built", "loss"),
    [
        ("kept = []", "if y.sum() > 3:\n    kept.append(x)\nif len(kept) < 2:\n    continue"),
        ("kept = []", "if y.sum() > 3:\n    kept.append(x)\nif not kept:\n    continue"),
        ("kept = []", "kept.append(x)\nif y.sum() > 3:\n    kept = []\nif len(kept) < 2:\n    continue"),
        ("kept = []", "kept.append(x)\nif y.sum() > 3:\n    kept.pop()\nif len(kept) < 2:\n    continue"),
        ("kept = []", "kept.extend(y[y > 0].tolist())\nif len(kept) < 2:\n    continue"),
        ("kept = set()", "kept.add(int(y[0]))\nif len(kept) < 2:\n    continue"),
        ("kept = []", f"kept.append({HITS})\nif sum(kept) / len(kept) > 0.9:\n    continue"),
        ("kept = []", f"kept.append({HITS})\nif kept[-1] > 0.9:\n    continue"),
    ],
    ids="appended_to asked_by_itself emptied shortened extended a_set its_mean its_last".split(),
)
def test_a_list_that_only_some_rows_fill(trained: Trained, built: str, loss: str) -> None:
    """What is in the list is one process's own, too."""
    text, findings = trained(built=built, loss=f"{loss}\n{LOSS}")
    assert findings == ["local-decision"] and "Accelerator" not in text


def test_a_list_of_this_batch_leaves_the_step_out_for_all(trained: Trained) -> None:
    loss = "kept = [row for row in y if row > 0]\nif len(kept) < 2:\n    continue"
    text, findings = trained(loss=f"{loss}\n{LOSS}")
    assert findings == ["local-decision"] and "torch.tensor(bool(len(kept) < 2), dtype=torch.float64)" in text


MEMORY = """\
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self):
        self.loader = DataLoader(rows, batch_size=4)
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.memory = []

    def train(self):
        for x, y in self.loader:
            {kept}
            if len(self.memory) < 2:
                continue
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

Trainer().train()
"""


def test_a_list_of_an_object() -> None:
    told = {
        "self.memory.append(x.mean().item())": [],
        "if y.max() > 3: self.memory.append(x.mean().item())": ["local-decision"],
    }
    for kept, ids in told.items():
        (file,) = migrate([decode(MEMORY.format(kept=kept).encode(), Path("train.py"))], CATALOGUE, Config()).files
        assert [d.id for d in file.diagnoses if d.id == "local-decision"] == ids, kept
