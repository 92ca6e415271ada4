"""What an object does not take is not put there: fields of a named tuple, a frozen data class, a property, slots."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Project = Callable[..., tuple[dict[str, str], list[str]]]

CHOICE = '"cuda" if torch.cuda.is_available() else "cpu"'
FROZEN = f"@dataclass(frozen=True)\nclass Config:\n    device: str = {CHOICE}\n"
FIXED = {
    "a frozen data class": FROZEN,
    "a class of attrs": FROZEN.replace("@dataclass(frozen=True)", "@attrs.frozen"),
    "a class of such a class": FROZEN.replace("Config", "Base")
    + "\n@dataclass(frozen=True)\nclass Config(Base):\n    x: int = 0\n",
    "a named tuple": f"class Config(NamedTuple):\n    device: str = {CHOICE}\n",
    "a property": f"class Config:\n    @property\n    def device(self):\n        return torch.device({CHOICE})\n",
    "slots": f'class Config:\n    __slots__ = ("kind",)\n    device = {CHOICE}\n\n'
    "    def __init__(self):\n        self.kind = 1\n",
}
SETTABLE = {
    "a data class": FROZEN.replace("(frozen=True)", ""),
    "a property with a setter": FIXED["a property"]
    + "\n    @device.setter\n    def device(self, device):\n        pass\n",
}
SCRIPT = """\
import attrs
import torch
from dataclasses import dataclass
from typing import NamedTuple
from torch.utils.data import DataLoader
from data import data

{config}
def fresh(x, config):
    return torch.zeros(x.shape, device=config.device)

config = Config()
model = torch.nn.Linear(8, 2).to(config.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=32):
    x, y = x.to(config.device), y.to(config.device)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x + fresh(x, config)), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("config", FIXED.values(), ids=list(FIXED))
def test_a_device_that_cannot_be_set_stays_what_it_is(config: str, trained_project: Project) -> None:
    """It is a kind of device, of which each process has its own."""
    texts, findings = trained_project(train=SCRIPT.format(config=config))
    assert "config.device = " not in texts["train"] and "Accelerator(cpu=config.device" in texts["train"]
    assert findings == []


@pytest.mark.parametrize("config", SETTABLE.values(), ids=list(SETTABLE))
def test_a_device_that_can_be_set_is_the_accelerators(config: str, trained_project: Project) -> None:
    texts, findings = trained_project(train=SCRIPT.format(config=config))
    assert "config.device = accelerator.device" in texts["train"] and findings == []


@pytest.mark.parametrize("kind", ["a frozen data class", "a named tuple", "a property"])
def test_the_number_of_a_gpu_that_cannot_be_set_is_told(kind: str, trained_project: Project) -> None:
    config = FIXED[kind].replace('"cuda"', '"cuda:0"')
    assert trained_project(train=SCRIPT.format(config=config))[1] == ["device-flag"]


TASKS = """\
import torch
from dataclasses import dataclass
from typing import NamedTuple
from torch.utils.data import DataLoader
from data import data

{task}
    model: torch.nn.Module
    loader: DataLoader

class Trainer:
    {slots}

    def __init__(self, task):
        self.task = task
        self.optimizer = torch.optim.SGD(task.model.parameters(), lr=0.1)

    def fit(self):
        for x, y in self.task.loader:
            loss = torch.nn.functional.cross_entropy(self.task.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

Trainer(Task(torch.nn.Linear(8, 2), DataLoader(data, batch_size=32))).fit()
"""


@pytest.mark.parametrize("task", ["@dataclass(frozen=True)\nclass Task:", "class Task(NamedTuple):"])
def test_a_model_is_prepared_before_it_is_kept_for_good(task: str, trained_project: Project) -> None:
    texts, findings = trained_project(train=TASKS.format(task=task, slots="pass"))
    assert "Task(accelerator.prepare(torch.nn.Linear(8, 2)), accelerator.prepare(DataLoader(" in texts["train"]
    assert "task.model, " not in texts["train"] and findings == []


def test_an_object_that_takes_no_accelerator_keeps_none(trained_project: Project) -> None:
    slots = '__slots__ = ("task", "optimizer")'
    texts, findings = trained_project(train=TASKS.format(task="@dataclass\nclass Task:", slots=slots))
    assert " accelerator.backward(loss)" in texts["train"] and "self.accelerator" not in texts["train"]
    assert findings == []
