"""Registries that a decorator fills: what the methods of a registered class do is seen, by whatever it is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import Result
from torchlift.rewriter.source import decode

REGISTRY = """\
class Registry:
    def __init__(self):
        self._classes = {}

    def register(self, cls):
        self._classes[cls.__name__] = cls
        return cls

    def build(self, cfg, **more):
        cfg = dict(cfg)
        return self._classes[cfg.pop("type")](**cfg, **more)


"""
HOOKS = """\
import torch

{table}


{register}
class Saver:
    def after_epoch(self, runner):
        torch.save(runner.model.state_dict(), "last.pt")
"""
RUNNER = """\
import torch
from torch.utils.data import DataLoader

import hooks


class Runner:
    def __init__(self, cfg):
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(hooks.data, batch_size=8)
        self.hooks = [hooks.build(h) for h in cfg["hooks"]]

    def call(self, name):
        for hook in self.hooks:
            {called}

    def run(self):
        for x, y in self.loader:
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.call("after_epoch")


Runner(hooks.read()).run()
"""
TABLE = """\
TABLE = {}


def register(cls):
    TABLE[cls.__name__] = cls
    return cls


def build(cfg):
    cfg = dict(cfg)
    return TABLE[cfg.pop("type")](**cfg)
"""
NAMED = TABLE.replace("register(cls)", "register(name)").replace(
    "    TABLE[cls.__name__] = cls\n    return cls\n",
    "    def put(cls):\n        TABLE[name] = cls\n        return cls\n\n    return put\n",
)
OBJECT = REGISTRY + "parts = Registry()\n\n\ndef build(cfg):\n    return parts.build(cfg)"
KINDS = {
    "an object": (OBJECT, "@parts.register"),
    "a table that a function fills": (TABLE, "@register"),
    "a table with names of its own": (NAMED, '@register("saver")'),
}


def _migrated(called: str, hooks: str) -> Result:
    texts = {"train": RUNNER.format(called=called), "hooks": hooks}
    return migrate([decode(text.encode(), Path(f"{name}.py")) for name, text in texts.items()], CATALOGUE, Config())


@pytest.mark.parametrize("called", ["hook.after_epoch(self)", "getattr(hook, name)(self)"], ids=["", "by name"])
@pytest.mark.parametrize(("table", "register"), KINDS.values(), ids=KINDS)
def test_what_a_registered_class_does_is_seen(table: str, register: str, called: str) -> None:
    """A decorator of a class that is not called was not looked at: every process wrote the file, and nothing was
    said."""
    result = _migrated(called, HOOKS.format(table=table, register=register))
    after = result.files[1].after.decode()
    assert "accelerator.save(" in after or "    if PartialState().is_main_process:\n" in after
    assert not [d for file in result.files for d in file.diagnoses if d.id == "once" or d.severity.value == "blocked"]


def test_a_class_in_no_table_is_not_made() -> None:
    hooks = HOOKS.format(table=TABLE + "\n\ndef same(cls):\n    return cls", register="@same")
    result = _migrated("hook.after_epoch(self)", hooks)
    after = result.files[1].after.decode()
    assert after == hooks
