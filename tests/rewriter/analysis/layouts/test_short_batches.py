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
