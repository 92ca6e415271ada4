"""The example in every rule's docstring: its diff is run, and a second run changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

SPEAKING = {"scheduler": "scheduler", "data_parallel": "data_parallel", "shard_batch": "sharded-batch"}
"""Rules that say in a note what their edits change at run time, and the id of that note."""
ASKED: dict[str, dict[str, str]] = {"deferred_reads": {"device": "tpu"}}
"""Rules that work only where an option asks for them, and that option."""
EXAMPLES = [
    pytest.param(
        before,
        after,
        [SPEAKING[entry.id]] if entry.id in SPEAKING else [],
        ASKED.get(entry.id, {}),
        id=f"{entry.id}-{number}",
    )
    for entry in CATALOGUE
    for number, (before, after) in enumerate(entry.load().examples, 1)
]


@pytest.mark.parametrize(("before", "after", "findings", "options"), EXAMPLES)
def test_the_example_does_what_it_says(
    before: str, after: str, findings: list[str], options: dict[str, str], check_transformed: Callable[..., None]
) -> None:
    check_transformed(before, after, *findings, **options)


def migrated(text: str, *ignored: str, device: str = "") -> FileResult:
    config = Config(ignore=frozenset(ignored), device=device)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, config).files
    return file


def replacements(file: FileResult) -> dict[int, list[str]]:
    """What each line of the original has become, where it is another; what is put in belongs to the lines around."""
    before, after = (text.splitlines() for text in file.texts)
    found: dict[int, list[str]] = {}
    for tag, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            for line in range(start + 1, end + 1) if end > start else (start, start + 1):
                found[line] = after[first:last]
    return found


@pytest.mark.parametrize(
    ("rule", "before"),
    [(e.id, before) for e in CATALOGUE for before, _ in e.load().examples if e.id != "scheduler"],
)
def test_the_example_shows_the_rule(rule: str, before: str) -> None:
    """Without its rule an example comes out differently, and it does so where the rule says that it edits."""
    options = ASKED.get(rule, {})
    whole, without = migrated(before, **options), migrated(before, rule, **options)
    edited = {change.line for change in whole.changes if change.rule == rule}
    one, other = replacements(whole), replacements(without)
    different = {line for line in one.keys() | other.keys() if one.get(line) != other.get(line)}
    assert edited & different
    assert rule not in {change.rule for change in without.changes}


def test_the_rule_that_only_speaks() -> None:
    """Schedulers are prepared by the rule for it; this one says what that changes."""
    ((before, _),) = next(entry for entry in CATALOGUE if entry.id == "scheduler").load().examples
    assert [found.id for found in migrated(before).diagnoses] == ["scheduler"]
    assert [found.id for found in migrated(before, "scheduler").diagnoses] == []
    assert migrated(before, "scheduler").after == migrated(before).after
