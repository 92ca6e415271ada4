"""
A refusal says what to do: each of its remedies is followed to its end.

Each file of `remedies/` holds cases: `## id: name`, then lines of one program. A line that begins with a space is in
both scripts, with `-` in the refused one alone, with `+` in the one where the remedy is followed; `@ name` goes on with
another file, `HEAD` and `STEP` are the usual imports and the usual training step. Further lines of a case: `> words` of
the finding's message, `$ options` of the command and its files (`-$`, `+$`: of one of the two), `= reason`: a refusal
that is final, because there is nothing to migrate.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.cli import main

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).with_name("remedies")
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
FAULTS = {"output-check", "invalid-output", "conflict", "too-deep"}
"""Refusals of what migrate itself does wrong, or cannot follow: no program is known that comes to them."""
UNMET = (
    "a condition reads a value that is part of the backward pass, and each process would decide on its own shard",
    "this evaluation may run before the accelerator exists",
)
"""What is said where no program is known that comes to it, beside others of the same id."""


@dataclass
class Version:
    """One of the two programs of a case."""

    files: dict[str, list[str]] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)

    def arguments(self) -> list[str]:
        named = any(option.endswith((".py", ".ipynb")) for option in self.options)
        return self.options if named else [*self.options, "train.py"]

    def write(self, folder: Path) -> None:
        for name, lines in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = "".join(_expanded(line) for line in lines)
            path.write_text(_notebook(text) if name.endswith(".ipynb") else text)


@dataclass
class Case:
    """A refusal, and the same program with its remedy followed."""

    id: str
    name: str
    causes: list[str] = field(default_factory=list)
    final: str = ""
    refused: Version = field(default_factory=Version)
    followed: Version = field(default_factory=Version)

    def makes_accelerator(self) -> bool:
        """Whether it is for the remedy's sake that the script creates an accelerator."""
        refused, followed = (
            any("Accelerator()" in line for lines in version.files.values() for line in lines)
            for version in (self.refused, self.followed)
        )
        return followed and not refused

    def read(self, lines: list[str]) -> None:
        name = "train.py"
        for line in lines:
            sides = {"-": [self.refused], "+": [self.followed]}.get(line[:1], [self.refused, self.followed])
            kind, text = (line[1:2], line[2:]) if line[:2] in ("-$", "+$", "-@", "+@") else (line[:1], line[1:])
            if kind == ">":
                self.causes.append(text.strip())
            elif kind == "=":
                self.final = text.strip()
            elif kind == "$":
                for side in sides:
                    side.options.extend(text.split())
            elif kind == "@":
                name = text.strip()
                for side in sides:
                    side.files.setdefault(name, [])
            else:
                assert kind in ("", " ", "-", "+") or line == "HEAD", f"{self.name}: {line}"
                for side in sides:
                    side.files.setdefault(name, []).append(line if line == "HEAD" else text)


def _expanded(line: str) -> str:
    if line == "HEAD":
        return HEAD
    indent = line[: len(line) - len(line.lstrip())]
    return "".join(f"{indent}{step}\n" for step in STEP.splitlines()) if line.strip() == "STEP" else f"{line}\n"


def _notebook(text: str) -> str:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": cell.strip("\n").splitlines(keepends=True)}
        for cell in text.split("# %%\n")
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, indent=1) + "\n"


def _cases() -> Iterator[Case]:
    for path in sorted(CASES.glob("*.txt")):
        for block in f"\n{path.read_text()}".split("\n## ")[1:]:
            head, *lines = block.rstrip("\n").split("\n")
            id, _, name = head.partition(": ")
            case = Case(id, name)
            case.read(lines)
            yield case


ALL = list(_cases())
Migrate = Callable[[Version], dict[str, Any]]


@pytest.fixture
def migrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Migrate:
    """`migrate(version)`: what the command says of a program, in the format for machines."""

    def run(version: Version) -> dict[str, Any]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "pyproject.toml").touch()
        version.write(folder)
        monkeypatch.chdir(folder)
        capfd.readouterr()
        status = main.run(CATALOGUE, ["--output-format", "json", *version.arguments()])
        out, err = capfd.readouterr()
        assert status in (main.NOTHING, main.WOULD_CHANGE, main.BLOCKED), err
        document: dict[str, Any] = json.loads(out)
        return document

    return run


def _blocked(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [found for file in document["files"] for found in file["findings"] if found["severity"] == "blocked"]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.id}: {case.name}") for case in ALL])
def test_a_remedy_that_is_followed_leads_to_a_migrated_script(case: Case, migrate: Migrate) -> None:
    """All that refuses the script is named at once: after what is said of it is done, nothing refuses it."""
    document = migrate(case.refused)
    found = _blocked(document)
    assert not any(file["changed"] for file in document["files"])
    assert {one["id"] for one in found} == set(case.id.split(", "))
    for cause in case.causes:
        assert any(cause in one["message"] for one in found), [one["message"] for one in found]
    for one in found:
        assert any(cause in one["message"] for cause in case.causes), one["message"]
        assert one["remedy"]
    if case.makes_accelerator():
        assert any("accelerator = Accelerator()" in one["remedy"] or "accelerator" in one["message"] for one in found)
    if not case.final:
        document = migrate(case.followed)
        assert _blocked(document) == []
        assert any(file["changed"] for file in document["files"])


