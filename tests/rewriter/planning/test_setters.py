"""What an object is given after it is made: prepared before the method, or the assignment, by which it gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

TRAINER = """\
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = self.batches = None

    def use(self, optimizer):
        self.optimizer = optimizer

    def read(self, batches):
        self.batches = batches

    def fit(self):
        for x, y in self.batches:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

model = torch.nn.Linear(8, 1)
trainer = Trainer(model)
{built}
trainer.fit()
"""
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
LOADER = "loader = DataLoader(data, batch_size=32)\n"
PREPARED = "model, optimizer = accelerator.prepare(\n    model, optimizer\n)\n"
LOADED = "loader = accelerator.prepare(loader)\n"


def _migrated(built: str) -> FileResult:
    source = decode(TRAINER.format(built=built.rstrip("\n")).encode(), Path("train.py"))
    return migrate([source], CATALOGUE, Config()).files[0]


@pytest.mark.parametrize(
    ("use", "read"),
    [
        ("trainer.use(optimizer)\n", "trainer.read(loader)\n"),
        ("trainer.optimizer = optimizer\n", "trainer.batches = loader\n"),
    ],
    ids=["by methods", "from outside"],
)
def test_what_is_set_later_is_prepared_before_it_is_set(use: str, read: str) -> None:
    file = _migrated(OPTIMIZER + use + LOADER + read)
    assert OPTIMIZER + PREPARED + use + LOADER + LOADED + read in file.after.decode()
    assert file.diagnoses == ()


def test_all_that_is_there_before_the_first_is_set_is_prepared_at_once() -> None:
    file = _migrated(OPTIMIZER + LOADER + "trainer.use(optimizer)\ntrainer.read(loader)\n")
    assert "model, optimizer, loader = accelerator.prepare(\n" in file.after.decode()
    assert file.after.count(b".prepare(") == 1


def test_an_optimizer_that_is_built_where_it_is_set() -> None:
    file = _migrated("trainer.use(torch.optim.SGD(model.parameters(), lr=0.1))\ntrainer.read(DataLoader(data))\n")
    text = file.after.decode()
    assert "trainer.use(accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1)))\n" in text
    assert "trainer.read(accelerator.prepare(DataLoader(data)))\n" in text
    assert text.index("model = accelerator.prepare(model)") < text.index("trainer.use(")


def test_each_loader_that_is_set_is_prepared() -> None:
    again = "second = DataLoader(more, batch_size=8)\n"
    file = _migrated(OPTIMIZER + "trainer.use(optimizer)\n" + LOADER + "trainer.read(loader)\ntrainer.fit()\n" + again
                     + "trainer.read(second)\n")  # fmt: skip
    assert again + "second = accelerator.prepare(second)\ntrainer.read(second)\n" in file.after.decode()


def test_an_optimizer_that_is_loaded_after_it_is_set_is_refused() -> None:
    """Prepared after it is loaded, the trainer would have it as it was."""
    loaded = "optimizer.load_state_dict(state)\n"
    file = _migrated(OPTIMIZER + LOADER + "trainer.read(loader)\ntrainer.use(optimizer)\n" + loaded)
    assert not file.changed and file.diagnoses[0].id == "prepare"


def test_a_model_that_is_loaded_after_its_optimizer_is_set() -> None:
    """Both are themselves after they are prepared, so the trainer may have them before."""
    loaded = 'model.load_state_dict(torch.load("m.pt"))\n'
    file = _migrated(OPTIMIZER + "trainer.use(optimizer)\n" + loaded + LOADER + "trainer.read(loader)\n")
    text = file.after.decode()
    assert text.index("model.load_state_dict(") < text.index(PREPARED)
    assert LOADER + LOADED + "trainer.read(loader)\n" in text


def test_an_optimizer_that_a_method_of_the_model_gives_where_it_is_kept() -> None:
    """The trainer's own name for it is the first that it has."""
    text = TRAINER.replace("torch.nn.Linear(8, 1)", "Net()").replace("{built}", LOADER + "trainer.read(loader)")
    net = "class Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(8, 1)\n"
    net += "    def chosen(self):\n        return torch.optim.SGD(self.parameters(), lr=0.1)\n\n"
    text = text.replace("class Trainer", net + "class Trainer").replace(
        "    def fit(self):\n", "    def fit(self):\n        self.optimizer = self.model.chosen()\n"
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.changed and [found.id for found in file.diagnoses] == []
    (kept,) = file.after.decode().partition("self.optimizer = self.model.chosen()\n")[2:]
    assert kept.startswith(
        "        self.accelerator = Accelerator()\n        self.model, self.optimizer, self.batches = "
    )
