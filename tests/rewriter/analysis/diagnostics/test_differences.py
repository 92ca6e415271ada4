"""What a training step draws from numpy: the same numbers on all processes, which is told at each place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]

DRAWS = "noise = np.random.rand(3)"
MIGRATED = """\
import numpy as np
import torch
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    if accelerator.is_main_process:
        noise = np.random.rand(3)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
"""


def test_draws_of_a_training_step_are_told(trained: Trained) -> None:
    assert trained(top="import numpy as np", step=DRAWS)[1] == ["same-noise"]


def test_draws_outside_of_it_are_not(trained: Trained) -> None:
    assert trained(top="import numpy as np", epoch=DRAWS)[1] == []


def test_draws_of_the_main_process_alone_are_not() -> None:
    assert _told(MIGRATED) == []
    assert _told(MIGRATED.replace("accelerator.is_main_process", "len(x) > 3")) == ["same-noise"]


def _told(text: str) -> list[str]:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return [found.id for found in file.diagnoses]
