"""Functions that a container holds are called by whoever takes them out: a callback that is registered is reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]

TOP = """\
import collections

class Events:
    def __init__(self):
        self.held = {made}

    def on(self, event, callback):
        {put}

    def fire(self, event):
        {take}

events = Events()
"""
BUILT = """\
def log():
    print("a step")

events.on("step", log)"""

KEPT = {
    "a list under a key": ("{}", "self.held[event] = [callback]", "for one in self.held[event]: one()"),
    "a list that grows": ("collections.defaultdict(list)", "self.held[event].append(callback)",
                          "for one in self.held.get(event, []): one()"),
    "a list made when it is asked for": ("{}", "self.held.setdefault(event, []).append(callback)",
                                         "[one() for one in self.held[event]]"),
    "dicts in a dict": ("collections.defaultdict(dict)", "self.held[event]['first'] = callback",
                        "for one in self.held[event].values(): one()"),
    "one under a key": ("dict()", "self.held.update({event: callback})", "self.held[event]()"),
    "a list, some of it": ("[]", "self.held.append(callback)", "for one in self.held[:2]: one()"),
    "one or another": ("{}", "self.held[event] = callback", "self.held.get(event, print)()"),
    "kept first, called later": ("{'step': None}", "self.held['step'] = callback", "self.held.pop('step')()"),
}  # fmt: skip


@pytest.mark.hazard("U15")
@pytest.mark.parametrize(("made", "put", "take"), KEPT.values(), ids=KEPT)
def test_a_callback_that_is_registered_is_reached(made: str, put: str, take: str, trained: Trained) -> None:
    top = TOP.format(made=made, put=put, take=take)
    text, findings = trained(top=top, built=BUILT, step="events.fire('step')")
    assert 'print("a step")' in text.replace("PartialState().print", "print").replace("accelerator.print", "print")
    assert '    print("a step")' not in text
    assert findings == []


CHOSEN = """\
import random
import numpy as np
import torch

class Client:
    def __init__(self, rows, model, optimizer):
        self.rows, self.model, self.optimizer = rows, model, optimizer

    def train(self):
        x, y = self.rows
        for start in range(0, len(x), 8):
            loss = torch.nn.functional.mse_loss(self.model(x[start : start + 8]), y[start : start + 8])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clients = [Client(rows, model, optimizer) for rows in torch.load("rows.pt")]
for turn in range(3):
    for client in {chosen}:
        client.train()
"""


@pytest.mark.parametrize(
    "chosen",
    ["random.sample(clients, 2)", "[random.choice(clients)]", "np.random.choice(clients, 2, replace=False)"],
)
def test_what_is_drawn_from_several_objects_is_one_of_them(chosen: str) -> None:
    script = CHOSEN.format(chosen=chosen)
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "accelerator.backward(loss)" in file.after.decode()
