"""What came out, as a file that is kept, and what has changed since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .checkout import CheckoutError

WORDS = ("passed", "failed", "skipped")


@dataclass(frozen=True)
class Outcome:
    """Of one test, or of one script."""

    word: str
    """One of `WORDS`."""
    reason: str = ""


@dataclass
class Figures:
    """The outcomes of one run."""

    date: str
    version: str
    commit: str
    digest: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def add(self, outcomes: Mapping[str, Outcome]) -> None:
        """Take in more outcomes."""
        self.outcomes.update(outcomes)

    def names(self, word: str, group: str) -> list[str]:
        """Names of a group ("tests", "scripts") with this outcome."""
        return sorted(name for name, outcome in self.outcomes.items() if outcome.word == word and _group(name) == group)

    def counts(self, group: str) -> dict[str, int]:
        """How many passed, failed and were skipped."""
        return {word: len(self.names(word, group)) for word in WORDS}

    def write(self, path: Path) -> None:
        """Write the file."""
        kept: dict[str, object] = {
            "date": self.date,
            "accelerate": {"version": self.version, "commit": self.commit, "digest": self.digest},
            "counts": {group: self.counts(group) for group in ("tests", "scripts")},
        }
        for word in ("failed", "skipped", "passed"):
            kept[word] = {name: one.reason for name, one in sorted(self.outcomes.items()) if one.word == word}
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Figures | None:
        """
        Read the file; None where there is none yet.

        Raises:
            CheckoutError: it is damaged.
        """
        if not path.exists():
            return None
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            outcomes = {name: Outcome(word, reason) for word in WORDS for name, reason in kept[word].items()}
            return cls(kept["date"], **kept["accelerate"], outcomes=outcomes)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckoutError(f"{path} is damaged ({error!r}); restore it with git") from error


def _group(name: str) -> str:
    return "tests" if name.startswith("tests/") else "scripts"


@dataclass
class Change:
    """Between two runs, as lines to print."""

    worse: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    """Tests that only one of two versions of Accelerate has."""


def compare(kept: Figures, now: Figures, *, whole: bool) -> Change:
    """What became worse, and what better. Of a run that is not `whole`, only what was run is compared."""
    change = Change()
    same = kept.digest == now.digest
    for name in sorted({*kept.outcomes, *now.outcomes}):
        before, after = kept.outcomes.get(name), now.outcomes.get(name)
        if after is None:
            if whole and before is not None and before.word != "failed":
                (change.worse if same else change.other).append(f"{name}: gone, was {before.word}")
        elif before is None:
            line = f"{name}: {after.word}, was not there" + (f" ({after.reason})" if after.reason else "")
            (change.other if after.word != "failed" or not same else change.worse).append(line)
        elif before.word != after.word:
            line = f"{name}: {after.word}, was {before.word}" + (f" ({after.reason})" if after.reason else "")
            is_worse = after.word == "failed" or before.word == "passed"
            (change.worse if is_worse else change.better).append(line)
    return change
