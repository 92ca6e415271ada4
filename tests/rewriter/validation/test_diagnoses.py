"""A violation as people read it: blocked, at the line of the original, and not where a finding has told it."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter import pipeline
from torchlift.rewriter.config import Config
from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.result import Diagnosis, FileResult
from torchlift.rewriter.source import decode
from torchlift.rewriter.validation.diagnoses import Emitted, Said, diagnoses

from .test_check import AFTER, BEFORE, PREPARE

FAILED = "output-check"
LAYOUT = ModulePaths({ENTRY: Place(ENTRY)})
WRONG = AFTER.replace(PREPARE, "optimizer, loader = accelerator.prepare(optimizer, loader)\n")


def said(text: str, *told: Diagnosis, written: bool = False) -> list[Diagnosis]:
    emitted = Emitted(ENTRY, cst.parse_module(BEFORE), text, told)
    found = diagnoses([emitted], (), LAYOUT, written=written).get(ENTRY)
    return found.diagnoses if found is not None else []


def test_a_violation_blocks_and_names_both_places() -> None:
    (found,) = said(WRONG)
    assert (found.id, found.severity) == (FAILED, Severity.BLOCKED)
    assert "model-prepared" in found.message
    assert "accelerator.prepare(optimizer, loader)" in found.message and "nn.Linear(2, 2)` (line 7" in found.message
    assert "nothing was written" in found.remedy
    assert "written all the same" in said(WRONG, written=True)[0].remedy


def test_what_a_finding_has_told_is_not_said_again() -> None:
    assert not said(WRONG, Diagnosis("wrapped-model", Severity.REVIEW, "", "", 7))
    assert said(WRONG, Diagnosis("wrapped-model", Severity.REVIEW, "", "", 3))


def test_a_right_program_gets_no_word() -> None:
    assert said(AFTER) == []


@pytest.mark.parametrize("partial", [False, True])
def test_a_program_that_fails_the_check_is_written_only_where_it_is_asked_for(
    partial: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> dict[str, Said]:
        return {ENTRY: Said([Diagnosis(FAILED, Severity.BLOCKED, "", "")], [])}

    monkeypatch.setattr(pipeline, "diagnoses", broken)
    file = _migrated(Config(partial=partial))
    assert file.blocked and file.changed is partial


def test_nothing_is_checked_where_nothing_changes_or_a_rule_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> dict[str, list[Diagnosis]]:
        raise AssertionError

    monkeypatch.setattr(pipeline, "diagnoses", never)
    assert not _migrated(Config(), "print(1)\n").changed
    assert _migrated(Config(ignore=frozenset({"checkpoint_save"}))).changed


def _migrated(config: Config, text: str = BEFORE) -> FileResult:
    (file,) = pipeline.migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, config).files
    return file


def test_the_figures_of_one_line_are_told_together() -> None:
    evaluated = (
        "held = accelerator.prepare(DataLoader(data, 8))\nfor x, y in held:\n    out = model(x)\nprint(y, out)\n"
    )
    (found,) = said(AFTER + evaluated)
    assert found.id == "own-figure" and found.message.startswith("`y` and `out` are shown")
    (found,) = said(AFTER + evaluated.replace("print(y, out)", "print(out)"))
    assert found.message.startswith("`out` is shown")


def test_the_figures_that_one_function_shows_have_one_cause() -> None:
    """They are one finding in a report, with its places: each picture of a sample was one of its own."""
    shown = "    for x, y in held:\n        out = model(x)\n    print(y)\n    print(out)\n"
    for head, causes in (("def show():", {"it shows them"}), ("if 1:", set())):
        called = "show()\n" if causes else ""
        text = f"{AFTER}held = accelerator.prepare(DataLoader(data, 8))\n{head}\n{shown}{called}"
        found = diagnoses([Emitted(ENTRY, cst.parse_module(text), None)], (), LAYOUT, written=False)[ENTRY].diagnoses
        assert [one.id for one in found] == ["own-figure"] * 2
        assert {one.cause.label for one in found if one.cause is not None} == causes
        assert len({(one.remedy, one.cause) for one in found}) == 1
