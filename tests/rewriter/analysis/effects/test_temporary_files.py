"""Temporary files: what a process writes into its own, it reads itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

PROGRAM = """\
import json
import os
import pathlib
import tempfile
import torch
from torch import nn
from torch.utils.data import DataLoader
from rows import rows

def write(path, model):
    torch.save(model.state_dict(), path)

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(rows, batch_size=4):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
END
"""


def migrated(end: str) -> FileResult:
    (file,) = migrate([decode(PROGRAM.replace("END", end).encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


SAVE = "torch.save(model.state_dict(), {})\n"
OWN = {
    "a named file": (
        f"with tempfile.NamedTemporaryFile() as f:\n    {SAVE.format('f.name')}    n = os.path.getsize(f.name)",
        0,
    ),
    "an open file": (f"file = tempfile.NamedTemporaryFile()\n{SAVE.format('file')}state = torch.load(file)", 0),
    "a file without a name": ("with tempfile.TemporaryFile('w+') as file:\n    json.dump({}, file)", 0),
    "a path": (f"number, path = tempfile.mkstemp()\n{SAVE.format('path')}state = torch.load(path)\nos.unlink(path)", 0),
    "a path that stays": (f"number, path = tempfile.mkstemp()\n{SAVE.format('path')}state = torch.load(path)", 1),
    "a file that stays": (
        f"file = tempfile.NamedTemporaryFile(delete=False)\n{SAVE.format('file.name')}state = torch.load(file.name)",
        1,
    ),
    "removed as a path": (
        f"file = tempfile.NamedTemporaryFile(delete=False)\n{SAVE.format('file')}pathlib.Path(file.name).unlink()",
        0,
    ),
    "opened by its number": (
        "number, path = tempfile.mkstemp()\nwith os.fdopen(number, 'w') as file:\n    json.dump({}, file)",
        1,
    ),
    "opened by its path": (
        "number, path = tempfile.mkstemp()\nwith open(path, 'w') as file:\n    json.dump({}, file)\nos.remove(path)",
        0,
    ),
    "in a function": ("file = tempfile.NamedTemporaryFile()\nwrite(file.name, model)", 0),
}


@pytest.mark.parametrize(("end", "left"), OWN.values(), ids=OWN)
def test_each_process_writes_its_own_file(end: str, left: int) -> None:
    """The main process alone wrote, and the others read files that they had made and nobody had written."""
    file = migrated(end)
    text = file.after.decode().replace(", map_location=accelerator.device", "")
    assert end.partition("\nwrite(")[0] in text and "is_main_process" not in text and "accelerator.save" not in text
    assert [d.case for d in file.diagnoses].count("temporary-file") == left


@pytest.mark.parametrize("end", ["write('w.pt', model)", "write(tempfile.mkstemp()[1], model)\nwrite('w.pt', model)"])
def test_what_may_be_another_file_is_written_once(end: str) -> None:
    assert "accelerator.save(" in migrated(end).after.decode()