FIXTURES = ROOT / "fixtures"
OF_GROUPS = {
    "    everyone = dist.new_group(list(range(dist.get_world_size())))\n": "",
    "evaluate(model, test_loader, device, everyone)": "evaluate(model, test_loader, device)",
    "def evaluate(model, loader, device, group):": "def evaluate(model, loader, device):",
    "dist.all_reduce(counts, group=group)": "dist.all_reduce(counts)",
    "    model.register_comm_hook(None, default_hooks.allreduce_hook)\n": "",
}
CALLER = """\
import torch
from torch.utils.data import DataLoader
from before import evaluate, param_groups_without_decay, train_one_epoch
from datasets import data, test_data

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 2).to(device)
optimizer = torch.optim.AdamW(param_groups_without_decay(model, 0.01), lr=1e-3)
loader, test_loader = DataLoader(data, batch_size=32, shuffle=True), DataLoader(test_data, batch_size=32)
for epoch in range(3):
    train_one_epoch(model, torch.nn.CrossEntropyLoss(), loader, optimizer, device, epoch)
    evaluate(model, test_loader, device)
"""


def test_the_remedies_for_a_fixture_with_groups_of_its_own(migrate: Migrate) -> None:
    text = (FIXTURES / "already_distributed" / "before.py").read_text()
    assert len(_blocked(migrate(Version({"train.py": text.splitlines()})))) == 3
    for old, new in OF_GROUPS.items():
        assert old in text
        text = text.replace(old, new)
    document = migrate(Version({"train.py": text.splitlines()}))
    assert _blocked(document) == [] and document["files"][0]["changed"]


def test_the_remedy_for_a_fixture_that_nothing_starts(migrate: Migrate) -> None:
    files = {"before.py": (FIXTURES / "no_entry_point" / "before.py").read_text().splitlines()}
    (found,) = _blocked(migrate(Version(files, ["before.py"])))
    assert "migrate the script that calls it" in found["remedy"]
    document = migrate(Version({**files, "train.py": CALLER.splitlines()}))
    assert _blocked(document) == [] and all(file["changed"] for file in document["files"])


# ---------------------------------------------------------------- every refusal has a case


@dataclass
class Refusal:
    """A place in the source that makes a finding which refuses a program."""

    place: str
    id: str
    """Empty if another function says it."""
    words: list[str]
    """What is written out of its message."""

    def is_met(self) -> bool:
        cases = [case for case in ALL if not self.id or self.id in case.id.split(", ")]
        said = [*UNMET, *(cause for case in cases for cause in case.causes)]
        return any(piece in cause or cause in piece for piece in self.words for cause in said) or (
            not self.words and (not self.id or bool(cases))
        )


@cache
def _refusals() -> list[Refusal]:
    found = []
    for wing in ("rewriter", "codemods"):
        for path in sorted((ROOT / wing).rglob("*.py")):
            tree = ast.parse(path.read_text())
            if "BLOCKED" in path.read_text() or "obstacles" in path.read_text():
                found += [
                    r for call in ast.walk(tree) if isinstance(call, ast.Call) for r in _refusal(path, tree, call)
                ]
    return found


def _refusal(path: Path, tree: ast.Module, call: ast.Call) -> Iterator[Refusal]:
    name = ast.unparse(call.func)
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    severe = any("BLOCKED" in ast.unparse(value) or ast.unparse(value) == "severity" for value in given)
    if name in ("Finding", "Diagnosis") and severe:
        id, message = given[0], given[2]
    elif name in ("blocked", "_blocked"):
        named = ast.unparse(given[0]).startswith(("'", '"'))
        id, message = (given[0], given[2]) if named else (ast.Constant(""), given[1])
    else:
        return
    if isinstance(id, ast.Name):
        constants = (n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == id.id)
        id = next((n.value for n in constants), id)
    written = ast.literal_eval(id) if isinstance(id, ast.Constant) else ""
    written_out = (n.value for n in ast.walk(message) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    pieces = [piece for text in written_out for piece in re.split(r"\{\w*\}", text)]  # a name is filled in later
    words = [piece.strip(" `:") for piece in pieces if len(piece.strip(" `:")) > 12]
    if written or words:
        yield Refusal(f"{path.relative_to(ROOT)}:{call.lineno}", written, words)


@pytest.mark.xdist_group("refusals")
def test_every_refusal_has_a_case() -> None:
    """A new one needs a program that is refused for it, and the same with its remedy followed."""
    assert len(_refusals()) > 70
    missing = [f"{r.place} [{r.id}] {r.words[:1]}" for r in _refusals() if r.id not in FAULTS and not r.is_met()]
    assert missing == []


@pytest.mark.xdist_group("refusals")
def test_every_case_is_of_a_refusal_that_exists() -> None:
    assert {id for case in ALL for id in case.id.split(", ")} <= {refusal.id for refusal in _refusals()}
