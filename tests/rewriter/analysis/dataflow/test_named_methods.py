"""Methods that a name calls: `getattr(callback, event)(...)`, and what `__getattr__` gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Project = Callable[..., tuple[dict[str, str], list[str]]]

SCRIPT = """\
import json
import torch
from torch import nn
from torch.utils.data import DataLoader

from rows import rows


class Callback:
    def on_epoch_end(self, trainer, logs):
        pass


class Saver(Callback):
    def on_epoch_end(self, trainer, logs):
        print("saving", logs)
        torch.save({{"model": trainer.model.state_dict(), "logs": logs}}, "best.pt")


{caller}


class Trainer:
    def __init__(self, model, callbacks, device):
        self.model = model.to(device)
        self.device = device
        self.callbacks = Callbacks(callbacks)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self, loader, tests):
        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            {call}

    def hits(self, tests):
        right = 0
        for x, y in tests:
            right += (self.model(x.to(self.device)).argmax(1) == y.to(self.device)).sum().item()
        return right


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Trainer(nn.Linear(4, 3), [Saver()], device).fit(DataLoader(rows(), batch_size=8), DataLoader(rows(), batch_size=8))
"""
HEAD = """\
class Callbacks(Callback):
    def __init__(self, callbacks):
        self.all = list(callbacks)
"""
FIRE = """
    def fire(self, event, *args):
        for one in self.all:
            getattr(one, {name})(*args)
"""
CALLED = """
    def {by}(self, name):
        {first}

        def call(*args):
            for one in self.all:
                getattr(one, name)(*args)

        return call
"""
OWN = "if not name.startswith('on_'):\n            return super().__getattribute__(name)"
GIVEN = "self, {'hits': self.hits(tests)}"


@pytest.mark.hazard("U15")
@pytest.mark.parametrize(
    ("caller", "call"),
    [
        (HEAD + FIRE.format(name="event"), f"self.callbacks.fire('on_epoch_end', {GIVEN})"),
        (HEAD + FIRE.format(name="'on_' + event"), f"self.callbacks.fire('epoch_end', {GIVEN})"),
        (HEAD + FIRE.format(name="f'on_{event}'"), f"self.callbacks.fire('epoch_end', {GIVEN})"),
        (
            HEAD.replace("(Callback)", "") + CALLED.format(by="__getattr__", first="self.asked = name"),
            f"self.callbacks.on_epoch_end({GIVEN})",
        ),
        (HEAD + CALLED.format(by="__getattribute__", first=OWN), f"self.callbacks.on_epoch_end({GIVEN})"),
        (
            "Callbacks = list\n\n\ndef fire(one, event, *args):\n    getattr(one, event)(*args)",
            f"for one in self.callbacks:\n                fire(one, 'on_epoch_end', {GIVEN})",
        ),
    ],
    ids=["a name", "a prefix", "a formatted name", "what is not there", "whatever is asked for", "a function"],
)
def test_callbacks_that_are_called_by_their_names(caller: str, call: str, trained_project: Project) -> None:
    """Every process saved and printed what such a callback saves and prints; nothing was said."""
    texts, _ = trained_project(
        train=SCRIPT.format(caller=caller, call=call),
        rows="def rows():\n    return [(0, 1)]\n",
    )
    text = texts["train"]
    assert 'accelerator.print("saving", logs)\n' in text or 'PartialState().print("saving", logs)\n' in text
    assert "        torch.save(" not in text or "if PartialState().is_main_process:\n            torch.save(" in text


def test_what_a_star_hands_on_keeps_its_place(trained_project: Project) -> None:
    """The trainer came to `logs`, too, and nothing that is saved may keep an accelerator."""
    call = f"self.callbacks.fire('on_epoch_end', {GIVEN})"
    text = SCRIPT.format(caller=HEAD + FIRE.format(name="event"), call=call)
    texts, found = trained_project(train=text, rows="def rows():\n    return [(0, 1)]\n")
    assert "self.accelerator = accelerator\n" in texts["train"] or "self.accelerator = Accelerator()" in texts["train"]
    assert "gather_for_metrics" in texts["train"] and "prepare" not in found


def test_methods_that_nothing_names_are_not_called(trained_project: Project) -> None:
    unnamed = "\n\n    def debug(self, trainer, logs):\n        print('not called', logs)"
    call = f"self.callbacks.fire('on_epoch_end', {GIVEN})"
    text = SCRIPT.format(caller=HEAD + FIRE.format(name="event"), call=call)
    text = text.replace('"best.pt")', f'"best.pt"){unnamed}')
    texts, _ = trained_project(train=text, rows="def rows():\n    return [(0, 1)]\n")
    assert "        print('not called', logs)\n" in texts["train"]
