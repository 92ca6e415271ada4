"""A step that is left out where a batch is short: all processes leave it out, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
SIZE = 4
model = torch.nn.Linear(4, 3)
loader = DataLoader(data, {given})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    rows = x.size(0)
    if {test}:
        continue
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


SEEN = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 3)
loader = DataLoader(data, batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return {returned}


seen = 0
for i, (x, y) in enumerate(loader):
    {count}
    if {test}:
        break
"""


def _severity(test: str, given: str = "batch_size=SIZE", *, split: bool = False) -> Severity:
    text = SCRIPT.format(test=test, given=given)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=split)).files
    (found,) = [d for d in file.diagnoses if d.id == "local-decision"]
    return found.severity


@pytest.mark.parametrize("test", ["x.size()[0] != SIZE", "len(x) < SIZE", "y.shape[0] != SIZE", "rows != SIZE"])
def test_the_rows_of_a_batch_are_as_many_on_all_processes(test: str) -> None:
    assert _severity(test) is Severity.REVIEW
    assert _severity(test, split=True) is Severity.BLOCKED


@pytest.mark.parametrize(
    ("test", "given"),
    [
        ("x.sum() > 0", "batch_size=SIZE"),
        ("len(x) != SIZE or y[0] == 1", "batch_size=SIZE"),
        ("len(x) != SIZE", "batch_sampler=batches"),
        ("len(x) != SIZE", "batch_size=SIZE, collate_fn=without_broken"),
    ],
)
def test_another_value_may_differ(test: str, given: str) -> None:
    assert _severity(test, given) is Severity.BLOCKED


@pytest.mark.parametrize(
    ("count", "test", "returned"),
    [
        ("loss, rows = step(x, y)", "(i + 1) * rows >= most", "loss, x.size(0)"),
        ("step(x, y); seen += x.size(0)", "seen >= most", "None"),
        ("step(x, y); seen = seen + len(y)", "seen >= most", "None"),
        ("rows = step(x, y); seen += rows", "most and seen > most", "x.shape[0]"),
    ],
)
def test_rows_that_are_counted_are_as_many_on_all_processes(count: str, test: str, returned: str) -> None:
    """Each process has seen so many rows of its own: the loop ends on all of them, N times as far as on one."""
    text = SEEN.format(count=count, test=test, returned=returned)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [d for d in file.diagnoses if d.id == "local-decision"]
    assert found.severity is Severity.REVIEW and "N processes have seen N times as many rows" in found.message
    assert "accelerator.backward(loss)" in file.after.decode()


@pytest.mark.parametrize(
    "returned", ["loss, (y > 0).sum().item()", "x.size(0), loss.item()", "[loss.item(), x.size(0)]"]
)
def test_what_a_step_gives_beside_the_rows_may_differ(returned: str) -> None:
    text = SEEN.format(count="loss, rows = step(x, y)", test="(i + 1) * rows >= most", returned=returned)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    told = [d for d in file.diagnoses if d.id == "local-decision"]
    assert not any("as many rows" in found.message for found in told)


def test_an_attribute_beside_the_rows_may_differ() -> None:
    count = "step(x, y); seen += x.size(0); model.last = y.max()"
    text = SEEN.format(count=count, test="seen >= model.last", returned="0")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert Severity.BLOCKED in [d.severity for d in file.diagnoses if d.id == "local-decision"]
