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


def told(step: str = "", epoch: str = "", *, keep: bool = False) -> list[str]:
    """What is found beside the rows that fill up the last shards."""
    text = SCRIPT.format(step=indent(step, "    "), epoch=epoch)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=keep)).files
    assert file.changed
    return [found.message for found in file.diagnoses if found.id == "mean-of-batches"]


@pytest.mark.hazard("U13")
@pytest.mark.parametrize(
    ("step", "epoch", "figure", "divisor"),
    [
        ("if i % 10 == 0:\n    print(hits / (size * i))", "print(hits / len(data))", "hits", "size * i"),
        ("", "print(100 * hits / (len(loader) * size))", "hits", "len(loader) * size"),
        ("", "steps = len(loader)\nprint(hits / steps / size)", "hits", "steps"),
        ("", "print(hits / seen)", "hits", "seen"),
        ("", "hits /= seen\nprint(hits)", "hits", "seen"),
        ("", f"{EVALUATED}\nprint(right / (len(loader) * size))", "right", "len(loader) * size"),
    ],
    ids=["in the loop", "the loader's length", "a name for it", "counted on", "in place", "an evaluation"],
)
def test_a_sum_of_all_by_the_steps_of_one_process(step: str, epoch: str, figure: str, divisor: str) -> None:
    (message,) = told(step, epoch)
    assert message.startswith(f"`{figure}` adds up") and f"`{divisor}` counts the steps of one process" in message
    assert not told(step, epoch, keep=True)


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
    assert told(epoch=epoch) == []


def test_sums_with_one_divisor_are_told_together() -> None:
    (message,) = told("weighed = loss.item() * size\nnorms += weighed", "print(hits / seen, rows / seen)")
    assert message.startswith("`hits` and `rows` add up")


@pytest.mark.hazard("U13")
def test_each_of_two_means_by_a_count_of_batches_is_told(trained: Callable[..., tuple[str, list[str]]]) -> None:
    step = "total += loss.item() + 0\nright = float((model(x).argmax(1) == y).sum()) / len(y) * 100\nshare += right + 0"
    _, found = trained(built="share = 0", step=step, epoch="by = len(data) // 32\nprint(total / by, share / by)")
    assert found.count("mean-of-batches") == 2


MEANS = """\
model.eval()
mean = 0.0
held = 0
for x, y in loader:
    out = model(x)
    {counted}
    {added}
{quotient}"""


@pytest.mark.hazard("U13")
@pytest.mark.parametrize(
    ("counted", "added", "quotient"),
    [
        ("held += out.shape[0]", "mean += LOSS(out, y).item()", "mean /= held\nprint(mean)"),
        ("held += len(y)", "mean += LOSS(out, y).item()", "print(mean / held)"),
        ("held = held + y.size(0)", "mean += LOSS(out, y).item()", "shown = 100 * mean / held\nprint(shown)"),
        ("held += y.numel()", "mean = mean + LOSS(out, y).item()", "print(mean / held)"),
    ],
    ids=["in place", "of the labels", "by way of a name", "with no +="],
)
def test_a_sum_of_means_by_the_rows_of_all(counted: str, added: str, quotient: str) -> None:
    """It was said to be close to the original's."""
    text = MEANS.format(counted=counted, added=added, quotient=quotient).replace("LOSS", "torch.nn.functional.mse_loss")
    (message,) = told(epoch=text)
    assert message.startswith("`mean` adds up means over batches and is divided by `held`, the number of rows")
    assert "N times smaller" in message


@pytest.mark.parametrize(
    ("counted", "added", "quotient"),
    [
        ("held += 1", "mean += LOSS(out, y).item()", "print(mean / held)"),
        ("held += len(y)", "mean += LOSS(out, y).item() * len(y)", "print(mean / held)"),
        ("held += len(y)", "mean += LOSS(out, y, reduction='sum').item()", "print(mean / held)"),
        ("held += len(y)", "mean += LOSS(out, y).item()", "print(mean / len(loader), held)"),
    ],
    ids=["batches", "weighed", "sums", "no quotient"],
)
def test_what_is_no_sum_of_means_by_rows(counted: str, added: str, quotient: str) -> None:
    text = MEANS.format(counted=counted, added=added, quotient=quotient).replace("LOSS", "torch.nn.functional.mse_loss")
    assert not [message for message in told(epoch=text) if "divided by" in message]


