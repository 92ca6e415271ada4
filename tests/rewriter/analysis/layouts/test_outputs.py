"""Forty spellings of what an evaluation makes of a model's outputs: rows are gathered, and with them their labels."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

SCRIPT = """\
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from rows import rows, test_rows

NAMES = ["cat", "dog", "owl"]
tokenizer = AutoTokenizer.from_pretrained("t5-small")


@dataclass
class Result:
    logits: torch.Tensor
    hidden: torch.Tensor


class Both(NamedTuple):
    logits: torch.Tensor
    hidden: torch.Tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return {gives}


def fit(model, loader, optimizer):
    for x, y in loader:
        out = model(x)
        optimizer.zero_grad()
        F.cross_entropy({logits}, y).backward()
        optimizer.step()


def test(model, loader):
    {before}
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
{step}
    return {after}


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(rows, batch_size=32, shuffle=True)
held = DataLoader(test_rows, batch_size=100)
for epoch in range(3):
    fit(model, loader, optimizer)
    print(test(model, held))
"""


class Case(NamedTuple):
    """An evaluation of a model."""

    step: str
    before: str = "hits = 0"
    after: str = "hits / len(loader.dataset)"
    gives: str = "self.head(h)"
    logits: str = "out"


LISTS = "outs, told = [], []"
F1 = "f1_score(told, outs)"
RATE = "(torch.cat(outs) == torch.cat(told)).float().mean().item()"
ROWS = {
    "reduced": Case("hits += (out.argmax(1) == y).sum().item()"),
    "reduced by another name of the dimension": Case("hits += (np.argmax(out.numpy(), axis=-1) == y.numpy()).sum()"),
    "the place of the maximum": Case("hits += (out.max(dim=1)[1] == y).sum().item()"),
    "a field of the maximum": Case("hits += out.max(1).indices.eq(y).sum().item()"),
    "the maximum, unpacked": Case("_, guess = torch.max(out, 1)\nhits += (guess == y).sum().item()"),
    "top k": Case("hits += (out.topk(2, dim=1).indices == y[:, None]).sum().item()"),
    "top k, transposed": Case(
        "_, guess = out.topk(2, 1, True, True)\nguess = guess.t()\nright = guess.eq(y.view(1, -1).expand_as(guess))\n"
        "hits += right[:1].reshape(-1).float().sum(0).item()"
    ),
    "sorted": Case("_, order = torch.sort(out, dim=1, descending=True)\nhits += (order[:, 0] == y).sum().item()"),
    "sorted places": Case("hits += (out.argsort(dim=1)[:, -1] == y).sum().item()"),
    "the k-th value": Case("hits += (out.kthvalue(3, dim=1).indices == y).sum().item()"),
    "transposed": Case("out = out.transpose(0, 1)\nhits += (out.argmax(0) == y).sum().item()"),
    "flattened": Case("hits += (out.argmax(1).flatten() == y.flatten()).sum().item()"),
    "viewed": Case("hits += (out.argmax(1).view(-1) == y.view(-1)).sum().item()"),
    "with a dimension more": Case("hits += (out.argmax(1, keepdim=True) == y.unsqueeze(1)).sum().item()"),
    "with a dimension less": Case("hits += ((out[:, :1].squeeze() > 0).long() == y).sum().item()"),
    "k rows of each": Case(
        "two = out.repeat_interleave(2, dim=0)\nhits += (two.argmax(1) == y.repeat_interleave(2)).sum().item()"
    ),
    "by a condition": Case("hits += torch.where(out.argmax(1) == y, 1.0, 0.0).sum().item()"),
    "by numpy": Case("hits += np.sum(out.argmax(1).numpy() == y.numpy())"),
    "by einsum": Case("hits += torch.einsum('ij,ij->', out, F.one_hot(y, 3).float()).item()"),
    "squared gaps": Case("hits += ((out - F.one_hot(y, 3)) ** 2).sum().item()"),
    "a loss of each row": Case("hits += F.cross_entropy(out, y, reduction='none').sum().item()"),
    "a mean that the rows weigh": Case("hits += F.cross_entropy(out, y).item() * y.size(0)"),
    "rows that are chosen": Case(
        "keep = y > 0\nhits += (out[keep].argmax(1) == y[keep]).sum().item()\nseen += keep.sum().item()",
        "hits, seen = 0, 0", "hits / seen",
    ),
    "strings": Case(
        "for guess, wanted in zip(out.argmax(1), y):\n    hits += NAMES[guess.item()] == NAMES[wanted.item()]"
    ),
    "lists of strings": Case(
        "outs += [NAMES[k] for k in out.argmax(1).tolist()]\ntold += [NAMES[k] for k in y.tolist()]", LISTS, F1
    ),
    "texts of a tokenizer": Case(
        "outs.extend(tokenizer.batch_decode(out.argmax(1)))\ntold.extend(tokenizer.batch_decode(y))", LISTS,
        "np.mean([a == b for a, b in zip(outs, told)])",
    ),
    "lists": Case("told += y.tolist()\nouts.extend(out.argmax(dim=-1).tolist())", LISTS, F1),
    "arrays": Case(
        "outs.append(F.softmax(out, dim=1).numpy())\ntold.append(y.numpy())", LISTS,
        "f1_score(np.concatenate(told), np.concatenate(outs).argmax(1))",
    ),
    "concatenated": Case("outs.append(out.argmax(1))\ntold.append(y)", LISTS, RATE),
    "concatenated in each step": Case(
        "outs = torch.cat([outs, out.argmax(1)])\ntold = torch.cat([told, y])",
        "outs, told = torch.empty(0), torch.empty(0)", "(outs == told).float().mean().item()",
    ),
    "concatenated along the second dimension": Case(
        "outs.append(out.t())\ntold.append(y)", LISTS,
        "(torch.cat(outs, dim=1).argmax(0) == torch.cat(told)).float().mean().item()",
    ),
    "stacked": Case(
        "outs.append(torch.stack([out.argmax(1), y], dim=1))", "outs = []", "torch.cat(outs).diff().eq(0).sum().item()"
    ),
    "a table of counts": Case(
        "for guess, wanted in zip(out.argmax(1), y):\n    table[wanted, guess] += 1", "table = torch.zeros(3, 3)",
        "(table.diag() / table.sum(1)).mean().item()",
    ),
    "sums of each class": Case(
        "for k in range(3):\n    sums[k] += out[y == k].sum(0)", "sums = torch.zeros(3, 3)", "sums.argmax(1).tolist()"
    ),
    "counts of pairs": Case(
        "table += torch.bincount(3 * y + out.argmax(1), minlength=9).reshape(3, 3)", "table = 0", "table"
    ),
    "counts of chosen pairs": Case(
        "guess, wanted = out.argmax(1).cpu().numpy(), y.cpu().numpy()\n"
        "kept = (wanted >= 0) & (wanted < 3)\n"
        "table += np.bincount(3 * wanted[kept].astype(int) + guess[kept], minlength=9)",
        "table = 0", "table",
    ),
    "counts by a method": Case("table += (3 * y + out.argmax(1)).bincount(minlength=9)", "table = 0", "table"),
    "places that are counted on": Case(
        "place[n:n + len(y)] = out.argmax(1) == y\nn += len(y)", "place, n = torch.zeros(len(loader.dataset)), 0",
        "place.mean().item()",
    ),
    "a tuple": Case(
        "logits, hidden = out\nhits += (logits.argmax(1) == y).sum().item()", gives="self.head(h), h", logits="out[0]"
    ),
}  # fmt: skip
FIELDS = {
    "a dictionary": ("{'logits': self.head(h), 'hidden': h}", "out['logits']"),
    "a data class": ("Result(self.head(h), h)", "out.logits"),
    "a named tuple": ("Both(self.head(h), h)", "out.logits"),
    "a tuple with what no row has": ("self.head(h), (h, h.mean(0))", "out[0]"),
}


def _answer(case: Case) -> FileResult:
    text = SCRIPT.format(**case._replace(step=indent(case.step, " " * 12))._asdict())
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


def _joined(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "accelerator.gather" in line or "accelerator.reduce" in line]


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_rows_are_gathered_with_their_labels(case: Case) -> None:
    file = _answer(case)
    assert _joined(file.after.decode()) == ["out, y = accelerator.gather_for_metrics((out, y))"]
    assert [found.id for found in file.diagnoses] == []


@pytest.mark.parametrize(("gives", "logits"), FIELDS.values(), ids=FIELDS)
def test_of_several_results_what_is_read_is_gathered(gives: str, logits: str) -> None:
    file = _answer(Case(f"hits += ({logits}.argmax(1) == y).sum().item()", gives=gives, logits=logits))
    assert _joined(file.after.decode()) == [
        "y = accelerator.gather_for_metrics(y)",
        f"hits += (accelerator.gather_for_metrics({logits}).argmax(1) == y).sum().item()",
    ]
    assert [found.id for found in file.diagnoses] == []


TOLD = {
    "all pairs of a batch": (Case("hits += (out @ out.t()).mean().item()"), ["prepare"], False),
    "counts of which the number is not known": (
        Case("table += torch.bincount(3 * y + out.argmax(1))", "table = 0", "table"), ["mean-of-batches"], True
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "findings", "gathered"), TOLD.values(), ids=TOLD)
def test_what_is_no_sum_over_the_rows_is_told(case: Case, findings: list[str], gathered: bool) -> None:
    file = _answer(case)
    assert [found.id for found in file.diagnoses] == findings
    assert bool(_joined(file.after.decode())) is gathered


def test_the_largest_of_all_needs_no_labels() -> None:
    file = _answer(Case("best = max(best, out.max().item())", "best = 0.0", "best"))
    assert _joined(file.after.decode()) == ["out = accelerator.gather_for_metrics(out)"]
