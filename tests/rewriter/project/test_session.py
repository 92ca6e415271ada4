"""Groups of edits: what is declined leaves a program that is migrated, or one that is not, and nothing in between."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import Plan, plan
from torchlift.rewriter.source import decode, read

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
NAMES = sorted(folder.name for folder in FIXTURES.iterdir() if (folder / "after.py").exists())


def _plan(name: str) -> Plan:
    return plan([read(FIXTURES / name / "before.py")], CATALOGUE, Config())


def _groups(planned: Plan) -> dict[str, set[str]]:
    """The rules of each group."""
    groups: dict[str, set[str]] = {}
    for file in planned.result().files:
        for change in file.changes:
            groups.setdefault(change.group, set()).add(change.rule)
    return groups


@pytest.mark.parametrize("name", NAMES)
def test_declining_the_training_leaves_the_program_as_it_was(name: str) -> None:
    planned = _plan(name)
    assert planned.result().changed
    (file,) = planned.result({"training"}).files
    assert file.after == file.source.data
    assert file.changes == ()


@pytest.mark.parametrize("name", NAMES)
def test_declining_everything_else_leaves_a_program_that_trains_distributed(name: str) -> None:
    planned = _plan(name)
    (file,) = planned.result(_groups(planned).keys() - {"training"}).files
    text = file.after.decode()
    ast.parse(text)
    assert ".prepare(" in text
    assert "accelerator.backward(" in text
    assert {change.group for change in file.changes} == {"training"}


@pytest.mark.parametrize(
    ("name", "together"),
    [
        ("fp16_scaler", {"accelerator_setup", "prepare", "backward", "grad_scaler", "autocast", "clip_grad"}),
        ("mnist_functions", {"accelerator_setup", "prepare", "backward", "device_placement", "metrics_gather"}),
        ("grad_accumulation", {"accelerator_setup", "prepare", "backward", "accumulation"}),
    ],
)
def test_what_needs_each_other_is_one_group(name: str, together: set[str]) -> None:
    assert together <= _groups(_plan(name))["training"]


def test_what_writes_a_file_and_what_waits_for_it_are_one_group() -> None:
    groups = _groups(_plan("best_model"))
    assert groups["files"] == {"checkpoint_save", "checkpoint_load", "main_process"}


def test_each_print_is_a_group_of_its_own() -> None:
    planned = _plan("mnist_functions")
    prints = [group for group in _groups(planned) if group.startswith("main_process ")]
    assert len(prints) == 2
    (file,) = planned.result({prints[0]}).files
    assert file.after.decode().count("accelerator.print(") == 1


def test_the_same_plan_is_applied_again_and_again() -> None:
    planned = _plan("gan")
    first = planned.result()
    assert first.changed
    assert planned.result() == first


TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from digits import test_set, train_set

loader = DataLoader(train_set(), batch_size=8, shuffle=True)
held_out = DataLoader(test_set(), batch_size=8)
model = nn.Linear(784, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
DIGITS = """\
from torchvision.datasets import MNIST


def train_set():
    digits = MNIST("data", train=True, download=True)
    return digits


def test_set():
    digits = MNIST("data", train=False, download=True)
    return digits
"""


def test_an_import_is_there_with_each_edit_that_needs_it() -> None:
    """It belongs to the first of them, and stays for another one where that is declined."""
    sources = [decode(TRAIN.encode(), Path("train.py")), decode(DIGITS.encode(), Path("digits.py"))]
    planned = plan(sources, CATALOGUE, Config())
    groups = [name for name in _groups(planned) if name.startswith("downloads ")]
    assert len(groups) == 2
    for declined in [(), groups[:1], groups[1:]]:
        _, digits = planned.result(declined).files
        text = digits.after.decode()
        assert text.count("PartialState()") == 2 - len(declined)
        assert text.count("import PartialState\n") == 1
    _, digits = planned.result(groups).files
    assert not digits.changed and digits.changes == ()
