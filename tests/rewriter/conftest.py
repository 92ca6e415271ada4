"""A script that trains, with parts of it replaced: `trained(step=...)` gives its new text and the ids of findings."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, RawConfig
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

LOSS = "loss = torch.nn.functional.cross_entropy(model(x), y)"
SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{top}
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
test_loader = DataLoader(test_data, batch_size=100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{built}
for epoch in range(3):
    total = 0.0
    for {batch} in {source}:
{loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{step}
{epoch}
{end}
"""

Trained = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def trained(usual_edits: Callable[[FileResult], None]) -> Trained:
    """The training around the part is migrated or refused, or the test fails; a second run changes nothing."""

    def run(
        *, top: str = "", built: str = "", batch: str = "x, y", source: str = "loader", loss: str = LOSS,
        step: str = "", epoch: str = "", end: str = "", config: Config = Config(),  # noqa: B008
    ) -> tuple[str, list[str]]:  # fmt: skip
        parts = {"loss": indent(loss, " " * 8), "step": indent(step, " " * 8), "epoch": indent(epoch, " " * 4)}
        file = _migrated(SCRIPT.format(top=top, built=built, batch=batch, source=source, end=end, **parts), config)
        usual_edits(file)
        text = file.after.decode()
        ast.parse(text)
        if file.changed:
            assert _migrated(text, config).after == file.after, "a second run changes something"
        return text, [found.id for found in file.diagnoses]

    return run


@pytest.fixture
def trained_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual_edits: Callable[[FileResult], None]
) -> Callable[..., tuple[dict[str, str], list[str]]]:
    """`trained_project(train=..., other=...)`: the texts of all files, migrated from train.py, and the ids."""
    monkeypatch.chdir(tmp_path)

    def run(**files: str) -> tuple[dict[str, str], list[str]]:
        (tmp_path / "pyproject.toml").write_text("")
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        survey = Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")])
        found = {os.path.relpath(file.source.path)[:-3]: file for file in survey.files}
        usual_edits(found["train"])
        return {name: f.after.decode() for name, f in found.items()}, [d.id for f in survey.files for d in f.diagnoses]

    return run


def _migrated(text: str, config: Config) -> FileResult:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, config).files
    return file
