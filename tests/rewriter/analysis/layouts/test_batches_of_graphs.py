"""Batches that an object of the script holds, such as joined graphs: their fields are gathered, and not the object."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader


@dataclass
class Graph:
    x: torch.Tensor
    y: torch.Tensor
    mask: torch.Tensor
    batch: torch.Tensor
    num_graphs: int


def collate(items):
    x, y = (torch.cat(part) for part in zip(*items))
    places = [torch.full((len(one[0]),), i) for i, one in enumerate(items)]
    return {made}


data = [(torch.randn(n, 3), torch.randn(n)) for n in (4, 5, 6, 7, 3, 4)]
loader = DataLoader(data, 2, shuffle=True, collate_fn=collate)
held_out = DataLoader(data, 2, collate_fn=collate)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    total, nodes = 0.0, 0
    for {batch} in loader:
        gaps = (model({x})[:, 0] - {y}).pow(2)
        loss = gaps[{mask}].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n = int({mask}.sum())
        total += loss.item() * n
        nodes += n
    worst = []
    with torch.no_grad():
        for {batch} in held_out:
            gaps = (model({x})[:, 0] - {y}).pow(2)
            worst += torch.zeros({graphs}).index_add_(0, {places}, gaps).tolist()
    print(epoch, total / nodes, max(worst))
"""
FIELDS = {
    "made": "Graph(x, y, y > 0, torch.cat(places), len(items))",
    "batch": "g",
    "x": "g.x",
    "y": "g.y",
    "mask": "g.mask",
    "graphs": "g.num_graphs",
    "places": "g.batch",
}
PARTS = {
    "made": "x, y, y > 0, torch.cat(places), len(items)",
    "batch": "x, y, mask, places, graphs",
    "x": "x",
    "y": "y",
    "mask": "mask",
    "graphs": "graphs",
    "places": "places",
}


def _migrated(parts: dict[str, str]) -> tuple[str, list[str]]:
    (file,) = migrate([decode(SCRIPT.format(**parts).encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file.after.decode(), [found.message for found in file.diagnoses if found.id == "prepare"]


def test_a_field_of_an_object_is_gathered_and_not_the_object() -> None:
    """The object was gathered, which no process can do."""
    text, _ = _migrated(FIELDS)
    assert "n = int(accelerator.gather_for_metrics(g.mask).sum())\n" in text
    assert "g = accelerator.gather_for_metrics(g)" not in text


@pytest.mark.parametrize("parts", [FIELDS, PARTS], ids=["an object", "a tuple"])
def test_rows_that_a_batch_numbers_by_itself_are_not_joined(parts: dict[str, str]) -> None:
    """The number of graphs, and the places of their nodes, were gathered: a crash."""
    text, left = _migrated(parts)
    assert "held_out" not in text.partition("accelerator.prepare(")[2].partition("for epoch")[0]
    assert len(left) == 1 and "it gives values a shape by the size of a batch" in left[0]
