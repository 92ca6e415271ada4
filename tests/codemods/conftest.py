"""Two helpers for the tests of rules: `check_noop` and `check_transformed`, as fixtures."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

Control = Callable[[FileResult], None]
LOSS = "torch.nn.functional.cross_entropy(model(x), y)"

# A script that trains; tests put what they are about into its places.
TRAINING = """\
import torch
from torch.utils.data import DataLoader
{imports}
{top}
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
test_loader = DataLoader(test_data, batch_size=100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{built}
for epoch in range(3):
    for x, y in loader:
        loss = {loss}
        optimizer.zero_grad()
        {backward}
        optimizer.step()
{step}
{epoch}
{end}
"""


def result_of(text: str, **options: Any) -> FileResult:
    """What the whole catalogue makes of one program."""
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(**options)).files
    return file


def text_of(file: FileResult) -> str:
    return file.after.decode()


def _check_noop(text: str, *findings: str, **options: Any) -> None:
    """
    Check that the catalogue leaves a program alone.

    Args:
        text: the program.
        findings: ids of the findings that it must give, in order; none without.
        options: settings for `Config`.
    """
    text = dedent(text).lstrip("\n")
    file = result_of(text, **options)
    assert text_of(file) == text
    assert [found.id for found in file.diagnoses] == list(findings)


def _check_transformed(before: str, after: str, *findings: str, **options: Any) -> None:
    """
    Check the migrated text, letter for letter, that it is Python, and that a second run leaves it alone.

    Args: as of `check_noop`; a finding is not expected again in the second run.
    """
    before, after = dedent(before).lstrip("\n"), dedent(after).lstrip("\n")
    ast.parse(after)
    file = result_of(before, **options)
    assert text_of(file) == after
    assert [found.id for found in file.diagnoses] == list(findings)
    assert text_of(result_of(after, **options)) == after


@pytest.fixture
def check_noop() -> Callable[..., None]:
    """`check_noop(text, *ids of findings)`."""
    return _check_noop


@pytest.fixture
def check_transformed() -> Callable[..., None]:
    """`check_transformed(before, after, *ids of findings)`."""
    return _check_transformed


@pytest.fixture
def lines(usual_edits: Control) -> Callable[..., tuple[list[str], list[str], list[str]]]:
    """
    `lines(imports=..., top=..., built=..., step=..., epoch=..., end=...)` migrates a training script with those parts.

    Returns the lines that went, the lines that came and the ids of the findings, those aside that every migrated script
    has: the import, the constructor without arguments, `prepare` of the four things, and `accelerator.backward(loss)`.
    Those must be there, so that lines that are left alone are left alone by a rewriter that works.
    """

    def run(options: dict[str, Any] | None = None, **parts: str) -> tuple[list[str], list[str], list[str]]:
        before = program(**parts)
        file = _training(before, options or {}, usual_edits)
        return (*_difference(before, text_of(file)), [found.id for found in file.diagnoses])

    return run


@pytest.fixture
def after(usual_edits: Control) -> Callable[..., str]:
    """`after(parts)`: the text of the training script with those parts, migrated; with the usual edits, as `lines`."""

    def run(options: dict[str, Any] | None = None, **parts: str) -> str:
        return text_of(_training(program(**parts), options or {}, usual_edits))

    return run


@pytest.fixture
def migrated(usual_edits: Control) -> Callable[[str], str]:
    """`migrated(text)`: the text of a whole program that trains, migrated."""
    return lambda text: text_of(_training(text, {}, usual_edits))


@pytest.fixture
def result(usual_edits: Control) -> Callable[..., FileResult]:
    """`result(text)`: what becomes of a whole program that trains, findings and all; keywords are options."""
    return lambda text, **options: _training(text, options, usual_edits)


def _training(text: str, options: dict[str, Any], usual_edits: Control) -> FileResult:
    file = _migrated_twice(text, options)
    usual_edits(file)
    return file


def _migrated_twice(before: str, options: dict[str, Any]) -> FileResult:
    """The result of the first run; the second one must change nothing."""
    file = result_of(before, **options)
    if file.changed:
        ast.parse(file.after)
        assert text_of(result_of(text_of(file), **options)) == text_of(file), "a second run changes something"
    return file


def program(backward: str = "loss.backward()", loss: str = LOSS, **parts: str) -> str:
    """The training script with parts put in."""
    places = dict.fromkeys(("imports", "top", "built", "step", "epoch", "end"), "")
    assert parts.keys() <= places.keys(), parts
    given = {**places, **{key: dedent(text).strip("\n") for key, text in parts.items()}}
    given["step"], given["epoch"] = indent(given["step"], " " * 8), indent(given["epoch"], " " * 4)
    text = TRAINING.format(backward=backward, loss=loss, **given)
    return "".join(line for line in text.splitlines(keepends=True) if line.strip())


USUAL_OUT = {"        loss.backward()"}
USUAL_IN = {
    "from torchlift.runtime import Accelerator",
    "accelerator = Accelerator()",
    "model, optimizer, loader = accelerator.prepare(",
    "    model, optimizer, loader",
    "model, optimizer, loader, test_loader = accelerator.prepare(",
    "    model, optimizer, loader, test_loader",
    ")",
    "        accelerator.backward(loss)",
}


def _difference(before: str, after: str) -> tuple[list[str], list[str]]:
    from difflib import ndiff

    out, new = [], []
    for line in ndiff(before.splitlines(), after.splitlines()):
        if line.startswith("- ") and line[2:] not in USUAL_OUT:
            out.append(line[2:])
        elif line.startswith("+ ") and line[2:] not in USUAL_IN:
            new.append(line[2:])
    return out, new
