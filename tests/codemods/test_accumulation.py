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
