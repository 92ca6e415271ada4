"""Metrics that combine the values of all processes by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

TRAINED = """\
import torch
import torchmetrics
from torch.utils.data import DataLoader
loader = DataLoader(data, batch_size=4, shuffle=True)
held = DataLoader(other, batch_size=4)
net = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
first = torchmetrics.Accuracy(task="multiclass", num_classes=3)
rate = torchmetrics.Accuracy(task="multiclass", num_classes=3)
for epoch in range(3):
    net.train()
    for x, y in loader:
        optimizer.zero_grad()
        out = net(x)
        torch.nn.functional.cross_entropy(out, y).backward()
        optimizer.step()
        {trained}
    net.eval()
    right = 0
    with torch.no_grad():
        for x, y in held:
            out = net(x)
            {held}
    print(rate.compute(), right / len(other))
"""
FILLED, TWICE = "combines what all processes give it", "combines those of all processes once more"
COUNT = "right += (out.argmax(1) == y).sum().item()"


@pytest.mark.parametrize(
    ("trained", "held", "config", "told"),
    [
        ("pass", "rate.update(out, y)", Config(), [f"`rate` {FILLED}"]),
        ("first(out, y)", "rate.update(out, y)", Config(), [f"`first` {FILLED}", f"`rate` {FILLED}"]),
        ("pass", f"rate.update(out, y)\n            {COUNT}", Config(), ["`rate` is given the rows of all processes"]),
        ("pass", COUNT, Config(), []),
        ("first(out, y)", "rate.update(out, y)", Config(keep_global_batch=True), []),
    ],
    ids=["an evaluation", "a training", "beside a count", "no such metric", "exact shards"],
)
def test_what_such_a_metric_counts_is_said(trained: str, held: str, config: Config, told: list[str]) -> None:
    """It was under "No action needed", with repeated rows in it or with each row N times."""
    text = TRAINED.format(trained=trained, held=held)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, config).files
    assert file.changed
    found = [one.message for one in file.diagnoses if one.id == "filled-batch"]
    assert len(found) == len(told) and all(map(str.startswith, found, told))
    assert all((TWICE in one) is ("is given" in one) for one in found)


@pytest.mark.parametrize(
    "decided",
    [
        "if rate.compute() > best:\n        torch.save(net.state_dict(), 'a.pt')",
        "score = rate.compute().item()\n    if score > best:\n        break",
    ],
)
def test_what_such_a_metric_gives_is_the_same_on_all_processes(decided: str) -> None:
    """It was called a figure of each process's own rows, and a training that it ends was refused."""
    shown = "print(rate.compute(), right / len(other))"
    text = "best = 0\n" + TRAINED.format(trained="pass", held="rate.update(out, y)").replace(shown, decided)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.changed and [one.id for one in file.diagnoses] == ["filled-batch"]
