"""The example in every rule's docstring: its diff is run, and a second run changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.codemods.catalogue import CATALOGUE

SPEAKING = ("scheduler", "data_parallel")
"""Rules that say in a note what their edits change at run time."""
EXAMPLES = [
    pytest.param(before, after, [entry.id] if entry.id in SPEAKING else [], id=f"{entry.id}-{number}")
    for entry in CATALOGUE
    for number, (before, after) in enumerate(entry.load().examples, 1)
]


@pytest.mark.parametrize(("before", "after", "findings"), EXAMPLES)
def test_the_example_does_what_it_says(
    before: str, after: str, findings: list[str], check_transformed: Callable[..., None]
) -> None:
    check_transformed(before, after, *findings)


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_the_example_shows_the_rule(entry: object) -> None:
    """Without its rule the example comes out differently."""
    from torchlift.rewriter.config import Config
    from torchlift.rewriter.pipeline import migrate
    from torchlift.rewriter.source import Source

    rule = entry.load()  # type: ignore[attr-defined]
    if rule.id == "scheduler":
        pytest.skip("it only speaks; prepare writes")
    from pathlib import Path

    for before, after in rule.examples:
        source = Source(Path("train.py"), before.encode(), before, "utf-8")
        (file,) = migrate([source], CATALOGUE, Config(ignore=frozenset({rule.id}))).files
        assert file.after.decode() != after
