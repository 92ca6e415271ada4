"""What runs: a function that is handed to code outside the program runs only if what hands it over does."""

from __future__ import annotations

from collections.abc import Callable

ROWS = """\
import functools
import multiprocessing
import torch


def keep(row, folder):
    torch.save(row, folder)


def write_all(rows, folder):
    with multiprocessing.Pool(2) as pool:
        pool.map(functools.partial(keep, folder=folder), rows)


def width():
    return 8
"""
TRAIN = """\
import torch
from rows import width
from torch.utils.data import DataLoader


def main():
    loader = DataLoader(data, batch_size=32)
    model = torch.nn.Linear(width(), 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""


def test_a_function_that_is_handed_over_by_one_that_never_runs(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    """The file of a helper that another script calls was "written by every process", which refused this script."""
    texts, findings = trained_project(train=TRAIN, rows=ROWS)
    assert list(texts) == ["train"] and findings == []


def test_a_function_that_is_handed_over_by_what_runs(trained: Callable[..., tuple[str, list[str]]]) -> None:
    text, findings = trained(top=ROWS, end="write_all(data, 'rows')")
    assert "    accelerator.save(row, folder)\n" in text and findings == []