LISTED = """\
import numpy as np
shown, sizes = [], []
for x, y in loader:
    out = model(x)
    right = torch.sum(out.argmax(1) == y)
    {added}
{mean}"""
SUMS = {
    "of a share": ("shown.append(100 * right / 32)", "sum(shown) / len(shown)"),
    "of a count": ("shown.append(right.item())", "sum(shown) / (1.0 * len(shown))"),
    "by a call": ("shown.append(right.item() / 32)", "np.mean(shown)"),
    "of tensors": ("shown.append(right)", "torch.stack(shown).float().mean()"),
}


@pytest.mark.parametrize(("added", "mean"), SUMS.values(), ids=SUMS)
def test_a_mean_over_the_steps_of_what_grows_with_their_rows(added: str, mean: str) -> None:
    """Nothing was said, and a share of right guesses came out above 100 percent."""
    (message,) = told(epoch=LISTED.format(added=added, mean=f"print({mean})"))
    assert message.startswith("`shown` collects what the rows of all processes give") and f"`{mean}`" in message
    assert message.endswith("the result is N times larger")
    assert not told(epoch=LISTED.format(added=added, mean=f"print({mean})"), keep=True)


@pytest.mark.parametrize(
    ("added", "mean"),
    [
        ("shown.append(right.item())", "print(sum(shown) / len(data))"),
        ("shown.append(right.item()); sizes.append(len(y))", "print(sum(shown) / sum(sizes))"),
        ("shown.append(right.item()); sizes.append(len(y))", "print(np.mean(shown) / np.mean(sizes))"),
        ("shown.append(right.item())", "print(sum(shown), len(shown))"),
        ("shown.append((out.argmax(1) == y).float().mean().item())", "print(sum(shown) / len(shown))"),
    ],
    ids=["by all rows", "by the rows", "by their mean", "no quotient", "means"],
)
def test_what_is_no_mean_over_the_steps(added: str, mean: str) -> None:
    assert not [m for m in told(epoch=LISTED.format(added=added, mean=mean)) if "N times larger" in m]


AS_A_WHOLE = """\
import torch
model = torch.nn.Linear(8, 8)
loader = torch.utils.data.DataLoader(rows, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    mean = held = 0
    for batch in loader:
        optimizer.zero_grad()
        loss = LOSS
        mean += loss.item()
        held += len(batch)
        loss.backward()
        optimizer.step()
    mean /= held
    print(mean)
"""


@pytest.mark.hazard("U13")
@pytest.mark.parametrize(
    ("loss", "gathered"),
    [
        ("torch.nn.functional.mse_loss(model(batch), batch)", "batch.new_zeros(len(batch))"),
        ("torch.nn.MSELoss()(model(batch), batch)", "batch.new_zeros(len(batch))"),
        ("model(batch.view(-1, 8)).pow(2).mean()", "batch.new_zeros(len(batch))"),
        ("model(batch).pow(2).mean()", "batch.new_zeros(len(batch))"),
    ],
    ids=["compared", "compared by a layer", "shaped", "of which nothing is known"],
)
def test_the_rows_of_a_batch_that_has_one_name(loss: str, gathered: str) -> None:
    """Its length was a number that is the same everywhere, and nothing was said of the mean that it divides."""
    text = AS_A_WHOLE.replace("LOSS", loss)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (message,) = (found.message for found in file.diagnoses if found.id == "mean-of-batches")
    assert "`held`, the number of rows" in message and "N times smaller" in message
    assert f"batch = accelerator.gather_for_metrics({gathered})" in file.after.decode()
