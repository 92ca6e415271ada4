"""How an answer stands beside the ledger: the same, unjudged, worse or better; and the rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from .answers import Answer
from .ledger import VERDICTS, Entry


class Standing(Enum):
    """What has become of an entry, in the order in which a run tells it."""

    WORSE = "worse"
    UNJUDGED = "unjudged"
    BETTER = "better"
    LEFT_OUT = "left out"
    SAME = "same"


@dataclass(frozen=True)
class Compared:
    """One entry beside today's answer."""

    entry: Entry
    answer: Answer
    standing: Standing
    why: str = ""


def compare(entry: Entry, answer: Answer) -> Compared:
    """Hold an answer against what the ledger records."""
    if answer.outcome == "left out":
        return Compared(entry, answer, Standing.LEFT_OUT, answer.why)
    if worse := next(_worse(entry, answer), ""):
        return Compared(entry, answer, Standing.WORSE, worse)
    if unjudged := _unjudged(entry, answer):
        return Compared(entry, answer, Standing.UNJUDGED, unjudged)
    if entry.verify and answer.verify and entry.verify.result == "broken" and answer.verify.result == "held":
        return Compared(entry, answer, Standing.BETTER, f"--verify held (was: {entry.verify.why})")
    return Compared(entry, answer, Standing.SAME)


def _worse(entry: Entry, answer: Answer) -> Iterator[str]:
    if answer.outcome == "failed":
        yield f"the tool failed: {answer.why}"
    was_right = entry.verdict is not None and entry.verdict.verdict == "right"
    if was_right and entry.outcome == "migrates" and answer.outcome != "migrates":
        yield f"it was migrated rightly, and is {answer.outcome} now: {', '.join(answer.findings)}"
    if answer.verify is not None:
        recorded = entry.verify.result if entry.verify else ""
        if answer.verify.result != "held" and (recorded == "held" or (was_right and answer.verify.result == "broken")):
            yield f"--verify: {answer.verify.result} (was: {recorded or 'never run'}): {answer.verify.why}"


def _unjudged(entry: Entry, answer: Answer) -> str:
    if entry.verdict is None:
        return "nobody has read it"
    if answer.hash == entry.verdict.hash:
        return ""
    before = (
        "another text" if entry.outcome == answer.outcome == "migrates" else f"{entry.outcome}, now {answer.outcome}"
    )
    return f"the verdict ({entry.verdict.verdict!r}) belongs to another answer: {before}"


@dataclass(frozen=True)
class Rates:
    """How many of the programs that were there came out how."""

    table: Mapping[str, Mapping[str, int]]
    """By outcome, then by verdict; "unjudged" among them."""
    left_out: int

    @property
    def present(self) -> int:
        """All programs that were looked at."""
        return sum(sum(row.values()) for row in self.table.values())

    def count(self, *verdicts: str, outcome: str = "") -> int:
        """How many have one of these verdicts."""
        rows = [self.table[outcome]] if outcome else self.table.values()
        return sum(row.get(verdict, 0) for row in rows for verdict in verdicts)

    def sentences(self) -> Iterator[str]:
        """The rates that the project is judged by."""
        edited = sum(self.table.get("migrates", {}).values())
        right = self.count("right", outcome="migrates") if edited else 0
        silent, needless = self.count("wrong silent"), self.count("needlessly refused")
        yield f"right or rightly refused: {_share(self.count('right', 'rightly refused'), self.present)}"
        yield f"of the edited ones right: {_share(right, edited)}; silently wrong: {silent}"
        yield f"needlessly refused: {_share(needless, self.present)}"


def _share(count: int, all_: int) -> str:
    return f"{count} of {all_}" + (f" ({100 * count / all_:.0f} %)" if all_ else "")


def rates(compared: Iterable[Compared]) -> Rates:
    """Count; an unjudged program counts as right nowhere, one that is left out does not count."""
    table: dict[str, Counter[str]] = {}
    left_out = 0
    for one in compared:
        if one.standing is Standing.LEFT_OUT:
            left_out += 1
            continue
        judged = one.answer.hash != "" and one.entry.verdict is not None and one.entry.verdict.hash == one.answer.hash
        verdict = one.entry.verdict.verdict if judged and one.entry.verdict else "unjudged"
        table.setdefault(one.answer.outcome, Counter())[verdict] += 1
    return Rates(table, left_out)


COLUMNS = (*VERDICTS, "unjudged")
"""The columns of the table."""
