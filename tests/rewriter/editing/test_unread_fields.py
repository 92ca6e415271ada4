"""Fields of the script's objects that only removed code read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

PROGRAM = """\
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
{imports}

class Trainer{bases}:
    {declared}

    def __init__(self, model, loader, device):
        self.device = {value}
        self.on_gpu = torch.cuda.is_available()
        self.unread = torch.cuda.is_available()
        self.model = model.to(self.device)
        self.loader = loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        for x, y in self.loader:
            if self.on_gpu:
                x = x.cuda()
            y = y.to(self.device)
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            {more}


class Reader:
    def __init__(self):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


torch.manual_seed(0)
rows = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
trainer = Trainer(nn.Linear(4, 2), DataLoader(rows, batch_size=8), device)
trainer.train()
{after}
"""
USUAL = {"imports": "", "bases": "", "declared": "name = 'one'", "value": "device", "more": "", "after": ""}


def _migrated(**parts: str) -> str:
    text = PROGRAM.format(**{**USUAL, **parts})
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.changed
    return file.after.decode()


GONE = {
    "of a plain class": {},
    "of one without bases": {"bases": "(object)"},
    "that another class of the script derives from": {"after": "class Longer(Trainer):\n    pass"},
    "whose name an option has": {"after": "print('--device')"},
}


@pytest.mark.parametrize("parts", GONE.values(), ids=GONE)
def test_a_field_goes_that_only_moves_read(parts: dict[str, str]) -> None:
    text = _migrated(**parts)
    trainer, _, reader = text.partition("class Reader")
    assert "self.device" not in trainer and "on_gpu" not in text
    assert "self.unread = torch.cuda.is_available()\n" in trainer, "dead before"
    assert "self.device = " in reader, "nobody read that one before"


STAYS = {
    "it is read": {"more": "print(self.device)"},
    "it is asked for from outside": {"after": "print(trainer.device)"},
    "a class that derives from it reads it": {
        "after": "class Longer(Trainer):\n    def show(self):\n        print(self.device)"
    },
    "it is asked for by its name": {"after": "print(getattr(trainer, 'device'))"},
    "it is asked for by a name that is computed": {"more": "print(getattr(self, self.name))"},
    "all fields are gone through": {"after": "print(vars(trainer))"},
    "by their dictionary": {"more": "print(self.__dict__)"},
    "a library's class may read it": {"imports": "from library import Base\n", "bases": "(Base)"},
    "the class declares it": {"declared": "device = None"},
}


@pytest.mark.parametrize("parts", STAYS.values(), ids=STAYS)
def test_a_field_stays_that_something_may_read(parts: dict[str, str]) -> None:
    trainer = _migrated(**parts).partition("class Reader")[0]
    assert "self.device = " in trainer


def test_another_module_may_read_it(trained_project: Callable[..., tuple[dict[str, str], list[str]]]) -> None:
    """Of an object that it is given."""
    text = PROGRAM.format(**{**USUAL, "imports": "from show import show\n", "after": "show(trainer)"})
    shown, _ = trained_project(train=text, show="def show(one):\n    print(one.on_gpu)\n")
    assert "self.on_gpu = " in shown["train"]
    alone, _ = trained_project(train=text, show="def show(one):\n    print(one.loader)\n")
    assert (
        "self.on_gpu = " not in alone["train"] and "self.device = " not in alone["train"].partition("class Reader")[0]
    )
