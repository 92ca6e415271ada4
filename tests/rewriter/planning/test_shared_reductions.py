"""A figure that several places reduce over the processes is reduced once; one that changes between them is not."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

PROGRAM = """\
import os
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = TensorDataset(torch.randn(64, 4), torch.randn(64, 2))
loader = DataLoader(rows, batch_size=8, shuffle=True)
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
low = bool(os.sep)
for epoch in range(3):
    losses, more, best, total = [], [], 9.0, 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
{uses}
    print(sum(losses) / len(loader), sum(more) / len(loader), total / len(loader))
"""
REDUCED = 'accelerator.reduce(loss.detach(), reduction="mean")'
ONCE = f"mean_loss = {REDUCED}\n"
SAVED = "torch.save(net.state_dict(), 'net.pt')"
WHOLE = "accelerator.save(accelerator.get_state_dict(net), 'net.pt')"
TWICE = "losses.append(loss.item())\nmore.append(loss.item())\n"


def _migrated(uses: str) -> str:
    """What the lines that use the loss become."""
    source = decode(PROGRAM.format(uses=indent(uses.rstrip(), " " * 8)).encode(), Path("train.py"))
    (file,) = migrate([source], CATALOGUE, Config()).files
    assert not [d for d in file.diagnoses if d.severity.value == "blocked"]
    return (
        file.after.decode()
        .partition("optimizer.step()\n")[2]
        .partition("    accelerator.print(sum")[0]
        .replace(" " * 8, "", 1)
    )


def _written(lines: str) -> str:
    return indent(lines, " " * 8).replace(" " * 8, "", 1)


SHARED = {
    "two lines": (TWICE, ONCE + TWICE.replace("loss.", "mean_loss.")),
    "one line": (
        "losses.append(loss.item()); more.append(loss.item())\n",
        f"{ONCE}losses.append(mean_loss.item()); more.append(mean_loss.item())\n",
    ),
    "a condition, and its block": (
        f"if loss < best:\n    best = loss.item()\n    {SAVED}\n",
        f"{ONCE}if mean_loss < best:\n    best = mean_loss.item()\n    {WHOLE}\n",
    ),
    "both sides of a choice": (
        "if low:\n    losses.append(loss.item())\nelif not low:\n    more.append(loss.item())\n",
        f"{ONCE}if low:\n    losses.append(mean_loss.item())\nelif not low:\n    more.append(mean_loss.item())\n",
    ),
    "with the data of one": (
        "losses.append(loss.data.item())\nmore.append(loss.item())\n",
        f"{ONCE}losses.append(mean_loss.item())\nmore.append(mean_loss.item())\n",
    ),
}


@pytest.mark.parametrize(("uses", "lines"), SHARED.values(), ids=SHARED)
def test_what_several_places_reduce_is_reduced_once(uses: str, lines: str) -> None:
    """The same reduction stood in every place, several times in one line."""
    assert _migrated(uses) == _written(lines)


APART = {
    "the loss is set between": "losses.append(loss.item())\nloss = loss * 2\nmore.append(loss.item())\n",
    "either, and none perhaps": (
        "if low:\n    losses.append(loss.item())\nif os.altsep:\n    more.append(loss.item())\n"
    ),
    "there is none before the first step": (
        "if low and low is not None:\n    late = loss\nif epoch and late < best:\n"
        f"    best = late.item()\n    {SAVED}\n"
    ),
    "two choices": "if low:\n    losses.append(loss.item())\nelif os.altsep:\n    more.append(loss.item())\n",
}


@pytest.mark.parametrize("uses", APART.values(), ids=APART)
def test_what_changes_or_may_not_be_needed_is_reduced_where_it_is(uses: str) -> None:
    text = _migrated(uses)
    assert text.count(REDUCED) + text.count(REDUCED.replace("loss", "late")) == 2 and "mean_" not in text


def test_a_tensor_that_is_changed_in_place_is_shared_with_nobody() -> None:
    text = _migrated(f"if loss < best:\n    best = loss\n    {SAVED}\nbest += 1\n")
    assert text.count(REDUCED) == 2


def test_a_name_that_the_script_has_is_not_taken() -> None:
    assert f"mean_loss_of_all = {REDUCED}" in _migrated(f"mean_loss = 1\n{TWICE}print(mean_loss)\n")


def test_a_line_that_is_kept_unchanged_leaves_the_others_as_they_would_be() -> None:
    text = _migrated("losses.append(loss.item())  # migrate: skip\nmore.append(loss.item())\n")
    assert f"more.append({REDUCED}.item())\n" in text and "mean_loss" not in text


DETACHED = {
    "its data": ("losses.append(loss.data.item())\n", f"losses.append({REDUCED}.item())\n"),
    "the data of a sum": ("total += loss.data\n", f"total += {REDUCED}\n"),
}


@pytest.mark.parametrize(("uses", "lines"), DETACHED.values(), ids=DETACHED)
def test_what_is_reduced_has_no_gradient_twice(uses: str, lines: str) -> None:
    """`reduce(loss.detach()).data`, and `reduce(loss.data.detach())`."""
    assert _migrated(uses) == _written(lines)


def test_a_tensor_of_numbers_needs_no_detach() -> None:
    uses = "more.append(loss.item())\nlosses.append(torch.mean(torch.tensor(more)))\n"
    text = _migrated(uses)
    assert ").detach()" not in text.replace(REDUCED, "")
