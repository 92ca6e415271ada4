"""What a program replaces while it runs is named; what wraps a method is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import Diagnosis
from torchlift.rewriter.source import decode

SCRIPT = """\
import functools
import types

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        return self.out(x)


def summed(self, x):
    return self.out(x).sum(0)


data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=8)
model, correct, settings = Net(), 0, {"epochs": 3}
{line}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""


def _diagnoses(text: str) -> Sequence[Diagnosis]:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file.diagnoses


def _told(line: str) -> list[str]:
    found = _diagnoses(SCRIPT.replace("{line}", line))
    return [f"{told.case}: {told.message}" for told in found if told.id == "replaced-code"]


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("Net.forward = summed", "Net.forward"),
        ('setattr(Net, "forward", summed)', "Net.forward"),
        ("model.forward = functools.partial(summed, model)", "model.forward"),
        ("model.forward = types.MethodType(summed, model)", "model.forward"),
        ("nn.CrossEntropyLoss.forward = lambda self, given, y: given.sum()", "nn.CrossEntropyLoss.forward"),
        ("torch.Tensor.backward = lambda self: None", "torch.Tensor.backward"),
    ],
)
def test_a_method_that_is_replaced_is_named(line: str, method: str) -> None:
    assert _told(line) == [
        f"method: `{method}` is replaced here. This answer was made with the method that its class has"
    ]


def test_a_function_of_torch_that_is_replaced_is_named() -> None:
    """Its loss may be a sum."""
    line = "def loss_of(given, y):\n    return given.sum()\n\nnn.functional.cross_entropy = loss_of"
    (told,) = _told(line)
    assert told.startswith("method: `nn.functional.cross_entropy` is replaced here")
    assert told.endswith("made with the function that its module has")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('globals()["correct"] = 3', "the variable `correct` is"),
        ('exec("correct = 3")', "the variable `correct` is"),
        ('exec(f"model_{correct} = Net()")', "variables of this file are"),
        ("globals().update(settings)", "variables of this file are"),
        ("for key in settings:\n    vars()[key] = settings[key]", "variables of this file are"),
    ],
)
def test_variables_that_are_set_by_name_are_named(line: str, what: str) -> None:
    (told,) = _told(line)
    assert told.startswith(f"names: {what} set here by name, which is not followed")


@pytest.mark.parametrize(
    "line",
    [
        "model.forward = torch.compile(model.forward)",
        "model.out = nn.Linear(8, 2)",
        "model.summed = summed",
        'setattr(model, "name", "small")',
        'print(globals()["correct"])',
        "settings.update(epochs=4)",
        'exec("print(correct)")',
        'exec(open("settings.py").read())',
        "torch.load = functools.partial(torch.load, weights_only=False)",
        "import builtins\ndef show(*given):\n    pass\n\nbuiltins.print = show",
    ],
)
def test_what_replaces_nothing_is_not_named(line: str) -> None:
    assert _told(line) == []


def test_a_loader_that_may_be_set_by_name_is_not_called_undefined() -> None:
    text = SCRIPT.replace("loader = DataLoader(data, batch_size=8)", 'globals()["loader"] = DataLoader(data)')
    told = {told.id for told in _diagnoses(text.replace("{line}", ""))}
    assert "replaced-code" in told
    assert "unknown-loader" not in told
