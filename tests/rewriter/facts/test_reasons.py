"""The reasons of edits: whole sentences with the script's own names."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.facts.reasons import about, called
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import read

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
VERBS = (
    "is are has have calls call replaces replace creates uses use yields places holds reads read wrote write prints "
    "print do does scales steps divides knows opens closes get gets follows differ chooses show log stays needs wraps "
    "names name load find keeps track exchanges remains may would begins loads assigns trains averaged"
).split()


@pytest.mark.parametrize(
    ("because", "things", "said"),
    [
        ("no name is in it", ("x",), "no name is in it"),
        ("{} is a loss", ("loss",), "`loss` is a loss"),
        ("a metric is computed from {}", ("out", "y", "out"), "a metric is computed from `out`, `y`"),
        ("{} is a loss", (cst.parse_expression("f(x)[0]"),), "`f(x)[0]` is a loss"),
        ("{} is a loss", ("x" * 101,), "this is a loss"),
        ("{} is a loss", ("f(\n)",), "this is a loss"),
        ("{} is a loss", (), "this is a loss"),
        ("{} is a loss", ("{}",), "`{}` is a loss"),
    ],
    ids=["no name", "a name", "several names", "code", "long code", "lines", "nothing", "braces"],
)
def test_a_reason_has_the_names_of_the_script(because: str, things: tuple[str | cst.CSTNode, ...], said: str) -> None:
    assert about(because, *things) == said


def _reasons() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(FIXTURES.glob("*/before.py")):
        for file in migrate([read(path)], CATALOGUE, Config()).files:
            found.update({change.reason: change.rule for change in file.changes})
    return found


def test_every_reason_is_a_sentence_with_a_subject_and_a_verb() -> None:
    """Not a fragment, as "before its first use" is one, and no word that stands for something which is not named."""
    reasons = _reasons()
    assert len(reasons) > 60
    for reason, rule in reasons.items():
        words = reason.replace("`", " ").split()
        assert not set(words[:1]) & {"it", "them", "they", "before", "after", "where"}, f"{rule}: {reason}"
        assert not set(VERBS).isdisjoint(words), f"{rule}: {reason}"
        assert not reason.endswith(".") and "{}" not in reason, f"{rule}: {reason}"


def test_the_names_are_those_of_the_script() -> None:
    told = {reason for reason, rule in _reasons().items() if rule == "device_placement"}
    assert "the prepared loader yields `x, y` on the device" in told
    assert "`prepare` places `model` on the device" in told


def test_a_call_is_named_without_its_arguments() -> None:
    assert called(cst.parse_expression('os.popen("stty size", "r")')) == "os.popen(...)"
    assert called(cst.parse_expression("self.writer")) == "self.writer"
