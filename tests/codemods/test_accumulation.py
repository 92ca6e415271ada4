"""The rule `accumulation`: windows that the accelerator can count, and those that stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{top}
model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{head}
    loss = torch.nn.functional.mse_loss(model(x), y)
{divide}
    {backward}
    if {gate}:
        optimizer.step()
        optimizer.zero_grad()
{end}
"""
PARTS = {
    "top": "",
    "head": "for i, (x, y) in enumerate(loader):",
    "divide": "    loss = loss / 4",
    "backward": "loss.backward()",
    "gate": "(i + 1) % 4 == 0 or i + 1 == len(loader)",
    "end": "",
}

STAYS = {
    "the rest is dropped": {"gate": "(i + 1) % 4 == 0"},
    "another modulus": {"gate": "i % 4 == 0 or i + 1 == len(loader)"},
    "the end of another loader": {"gate": "(i + 1) % 4 == 0 or i + 1 == len(others)"},
    "counted from 1": {"head": "for i, (x, y) in enumerate(loader, 1):"},
    "counted by hand": {"head": "i = 0\nfor x, y in loader:"},
    "the loss is not divided": {"divide": "    pass"},
    "divided by something else": {"divide": "    loss = loss / 8"},
    "divided twice": {"divide": "    loss = loss / 4\n    loss = loss / 4"},
    "the divided loss is read": {"end": "    print(loss.item())"},
    "gradients are cleared elsewhere": {"end": "    optimizer.zero_grad()"},
    "two backward passes": {"end": "    (loss * 2).backward()"},
    "the window is computed": {"divide": "    loss = loss / n()", "gate": "(i + 1) % n() == 0 or i + 1 == len(loader)"},
}


def text_of(migrated: Callable[[str], str], **parts: str) -> str:
    return migrated(SCRIPT.format(**{**PARTS, **parts}))


@pytest.mark.parametrize("parts", STAYS.values(), ids=STAYS)
def test_left_alone(parts: dict[str, str], migrated: Callable[[str], str]) -> None:
    text = text_of(migrated, **parts)
    assert "accumulate" not in text
    assert "gradient_accumulation_steps" not in text
    assert f"    if {parts.get('gate', PARTS['gate'])}:\n        optimizer.step()\n" in text


TAKEN = {
    "as it is": {},
    "the other way round": {"gate": "i + 1 == len(loader) or (i + 1) % 4 == 0"},
    "in parentheses": {"gate": "((i+1) % 4 == 0) or ((i+1) == len(loader))"},
    "by the last index": {"gate": "(i + 1) % 4 == 0 or i == len(loader) - 1"},
    "divided in place": {"divide": "    loss /= 4"},
    "divided in the backward pass": {"divide": "", "backward": "(loss / 4).backward()"},
    "multiplied back": {"end": "        print(loss.item() * 4)"},
}


@pytest.mark.parametrize("parts", TAKEN.values(), ids=TAKEN)
def test_the_accelerator_counts(parts: dict[str, str], migrated: Callable[[str], str]) -> None:
    text = text_of(migrated, **parts)
    assert "Accelerator(gradient_accumulation_steps=4)" in text
    assert (
        "\n    with accelerator.accumulate(model):\n        loss = torch.nn.functional.mse_loss(model(x), y)\n" in text
    )
    assert "        accelerator.backward(loss)\n        optimizer.step()\n        optimizer.zero_grad()\n" in text
    assert "/ 4" not in text
    assert "* 4" not in text


def test_what_is_no_step_stands_where_gradients_are_whole(migrated: Callable[[str], str]) -> None:
    text = text_of(migrated, end="        done = i")
    assert "        optimizer.zero_grad()\n        if accelerator.sync_gradients:\n            done = i\n" in text


def test_the_window_may_be_a_setting(migrated: Callable[[str], str]) -> None:
    gate = "(i + 1) % args.n == 0 or i + 1 == len(loader)"
    text = text_of(migrated, top="args = parse()", divide="    loss = loss / args.n", gate=gate)
    assert "Accelerator(gradient_accumulation_steps=args.n)" in text


