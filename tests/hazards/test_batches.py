"""What is moved of a batch, and how: dicts, comprehensions, helpers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Migrated = Callable[..., str]

LOOP = """
def move_batch(batch, device):
    return {{k: v.to(device) for k, v in batch.items()}}
device = torch.device("cuda")
model = nn.Linear(8, 2).to(device)
loader = DataLoader(data, batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in loader:
    {line}
    x, y = batch["x"], batch["y"]
    STEP
"""
LINES: dict[str, tuple[str, str]] = {
    "a dict, to itself": ("batch = {k: v.to(device) for k, v in batch.items()}", ""),
    "a dict with strings in it, to itself": (
        "batch = {k: v.to(device) if torch.is_tensor(v) else v for k, v in batch.items()}",
        "",
    ),
    "a dict, to another name": ("inputs = {k: v.to(device) for k, v in batch.items()}", "inputs = dict(batch)"),
    "some of a dict": (
        "inputs = {k: v.to(device) for k, v in batch.items() if k != 'id'}",
        "inputs = {k: v for k, v in batch.items() if k != 'id'}",
    ),
    "a dict under other keys": (
        "inputs = {k + '_': v.to(device) for k, v in batch.items()}",
        "inputs = {k + '_': v for k, v in batch.items()}",
    ),
    "a dict in place": ("for k, v in batch.items():\n        batch[k] = v.to(device)", ""),
    "a dict in place, by its keys": ("for k in batch:\n        batch[k] = batch[k].to(device)", ""),
    "some of a dict in place": (
        "for k, v in batch.items():\n        if k != 'id':\n            batch[k] = v.cuda()",
        "",
    ),
    "under another key in place": (
        "for k, v in batch.items():\n        batch['x'] = v.to(device)",
        "for k, v in batch.items():\n        batch['x'] = v",
    ),
    "one of a dict": ("z = batch['x'].to(device)", "z = batch['x']"),
    "a list": ("z = [t.to(device) for t in batch]", "z = list(batch)"),
    "a list, taken apart": ("z, w = [t.to(device) for t in batch]", "z, w = batch"),
    "a generator, taken apart": ("z, w = (t.cuda() for t in batch)", "z, w = batch"),
    "a tuple": ("z = tuple(t.to(device) for t in batch)", "z = tuple(batch)"),
    "a list of a tuple": ("z = list(t.to(device, non_blocking=True) for t in batch)", "z = list(batch)"),
    "a list, and its dtype": ("z = [t.to(device).float() for t in batch]", "z = [t.float() for t in batch]"),
    "a list of dicts": (
        "z = [{k: v.to(device) for k, v in t.items()} for t in batch]",
        "z = list(batch)",
    ),
    "a list of some": ("z = [t.to(device) for t in batch if t.ndim]", "z = [t for t in batch if t.ndim]"),
    "a helper": ("batch = move_batch(batch, device)", "batch = move_batch(batch, accelerator.device)"),
}


@pytest.mark.hazard("X7", "X38")
@pytest.mark.parametrize(("before", "after"), LINES.values(), ids=LINES)
def test_the_move_goes_and_the_rest_stays(before: str, after: str, migrated: Migrated) -> None:
    text = migrated(LOOP.format(line=before))
    kept = f"    {after}\n" if after else ""
    assert f"for batch in loader:\n{kept}    x, y = batch" in text
    assert "return {k: v.to(device) for k, v in batch.items()}" in text, "a helper stays as it is"


def test_the_same_of_something_made_by_hand_follows_the_device(migrated: Migrated) -> None:
    text = migrated(LOOP.format(line="pass") + "\ninputs = {k: v.to(device) for k, v in tokenizer('a').items()}")
    assert "inputs = {k: v.to(accelerator.device) for k, v in tokenizer('a').items()}" in text


@pytest.mark.parametrize("line", ["z = [t.float() for t in batch]", "z = {k: v for k, v in batch.items()}"])
def test_a_comprehension_that_moves_nothing_is_left(line: str, migrated: Migrated) -> None:
    assert line in migrated(LOOP.format(line=line))
