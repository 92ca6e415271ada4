"""Files that join their processes by themselves, and use a function that a migration changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import RawConfig
from torchlift.rewriter.project.scan import Surveyor

KEEPS = """\
import json


def kept(figures, path):
    with open(path, "w") as file:
        json.dump(figures, file)
    with open(path) as file:
        return json.load(file)


def noted(figures, path):
    with open(path, "w") as file:
        json.dump(figures, file)


def both(figures):
    return kept(figures, "both.json")


def largest(figures):
    return max(figures)
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader
from keeps import kept, largest, noted

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
figures = []
for batch in DataLoader(torch.randn(32, 4), batch_size=8):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    figures.append(1)
print(kept(figures, "figures.json"), largest(figures))
noted(figures, "noted.json")
"""
STARTS = "import torch.distributed\n\n\ndef start():\n    torch.distributed.init_process_group('gloo')\n"


def told(folder: Path, other: str) -> list[tuple[str, str, str]]:
    files = {"pyproject.toml": "", "keeps.py": KEEPS, "train.py": TRAIN, "starts.py": STARTS, "other.py": other}
    for name, text in files.items():
        (folder / name).write_text(text)
    survey = Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")])
    assert {os.path.relpath(f.source.path) for f in survey.files if f.changed} == {"train.py", "keeps.py"}
    found = [(d.id, d.severity.value, d.message) for f in survey.files for d in f.diagnoses]
    return [one for one in found if one[0] == "shared-module"]


@pytest.mark.parametrize("name", ["kept", "both"])
def test_one_that_all_must_call_now(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ((_, severity, message),) = told(
        tmp_path, f"from keeps import {name}\nfrom starts import start\nstart()\n{name}([])\n"
    )
    assert severity == "review"
    assert message.startswith("other.py, which joins") and f"also uses `{name}`: all of its processes" in message


def test_one_that_the_main_process_alone_writes_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ((_, severity, message),) = told(tmp_path, "import keeps, starts\nstarts.start()\nkeeps.noted([], '1.json')\n")
    assert severity == "note" and "also uses `noted`: of its processes only the main one" in message


@pytest.mark.parametrize(
    "other",
    ["from keeps import kept\nkept([], 'x')\n", "import keeps, starts\nstarts.start()\nkeeps.largest([])\n"],
    ids=["one process", "what has not changed"],
)
def test_nobody_else_is_named(other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert told(tmp_path, other) == []
