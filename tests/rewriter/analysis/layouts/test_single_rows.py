"""Loaders that give one row a batch: what may have another shape on each process is not gathered."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import Diagnosis
from torchlift.rewriter.source import decode

TOP = """\
import argparse
import numpy as np
import torch
import torchvision
from torch.utils.data import DataLoader

class Photos(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return self.photos[index], self.masks[index]

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=1)
args = parser.parse_args()

def make_loader(data, rows):
    return DataLoader(data, batch_size=rows, shuffle=True)

model = torch.nn.Conv2d(1, 1, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAIN = """\
hits = rows = 0
for x, y in loader:
    out = model(x)
    loss = torch.nn.functional.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hits += {hits}
    rows += x.size(0)
print(hits / rows)
"""
BY_PIXEL = "torch.where(out > 0.5, y, 1.0).float().mean(dim=(1, 2, 3)).sum().item()"
EVALUATE = """\
right = 0
with torch.no_grad():
    for x, y in held:
        out = model(x)
        right += torch.where(out > 0.5, y, 1.0).float().mean(dim=(1, 2, 3)).sum().item()
print(right)
"""
SUM = 'reduction="sum").item()'


def migrated(text: str) -> tuple[str, list[Diagnosis]]:
    (file,) = migrate([decode((TOP + text).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "accelerator.backward(loss)" in file.after.decode()
    return file.after.decode(), list(file.diagnoses)


LOADERS = {
    "one row": ("DataLoader(Photos(), batch_size=1)", True),
    "one row by default": ("DataLoader(Photos(), shuffle=True)", True),
    "by position": ("DataLoader(Photos(), 1)", True),
    "by an option": ("make_loader(Photos(), args.rows)", True),
    "a part": ("DataLoader(torch.utils.data.Subset(Photos(), [0, 1]), 1)", True),
    "several rows, which have one shape": ("DataLoader(Photos(), batch_size=2)", False),
    "tensors": ("DataLoader(torch.utils.data.TensorDataset(photos, masks), batch_size=1)", False),
    "a part of tensors": (
        "DataLoader(torch.utils.data.Subset(torch.utils.data.TensorDataset(photos, masks), [0, 1]), 1)",
        False,
    ),
    "digits": ("DataLoader(torchvision.datasets.MNIST('data'), batch_size=1)", False),
    "house numbers": ("DataLoader(torchvision.datasets.SVHN('data'), batch_size=1)", False),
    "small photos": ("DataLoader(torchvision.datasets.STL10('data'), batch_size=1)", False),
}


@pytest.mark.parametrize(("loader", "single"), LOADERS.values(), ids=LOADERS)
def test_numbers_are_reduced_where_rows_may_have_any_shape(loader: str, single: bool) -> None:
    """Each process met photos of another size, and the first gather failed."""
    text, findings = migrated(f"loader = {loader}\n{TRAIN.format(hits=BY_PIXEL)}")
    assert ("gather_for_metrics" not in text) is single
    assert (text.count(SUM) == 2) is single
    assert [found.id for found in findings] == ["filled-batch"] * single


def test_what_is_no_number_stays_and_is_named() -> None:
    step = "elsewhere.compare(out, y)"
    text, findings = migrated(
        f"import elsewhere\nloader = DataLoader(Photos(), batch_size=1)\n{TRAIN.format(hits=step)}"
    )
    assert "gather" not in text and SUM not in text
    messages = [found.message for found in findings if found.id == "metrics_gather"]
    assert any("may have another shape on each process" in message for message in messages)
    assert all("gather" not in found.remedy for found in findings)


@pytest.mark.parametrize(("loader", "single"), LOADERS.values(), ids=LOADERS)
def test_such_an_evaluation_stays_whole(loader: str, single: bool) -> None:
    train = "loader = DataLoader(Photos(), batch_size=2)\n" + TRAIN.format(hits="0")
    text, findings = migrated(f"{train}held = {loader}\n{EVALUATE}")
    assert ("out, y = accelerator.gather_for_metrics((out, y))" not in text) is single
    told = [found.message for found in findings if "may have another shape on each process" in found.message]
    assert len(told) == single
    assert all("accelerator.reduce" in found.remedy for found in findings if found.message in told)


@pytest.mark.parametrize(
    "options",
    ["**{'batch_size': 1}", "shuffle=False, **single", "**{'shuffle': False}", "**{'batch_size': 2}", "**args.other"],
)
def test_options_say_how_many_rows_a_batch_has(options: str) -> None:
    train = "single = {'batch_size': 1}\nloader = DataLoader(Photos(), batch_size=2)\n" + TRAIN.format(hits="0")
    text, findings = migrated(f"{train}held = DataLoader(Photos(), {options})\n{EVALUATE}")
    single = "2" not in options and "other" not in options
    assert ("out, y = accelerator.gather_for_metrics((out, y))" not in text) is single
    assert any("may have another shape on each process" in found.message for found in findings) is single


MET = """\
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
rows = torch.utils.data.TensorDataset(points, answers)
loader, held = DataLoader(rows, batch_size=8), DataLoader(rows, batch_size={size})
right = total = 0
for x, y in {trains}:
    loss = torch.nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    for x, y in held:
        out = net(x)
        {step}
print(right, total)
"""
STEPS = {
    "compared": ("right += (out.argmax(-1) == y).sum().item()", "out.argmax(-1) == y"),
    "compared by a name": ("guess = out.argmax(-1)\n        right += torch.sum(guess == y).item()", "guess == y"),
    "subtracted": ("total += ((out - y) ** 2).sum().item()", "out - y"),
}


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize(("step", "met"), STEPS.values(), ids=STEPS)
def test_one_row_would_meet_those_of_others(step: str, met: str, size: int) -> None:
    """A label of ``(1, 1)`` is that of a guess of ``(1,)``; two joined labels each meet both guesses: four figures."""
    text, findings = migrated(MET.format(size=size, trains="loader", step=step))
    told = [found.message for found in findings if "known to have as many dimensions" in found.message]
    assert ["every process evaluates the whole set" in message and f"`{met}`" in message for message in told] == [
        True
    ] * (size == 1)
    assert ("gather_for_metrics" in text) is (size > 1)


def test_as_many_dimensions_meet_row_by_row() -> None:
    step = "total += ((out.reshape(-1) - y.reshape(-1)) ** 2).sum().item()"
    text, _ = migrated(MET.format(size=1, trains="loader", step=step))
    assert "out, y = accelerator.gather_for_metrics((out, y))" in text


def test_nor_are_rows_joined_in_a_training_loop() -> None:
    met = TRAIN.replace("mse_loss(out, y)", "mse_loss(out, y.view_as(out))")
    loader = "DataLoader(torch.utils.data.TensorDataset(photos, answers), batch_size=1)"
    text, _ = migrated(f"loader = {loader}\n{met.format(hits='(out.argmax(-1) == y).sum().item()')}")
    assert "gather_for_metrics((out" not in text and SUM in text


def test_one_number_for_each_row_is_gathered() -> None:
    scored = (
        "out = model(x).view(x.size(0), -1).sum(1)\n    loss = torch.nn.functional.mse_loss(out, torch.zeros_like(out))"
    )
    step = TRAIN.format(hits="(out > 0).sum().item()").replace("rows += x.size(0)", "rows += out.size(0)")
    made = "out = model(x)\n    loss = torch.nn.functional.mse_loss(out, y)"
    text, _ = migrated("loader = DataLoader(Photos(), batch_size=1)\n" + step.replace(made, scored))
    assert "out = accelerator.gather_for_metrics(out)" in text


NET = """\
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(rows, labels)
loader, held = DataLoader(data, batch_size={size}), DataLoader(data, batch_size={size})
"""
FIT = """\
right, truths, table = 0, [], np.zeros((3, 3))
for x, y in loader:
    out = model(x)
    loss = torch.nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {step}
"""
JUDGE = """\
right, truths, table = 0, [], np.zeros((3, 3))
with torch.no_grad():
    for x, y in held:
        out = model(x)
        {step}
"""
ALONE = {
    "item": "truths.append(y.item())",
    "int": "truths.append(int(y))",
    "a guess": "right += out.argmax(1).item() == y.item()",
    "a choice": "right += 1 if out.argmax(1) == y else 0",
    "a condition": "if out.argmax(1) == y: right += 1",
    "not": "right += not (out.argmax(1) == y)",
    "an entry of an entry": "table[y][out.argmax(1)] += 1",
}


@pytest.mark.parametrize("step", ALONE.values(), ids=ALONE)
def test_a_row_that_is_read_as_one_number_is_alone_in_its_batch(step: str) -> None:
    """The labels of several processes were averaged, or the one number was asked of their rows, which have several."""
    fitted = FIT.format(step="right += len(y)") + JUDGE.format(step=step) + "print(right, truths, table)\n"
    text, findings = migrated(NET.format(size=1) + fitted)
    assert "model, optimizer, loader = accelerator.prepare(" in text
    (told,) = [found.message for found in findings if found.id == "prepare"]
    assert "as one number: each batch has one row" in told
    assert "gather_for_metrics((out" not in text and "reduce(y" not in text


@pytest.mark.parametrize("step", ALONE.values(), ids=ALONE)
def test_so_it_is_in_a_training_loop(step: str) -> None:
    text, findings = migrated(NET.format(size=1) + FIT.format(step=step) + "print(right, truths, table)\n")
    assert "gather_for_metrics" not in text and "accelerator.reduce" not in text
    (told,) = [found for found in findings if found.id == "metrics_gather"]
    if "append" in step:
        assert "truths.extend(accelerator.gather_for_metrics([" in told.remedy


@pytest.mark.parametrize(
    "step",
    ["truths.append(loss.item())", "right += (out.argmax(1) == y).sum().item()", "right += int(y.size(0))"],
)
def test_one_number_of_a_batch_is_no_row(step: str) -> None:
    text, _ = migrated(NET.format(size=8) + FIT.format(step=step) + "print(right, truths, table)\n")
    assert "accelerator.gather_for_metrics" in text or "accelerator.reduce" in text
