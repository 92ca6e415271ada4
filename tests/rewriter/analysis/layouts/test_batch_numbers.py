"""Rows of a table that are chosen by the number of a batch, which each process counts for itself."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Finding, Severity
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import numpy as np
import torch
size = 8
codes = torch.load("codes.pt")
banks = [torch.zeros(5), torch.ones(5)]
memory = torch.zeros(len(data), 5)
curve = torch.zeros(1000)
model = torch.nn.Linear(8, 5)
loader = torch.utils.data.DataLoader(data, batch_size={size})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
done = start = 0
for step, (x, row) in enumerate(loader):
    out = model(x)
{body}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    start += len(x)
    done += 1
"""


def told(body: str, size: str = "size", *, keep: bool = False) -> list[Finding]:
    """What is found of the numbers of batches, in the order of the lines."""
    text = SCRIPT.format(body=indent(body, "    "), size=size)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=keep)).files
    return [found for found in file.diagnoses if found.id == "batch-number"]


LOSS = "loss = ((out - wanted) ** 2).mean()"


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "taken",
    [
        "wanted = codes[step * size : step * size + len(x)]",
        "wanted = codes[size * done : size * (done + 1)]",
        "wanted = codes[start : start + len(x)]",
        "rows = torch.arange(step * size, step * size + len(x))\nwanted = codes[rows]",
        "rows = np.linspace(step * size, (step + 1) * size - 1, len(x), dtype=int)\n"
        "wanted = codes.index_select(0, torch.from_numpy(rows))",
        "wanted = torch.index_select(codes, 0, torch.arange(step * size, step * size + len(x)))",
        "wanted = codes.narrow(0, step * size, len(x))",
    ],
    ids=["slice", "own counter", "sum of rows", "arange", "index_select", "torch.index_select", "narrow"],
)
def test_rows_for_the_loss_at_the_places_of_other_samples_are_refused(taken: str, keep: bool) -> None:
    (found,) = told(f"{taken}\n{LOSS}", keep=keep)
    assert found.severity is Severity.BLOCKED
    assert "the rows of `codes` that are read here belong to other samples than the batch" in found.message


def test_rows_that_are_kept_at_the_places_of_others_are_refused() -> None:
    (found,) = told("loss = out.mean()\nmemory[step * size : step * size + len(x)] = out.detach()")
    assert found.severity is Severity.BLOCKED
    assert "`memory` would keep these rows at the places of others" in found.message


def test_the_number_of_a_batch_of_one_row_is_that_of_the_row() -> None:
    (found,) = told(f"wanted = codes[step]\n{LOSS}", size="1")
    assert found.severity is Severity.BLOCKED


def test_an_entry_for_each_batch_is_for_the_reader_to_judge() -> None:
    (found,) = told(f"wanted = codes[step]\n{LOSS}")
    assert found.severity is Severity.REVIEW
    assert "`codes` is read at `step`, the number of the batch, which each process counts for itself" in found.message


@pytest.mark.parametrize(
    "body",
    [
        f"wanted = codes[row]\n{LOSS}",
        f"wanted = banks[step % 2]\n{LOSS}",
        "loss = out.mean()\ncurve[step] = loss.item()",
        "loss = out.mean()\ncurve[step * size] = loss.item()",
        "loss = out.mean()\nprint(step * size, codes[row].sum())",
        f"wanted = codes[row[0] * size : row[0] * size + len(x)]\n{LOSS}",
    ],
    ids=["the row's own number", "in turns", "a figure of a step", "a figure at its progress", "progress", "no number"],
)
def test_nothing_is_said(body: str) -> None:
    assert told(body) == []