WITH = "    with nullcontext() if {test} else accelerator.no_sync(model):\n        loss = "
WAITS = {
    "the rest is dropped": ({"gate": "(i + 1) % 4 == 0"}, "(i + 1) % 4 == 0"),
    "another modulus": ({"gate": "i % n == n - 1", "top": "n = 4"}, "i % n == n - 1"),
    "counted from 1": ({"head": "for i, (x, y) in enumerate(loader, 1):", "gate": "not i % 4"}, "not i % 4"),
    "the loss is not divided": ({"divide": "    pass"}, "(i + 1) % 4 == 0 or i + 1 == len(loader)"),
    "the divided loss is read": ({"end": "    print(loss.item())"}, "(i + 1) % 4 == 0 or i + 1 == len(loader)"),
    "a setting": ({"top": "args = parse()", "gate": "i % args.n == 0"}, "i % args.n == 0"),
}


@pytest.mark.parametrize(("parts", "test"), WAITS.values(), ids=WAITS)
def test_gradients_are_exchanged_before_the_step_alone(
    parts: dict[str, str], test: str, migrated: Callable[[str], str]
) -> None:
    text = text_of(migrated, **parts)
    assert text.startswith("from contextlib import nullcontext\n\nimport torch\n")
    assert WITH.format(test=test) in text
    assert f"        accelerator.backward(loss)\n    if {parts.get('gate', PARTS['gate'])}:\n" in text


def test_an_object_waits_with_its_own_accelerator(migrated: Callable[[str], str]) -> None:
    text = migrated("""\
import torch
from torch.utils.data import DataLoader
class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(data, batch_size=32)
    def fit(self):
        for i, (x, y) in enumerate(self.loader):
            loss = (self.model(x) - y).pow(2).mean()
            loss.backward()
            if (i + 1) % 4 == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
Trainer().fit()
""")
    waits = "with nullcontext() if (i + 1) % 4 == 0 else self.accelerator.no_sync(self.model):\n"
    block = (
        "                loss = (self.model(x) - y).pow(2).mean()\n                self.accelerator.backward(loss)\n"
    )
    assert waits + block in text


EXCHANGES = {
    "counted behind the backward pass": {
        "head": "i = 0\nfor x, y in loader:", "backward": "loss.backward()\n    i += 1", "gate": "i % 4 == 0",
    },
    "a count that a function moves": {
        "top": "i = 0\ndef tick():\n    global i\n    i += 1", "head": "for x, y in loader:\n    tick()",
        "gate": "i % 4 == 0",
    },
    "a step behind the loop": {"gate": "(i + 1) % 4 == 0", "end": "optimizer.step()"},
    "a step elsewhere in the loop": {"gate": "(i + 1) % 4 == 0", "end": "    if i == 0:\n        optimizer.step()"},
    "gradients clipped at every batch": {
        "gate": "(i + 1) % 4 == 0",
        "backward": "loss.backward()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    },
    "gradients looked at": {"gate": "(i + 1) % 4 == 0", "end": "    print(model.weight.grad.norm())"},
    "a condition that counts nothing": {"top": "on = True", "gate": "on"},
    "the name is taken": {"top": "def nullcontext(): pass", "gate": "(i + 1) % 4 == 0"},
}  # fmt: skip


@pytest.mark.parametrize("parts", EXCHANGES.values(), ids=EXCHANGES)
def test_gradients_are_exchanged_with_every_batch(parts: dict[str, str], migrated: Callable[[str], str]) -> None:
    text = text_of(migrated, **parts)
    assert "accelerator.backward(loss)" in text
    assert "no_sync" not in text


INNER = """\
import contextlib
import torch
from torch.utils.data import DataLoader
pieces = 4
model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    for k in range({size}):
        loss = torch.nn.functional.mse_loss(model(x[k::4]), y[k::4]) / 4
        loss.backward(){inside}
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


@pytest.mark.parametrize(("size", "final"), [("pieces", "pieces - 1"), ("4", "3")])
def test_the_last_piece_of_a_batch_exchanges(size: str, final: str, migrated: Callable[[str], str]) -> None:
    text = migrated(INNER.format(size=size, inside=""))
    assert "import contextlib\nfrom contextlib import nullcontext\nimport torch\n" in text
    assert f"        with nullcontext() if k == {final} else accelerator.no_sync(model):\n            loss = " in text
    assert "            accelerator.backward(loss)\n    accelerator.clip_grad_norm_(" in text


@pytest.mark.parametrize("inside", ["\n        if stop():\n            break", "\n        optimizer.step()"])
def test_a_loop_that_may_end_early_exchanges_always(inside: str, migrated: Callable[[str], str]) -> None:
    assert "no_sync" not in migrated(INNER.format(size="pieces", inside=inside))
