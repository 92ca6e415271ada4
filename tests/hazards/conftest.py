"""Whole scripts around a pattern: `migrated(text)` gives the new text, `findings(text)` the ids of what was said."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from datasets import data, test_data
"""
STEP = """\
loss = F.cross_entropy(model(x), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
"""


@pytest.fixture
def script() -> Callable[..., str]:
    """`script(text)`: a script with the usual imports in front, and `STEP` in the place of a line that says so."""
    return _script


def _script(text: str) -> str:
    lines = []
    for line in dedent(text).strip("\n").splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines += [indent + step for step in STEP.splitlines()] if line.strip() == "STEP" else [line]
    return HEAD + "\n".join(lines) + "\n"


@pytest.fixture
def result(usual_edits: Callable[[FileResult], None]) -> Callable[..., FileResult]:
    """`result(text)`: what the catalogue makes of such a script; it trains, and a second run must change nothing."""

    def run(text: str, **options: Any) -> FileResult:
        file = _result(_script(text), options)
        usual_edits(file)
        if file.changed:
            ast.parse(file.after)
            assert _result(file.after.decode(), options).after == file.after, "a second run changes something"
        return file

    return run


@pytest.fixture
def unchanged() -> Callable[[str], list[str]]:
    """`unchanged(text)`: the ids of the findings for such a script, which must stay byte-identical."""

    def run(text: str) -> list[str]:
        file = _result(_script(text), {})
        assert file.after == file.source.data
        return [found.id for found in file.diagnoses]

    return run


def _result(text: str, options: dict[str, Any]) -> FileResult:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(**options)).files
    return file


@pytest.fixture
def migrated(result: Callable[..., FileResult]) -> Callable[..., str]:
    """`migrated(text)`: the new text of such a script."""
    return lambda text, **options: result(text, **options).after.decode()


@pytest.fixture
def findings(result: Callable[..., FileResult]) -> Callable[..., list[str]]:
    """`findings(text)`: the ids of the findings."""
    return lambda text, **options: [found.id for found in result(text, **options).diagnoses]
