"""Quotients that a training loop shows while it runs, of totals that are read when it is over as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from tqdm import tqdm

model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(data, batch_size=8)


def fit():
    total, hits, rows = 0.0, 0, 0
    bar = tqdm(loader)
    for x, y in bar:
        out = model(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * y.size(0)
        rows += y.size(0)
        mean = total / rows
        {first}
        {second}
    return mean


print(fit())
"""


def edited(first: str, second: str) -> str:
    text = SCRIPT.format(first=first, second=second)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.changed
    return file.after.decode()


@pytest.mark.hazard("U12")
def test_hits_by_the_rows_of_all_are_those_of_all() -> None:
    """The rows were counted of all processes, as the mean loss is returned, and the hits beside them of one."""
    text = edited("hits += (out.argmax(1) == y).sum().item()", "bar.set_postfix(right=hits / rows, mean=mean)")
    assert "y, out = accelerator.gather_for_metrics((y, out))" in text
    assert text.index("gather_for_metrics") < text.index("hits +=")


@pytest.mark.hazard("U12")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("right = (out.argmax(1) == y).float().mean().item()", "bar.set_postfix(right=right)"),
        ("guess = out.argmax(1)", "bar.set_postfix(right=(guess == y).sum().item())"),
        ("", "for one, other in zip(out, y): bar.write(f'{one} {other}')"),
        ("hits += (out.argmax(1) == y).sum().item()", "bar.set_postfix(right=hits)"),
    ],
    ids=["a figure of the batch", "by way of a name", "row by row", "a total that is shown alone"],
)
def test_rows_that_the_step_reads_beside_its_own_are_not_joined(first: str, second: str) -> None:
    """The labels were those of all processes, and were compared with the output for the rows of one."""
    text = edited(first, second)
    assert "gather" not in text
    assert "accelerator.reduce(torch.tensor(y.size(0), " in text


def test_rows_that_nothing_reads_beside_others_are_joined() -> None:
    text = edited("other = y.float().mean().item()", "bar.set_postfix(loss=loss.item(), other=other)")
    assert "y = accelerator.gather_for_metrics(y)" in text


def test_quotients_that_stay_are_told_once() -> None:
    """What the two findings advised added the rows up twice, once for each quotient that they divide."""
    text = SCRIPT.format(
        first="if out.max() > 3:\n            hits += len(y)", second="bar.set_postfix(right=hits / rows)"
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (told,) = [found for found in file.diagnoses if found.id == "metrics_gather"]
    assert "`total / rows` is the figure of its own rows" in told.message
    assert "total, rows, hits = accelerator.reduce(" in told.remedy


TWICE = """\
import torch
from torch.nn import functional as F

model, words = torch.nn.Linear(4, 1), torch.nn.Embedding(9, 9)
optimizer = torch.optim.SGD([*model.parameters(), *words.parameters()], lr=0.1)
loader = torch.utils.data.DataLoader(data, batch_size=8)
texts = torch.utils.data.DataLoader(lines, batch_size=8)
for epoch in range(3):
    mean = 0
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean += loss.item() * len(x)
    mean /= len(data)
    print(mean)
for epoch in range(3):
    total, known = 0, 0
    for x in texts:
        loss = F.cross_entropy(words(x[:, :-1]).reshape(-1, 9), x[:, 1:].reshape(-1), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * (x[:, 1:] != 0).sum().item()
        known += (x[:, 1:] != 0).sum().item()
    mean = total / max(known, 1)
    print(mean)
for epoch in range(3):
    total, rows = 0, 0
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * (x != 0).sum().item()
        rows += len(x)
    print(total / rows)
"""


def test_a_total_goes_into_the_quotient_that_sees_it_and_not_into_one_of_its_name() -> None:
    (file,) = migrate([decode(TWICE.encode(), Path("train.py"))], CATALOGUE, Config()).files
    told = [found.message for found in file.diagnoses]
    (last,) = (words for words in told if "`total / rows`" in words)
    assert "is the figure of its own rows" in last
    assert not any("mean /= len(data)" in words and "`total`" in words for words in told)
