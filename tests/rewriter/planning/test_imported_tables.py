"""Loaders in a table of an imported module: each is prepared under its key, where the training reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

DATA = """\
from torch.utils.data import DataLoader
from rows import kept, rows

sets = {"train": rows, "val": kept}
LOADERS
"""
TRAIN = """\
import torch
import torch.nn as nn
IMPORT

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def run(model, optimizer):
    for phase in ["train", "val"]:
        for x, y in FIRST:
            x, y = x.to(device), y.to(device)
            with torch.set_grad_enabled(phase == "train"):
                loss = nn.functional.cross_entropy(model(x), y)
                if phase == "train":
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()


def main():
    model = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run(model, optimizer)
    END


if __name__ == "__main__":
    main()
"""
PLAIN = 'loaders = {"train": DataLoader(rows, batch_size=8), "val": DataLoader(kept, batch_size=8)}'
LOOPED = "loaders = {name: DataLoader(sets[name], batch_size=8) for name in sets}"
NESTED = 'loaders = {name: {"rows": DataLoader(sets[name], batch_size=8), "count": len(sets[name])} for name in sets}'
IMPORT = "from data import loaders"


def migrated(loaders: str, first: str, imported: str = IMPORT, end: str = "pass") -> tuple[str, bool, list[str]]:
    """The training's text, whether the module of the data changed, and the findings."""
    train = TRAIN.replace("IMPORT", imported).replace("FIRST", first).replace("END", end)
    texts = {"train.py": train, "data.py": DATA.replace("LOADERS", loaders)}
    files = migrate([decode(text.encode(), Path(name)) for name, text in texts.items()], CATALOGUE, Config()).files
    return files[0].after.decode(), files[1].changed, [d.id for file in files for d in file.diagnoses]


TABLES = {
    "written out": (PLAIN, "loaders[phase]", IMPORT, ['loaders["train"]', 'loaders["val"]']),
    "made in a loop": (LOOPED, "loaders[phase]", IMPORT, ['loaders["train"]', 'loaders["val"]']),
    "of tables": (NESTED, "loaders[phase]['rows']", IMPORT, ['loaders["train"]["rows"]', 'loaders["val"]["rows"]']),
    "by the module": (PLAIN, "data.loaders[phase]", "import data", ['data.loaders["train"]', 'data.loaders["val"]']),
    "under another name": (LOOPED, "d[phase]", "from data import loaders as d", ['d["train"]', 'd["val"]']),
    "one entry": (PLAIN, "loaders['train']", IMPORT, ['loaders["train"]']),
}


@pytest.mark.parametrize(("loaders", "first", "imported", "names"), TABLES.values(), ids=TABLES)
def test_each_entry_is_prepared_under_its_key(loaders: str, first: str, imported: str, names: list[str]) -> None:
    """It was refused: where the table is made, there is no accelerator yet."""
    train, changed, findings = migrated(loaders, first, imported)
    assert not changed and "accelerator-out-of-reach" not in findings
    prepared = next(line for line in train.splitlines() if "= accelerator.prepare(" in line)
    assert sorted(prepared.strip().partition(" = ")[0].split(", ")) == sorted(["model", "optimizer", *names])
    assert "x.to(device)" not in train


LEFT = {
    "keys that nobody knows": ("loaders[phase + '']", LOOPED, "pass"),
    "all of them": ("loaders['train']", LOOPED, "[len(y) for each in loaders.values() for x, y in each]"),
    "another one without a model": ("loaders['train']", LOOPED, "[len(y) for x, y in loaders['val']]"),
}


@pytest.mark.parametrize(("first", "loaders", "end"), LEFT.values(), ids=LEFT)
def test_what_may_be_another_entry_is_left(first: str, loaders: str, end: str) -> None:
    train, _, findings = migrated(loaders, first, end=end)
    assert "accelerator-out-of-reach" in findings and "accelerator" not in train
