"""Sums over the rows of all processes, divided by what one process counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
size = 32
model = torch.nn.Linear(8, 2)
loader = torch.utils.data.DataLoader(data, batch_size=size)
batches = len(loader)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hits = rows = seen = 0
norms = 0.0
for i, (x, y) in enumerate(loader, 1):
    out = model(x)
    loss = torch.nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hits += (out.argmax(1) == y).sum().item()
    norms += loss.item()
    rows += len(y)
    seen += size
{step}
{epoch}
"""
EVALUATED = """\
right = 0
for x, y in loader:
    out = model(x)
    right += (out.argmax(1) == y).sum().item()"""


def emitted(step: str = "", epoch: str = "", *, keep: bool = False) -> str:
    """The new text, in which nothing is left to be done beside the rows that fill up the last shards."""
    text = SCRIPT.format(step=indent(step, "    "), epoch=epoch)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=keep)).files
    assert file.changed and not [found for found in file.diagnoses if found.id == "mean-of-batches"]
    return file.after.decode()


@pytest.mark.hazard("U13")
@pytest.mark.parametrize(
    ("step", "epoch", "divided"),
    [
        (
            "if i % 10 == 0:\n    print(hits / (size * i))",
            "print(hits / len(data))",
            "print(hits / (size * i * accelerator.num_processes))",
        ),
        (
            "",
            "print(100 * hits / (len(loader) * size))",
            "print(100 * hits / (len(loader) * size * accelerator.num_processes))",
        ),
        (
            "",
            "steps = len(loader)\nprint(hits / steps / size)",
            "print(hits / (steps * accelerator.num_processes) / size)",
        ),
        ("", "print(hits / seen)", "print(hits / (seen * accelerator.num_processes))"),
        ("", "print(hits / (seen + 1))", "print(hits / ((seen + 1) * accelerator.num_processes))"),
        ("", "hits /= seen\nprint(hits)", "hits /= (seen * accelerator.num_processes)\n"),
        (
            "",
            f"{EVALUATED}\nprint(right / (len(loader) * size))",
            "print(right / (len(loader) * size * accelerator.num_processes))",
        ),
    ],
    ids=["in the loop", "the loader's length", "a name for it", "counted on", "a sum", "in place", "an evaluation"],
)
def test_a_sum_of_all_by_the_steps_of_one_process(step: str, epoch: str, divided: str) -> None:
    assert divided in emitted(step, epoch)
    assert "num_processes" not in emitted(step, epoch, keep=True)


@pytest.mark.parametrize(
    "epoch",
    [
        "print(hits / rows)",
        "print(hits / len(data))",
        "print(norms / len(loader))",
        "print(hits / rows / len(loader))",
        "print(hits / (batches * size))",
        "print(hits / size)",
    ],
    ids=["rows of all", "the data", "means", "a quotient", "asked for before", "no count"],
)
def test_what_is_no_sum_by_steps_of_one_process(epoch: str) -> None:
    assert "num_processes" not in emitted(epoch=epoch)


def test_each_division_by_one_divisor_is_changed() -> None:
    text = emitted("weighed = loss.item() * size\nnorms += weighed", "print(hits / seen, rows / seen)")
    by = "(seen * accelerator.num_processes)"
    assert f"print(hits / {by}, rows / {by})" in text


@pytest.mark.hazard("U13")
def test_each_of_two_means_by_a_count_of_batches_is_told(trained: Callable[..., tuple[str, list[str]]]) -> None:
    step = "total += loss.item()\nright = float((model(x).argmax(1) == y).sum()) / len(y) * 100\nshare += right"
    _, found = trained(built="share = 0", step=step, epoch="by = len(data) // 32\nprint(total / by, share / by)")
    assert found.count("mean-of-batches") == 2
