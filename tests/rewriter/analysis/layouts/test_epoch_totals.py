"""What is joined to a list, an array or a tensor in each step of a loop is collected, as what is appended to a list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import numpy as np
import torch
from torch.utils.data import DataLoader

def check(net, rows):
    kept = {start}
    with torch.no_grad():
        for x, y in rows:
            out = net(x)
            loss = torch.nn.functional.cross_entropy(out, y)
            {adds}
    return {shown}

net = torch.nn.Linear(8, 2)
rows = DataLoader(train, batch_size=32)
rule = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    kept = {start}
    for x, y in rows:
        out = net(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        rule.step()
        {adds}
    print({shown})
    print(check(net, DataLoader(held_out, batch_size=32)))
"""
REDUCED = 'accelerator.reduce(loss.detach(), reduction="mean")'
MEANS = {
    "np.append": ("np.array([])", "kept = np.append(kept, loss.item())", "np.mean(kept)"),
    "np.concatenate": ("np.zeros(0)", "kept = np.concatenate([kept, np.array([loss.item()])])", "kept.mean()"),
    "np.hstack": ("np.array([])", "kept = np.hstack((kept, loss.item()))", "np.average(kept)"),
    "np.r_": ("np.array([])", "kept = np.r_[kept, loss.item()]", "kept.mean()"),
    "torch.cat": ("torch.empty(0)", "kept = torch.cat((kept, loss.detach().reshape(1)))", "kept.mean().item()"),
    "torch.hstack": ("torch.empty(0)", "kept = torch.hstack([loss.detach(), kept])", "torch.mean(kept).item()"),
    "a list around a list": ("[]", "kept = [*kept, loss.item()]", "np.mean(kept)"),
    "a tuple around a tuple": ("()", "kept = (*kept, loss.item())", "sum(kept) / len(kept)"),
    "a list plus a list": ("[]", "kept = kept + [loss.item()]", "sum(kept) / len(kept)"),
}
ROWS = {
    "np.append": ("np.array([])", "kept = np.append(kept, (out.argmax(1) == y).cpu().numpy())", "kept.mean()"),
    "np.vstack": ("np.zeros((0, 2))", "kept = np.vstack((kept, out.detach().cpu().numpy()))", "kept.max()"),
    "torch.cat": ("torch.empty(0)", "kept = torch.cat((kept, out.detach().cpu()))", "kept.max().item()"),
    "a list around a list": ("[]", "kept = [*kept, *out.argmax(1).tolist()]", "np.mean(kept)"),
}


def migrated(start: str, adds: str, shown: str) -> tuple[str, list[str]]:
    text = SCRIPT.format(start=start, adds=adds, shown=shown)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file.after.decode(), [found.id for found in file.diagnoses]


@pytest.mark.parametrize(("start", "adds", "shown"), MEANS.values(), ids=MEANS)
def test_the_mean_of_each_batch_is_reduced_in_training_and_told_of_an_evaluation(
    start: str, adds: str, shown: str
) -> None:
    text, findings = migrated(start, adds, shown)
    assert text.count(REDUCED) == 1
    assert findings == ["mean-of-batches"]


@pytest.mark.parametrize(("start", "adds", "shown"), ROWS.values(), ids=ROWS)
def test_the_rows_of_each_batch_are_gathered_before_they_are_joined(start: str, adds: str, shown: str) -> None:
    text, findings = migrated(start, adds, shown)
    assert text.count("accelerator.gather_for_metrics(") == 2
    assert findings == []


def test_what_is_joined_for_one_step_alone_is_not_collected() -> None:
    text, findings = migrated("None", "kept = torch.cat((out.detach(), out.detach()))", "kept")
    assert REDUCED not in text and "mean-of-batches" not in findings


ONE = 'accelerator.reduce(loss.detach(), reduction="mean")'


@pytest.mark.parametrize(
    "adds",
    [
        "summed.add_({}.detach())",
        "summed.data.add_({}.detach())",
        "summed.add_({}.item())",
        "torch.add(summed, {}.detach(), out=summed)",
        "torch.add({}.detach(), summed, out=summed)",
    ],
)
def test_a_total_that_is_added_to_in_place(trained: Callable[..., tuple[str, list[str]]], adds: str) -> None:
    """It was named, and stayed the sum of one process's losses: `summed += loss.detach()` was reduced."""
    text, findings = trained(
        built="summed = torch.zeros(1)", step=adds.format("loss"), epoch="print(summed.item() / len(loader))"
    )
    assert adds.format(ONE) in text and findings == ([] if ".item()" in adds else ["cpu-only"])


def test_hits_of_an_evaluation_that_are_added_to_in_place(trained: Callable[..., tuple[str, list[str]]]) -> None:
    epoch = """\
hits = torch.zeros(1)
for x, y in test_loader:
    out = model(x)
    hits.add_((out.argmax(1) == y).sum())
print(hits.item() / len(test_data))"""
    text, _ = trained(epoch=epoch)
    assert "out, y = accelerator.gather_for_metrics((out, y))" in text
