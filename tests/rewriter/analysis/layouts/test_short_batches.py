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


def _said(test: str, given: str = "batch_size=SIZE", *, split: bool = False) -> str:
    """The case of the finding: a short batch is filled up, all leave the step out together, or it is refused."""
    text = SCRIPT.format(test=test, given=given)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=split)).files
    (found,) = [d for d in file.diagnoses if d.id == "local-decision"]
    assert (found.severity is Severity.BLOCKED) is (found.case == "step")
    return found.case


@pytest.mark.parametrize("test", ["x.size()[0] != SIZE", "len(x) < SIZE", "y.shape[0] != SIZE", "rows != SIZE"])
def test_the_rows_of_a_batch_are_as_many_on_all_processes(test: str) -> None:
    assert _said(test) == "short-batch"
    assert _said(test, split=True) == "step"


@pytest.mark.parametrize(
    ("test", "given"),
    [
        ("x.max() > 0", "batch_size=SIZE"),
        ("len(x) != SIZE or y[0] == 1", "batch_size=SIZE"),
        ("len(x) != SIZE", "batch_sampler=batches"),
        ("len(x) != SIZE", "batch_size=SIZE, collate_fn=without_broken"),
    ],
)
def test_another_value_may_differ(test: str, given: str) -> None:
    assert _said(test, given) == "left-out"
    assert _said(test, given, split=True) == "step"


COLLATED = {
    "stacked": "    return torch.stack([a for a, _ in samples]), torch.stack([b for _, b in samples])",
    "in columns": "    ones, others = zip(*samples)\n    return torch.stack(ones), torch.tensor(others)",
}
LEAVING_OUT = {
    "a condition": "    samples = [s for s in samples if s is not None]\n" + COLLATED["stacked"],
    "a filter": "    ones, others = zip(*filter(None, samples))\n    return torch.stack(ones), torch.tensor(others)",
    "a slice": "    ones, others = zip(*samples[:3])\n    return torch.stack(ones), torch.tensor(others)",
    "rows of any number": "    return torch.cat([a for a, _ in samples]), torch.cat([b for _, b in samples])",
    "unknown code": "    return packed(samples)",
}


def _collated(body: str) -> str:
    script = SCRIPT.replace("SIZE = 4", f"SIZE = 4\ndef collate(samples):\n{body}")
    text = script.replace("{test}", "len(x) < SIZE").replace("{given}", "batch_size=SIZE, collate_fn=collate")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [d for d in file.diagnoses if d.id == "local-decision"]
    assert (found.severity is Severity.BLOCKED) is (found.case == "step")
    return found.case


@pytest.mark.parametrize("body", COLLATED.values(), ids=COLLATED)
def test_so_they_are_where_one_row_is_made_of_each_sample(body: str) -> None:
    """It was refused: "the processes would hang"."""
    assert _collated(body) == "short-batch"


@pytest.mark.parametrize("body", LEAVING_OUT.values(), ids=LEAVING_OUT)
def test_where_samples_may_be_left_out_they_may_differ(body: str) -> None:
    assert _collated(body) == "left-out"
