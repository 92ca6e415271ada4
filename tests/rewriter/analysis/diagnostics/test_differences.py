"""What a training step draws from numpy: the same numbers on all processes, which is told at each place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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


PAIRS = """\
import random
import numpy as np

class Pairs(torch.utils.data.Dataset):
    def __getitem__(self, index):
        first = {first}
        return self.rows[{second}]"""


@pytest.mark.parametrize(
    ("first", "second", "findings"),
    [
        ("random.randint(0, 9)", "first", ["same-noise"]),
        ("index", "np.random.randint(len(self.rows))", ["same-noise"]),
        ("random.random()", "index", []),
        ("torch.randint(0, 9, (1,)).item()", "first", []),
    ],
    ids=["by a name", "in the brackets", "an augmentation", "of torch"],
)
def test_rows_that_a_data_set_chooses_itself(first: str, second: str, findings: list[str], trained: Trained) -> None:
    assert trained(top=PAIRS.format(first=first, second=second))[1] == findings


CROSS = "torch.nn.functional.cross_entropy"
PACKED = """\
out, _ = torch.nn.utils.rnn.pack_padded_sequence(model(x), [3, 2], batch_first=True)
words, _ = torch.nn.utils.rnn.pack_padded_sequence(y, [3, 2], batch_first=True)
loss = {cross}(out, words{more})"""
PACKED_DATA = """\
out = torch.nn.utils.rnn.pack_padded_sequence(model(x), [3, 2], batch_first=True).data
loss = {cross}(out, y{more})"""
MASKED = """\
known = y != 0
out = model(x)[known]
loss = {cross}(out, y[known]{more})"""


@pytest.mark.hazard("X19")
@pytest.mark.parametrize("loss", [PACKED, PACKED_DATA, MASKED], ids=["packed", "packed, its data", "by a mask"])
def test_a_mean_over_as_many_as_a_process_has(loss: str, trained: Trained) -> None:
    assert trained(loss=loss.format(cross=CROSS, more=""))[1] == ["weighted-mean"]
    text, found = trained(loss=loss.format(cross=CROSS, more=', reduction="sum"'))
    assert 'accelerator.backward(loss, reduction="sum")' in text
    assert found == []


@pytest.mark.hazard("X19")
@pytest.mark.parametrize(("more", "findings"), [("", ["weighted-mean"]), (", reduction='sum'", [])])
@pytest.mark.parametrize("by", ["weight=rare", "ignore_index=0"])
def test_a_sum_is_not_divided_by_its_weights(by: str, more: str, findings: list[str], trained: Trained) -> None:
    loss = f"loss = torch.nn.functional.cross_entropy(model(x), y, {by}{more})"
    assert _weighted(trained(loss=loss)[1]) == findings
    built = f"criterion = torch.nn.CrossEntropyLoss({by}{more})"
    assert _weighted(trained(built=built, loss="loss = criterion(model(x), y)")[1]) == findings


def _weighted(found: list[str]) -> list[str]:
    return [one for one in found if one == "weighted-mean"]


def test_rows_at_places_that_are_known_are_as_many_everywhere(trained: Trained) -> None:
    assert trained(loss=f"out = model(x)[:, 0]\nloss = {CROSS}(out, y)")[1] == []


def test_draws_outside_of_it_are_not(trained: Trained) -> None:
    assert trained(top="import numpy as np", epoch=DRAWS)[1] == []


def test_draws_of_the_main_process_alone_are_not() -> None:
    assert _told(MIGRATED) == []
    assert _told(MIGRATED.replace("accelerator.is_main_process", "len(x) > 3")) == ["same-noise"]


def _told(text: str) -> list[str]:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return [found.id for found in file.diagnoses]


def test_a_loss_that_the_model_computes_by_itself_is_looked_at(trained: Trained) -> None:
    top = (
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.out = torch.nn.Linear(8, 2)\n\n    def forward(self, x, y):\n        scores = self.out(x)\n"
        "        loss = torch.nn.functional.cross_entropy(scores, y, ignore_index=-1)\n        return scores, loss\n"
    )
    _, found = trained(top=top, built="net = Net().to(device)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)",
                       loss="scores, loss = net(x, y)")  # fmt: skip
    assert "weighted-mean" in found
