"""
The ledger: what `migrate` does to public programs today, and what a reader said of it.

An entry holds facts about a program and no line of it. Its verdict belongs to one answer of the tool, by hash: another
answer is unjudged until somebody has read it. Nothing here updates more than one entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

LEDGER = Path(__file__).with_name("ledger.yaml")
OUTCOMES = ("migrates", "refused", "nothing")
RESULTS = ("held", "not testable", "broken")
VERDICTS = ("right", "wrong loud", "wrong silent", "rightly refused", "needlessly refused")
FITTING = {
    "migrates": ("right", "wrong loud", "wrong silent"),
    "refused": ("rightly refused", "needlessly refused"),
    "nothing": VERDICTS,
}
"""Which verdicts can be given on which outcome."""
_HEX = frozenset("0123456789abcdef")


class LedgerError(Exception):
    """The ledger, or what was asked of it, cannot be used; the message names the entry and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Mend:
    """One line that old code needs changed on today's torch."""

    file: str
    line: int
    was: str
    """The first 16 hexadecimal digits of the SHA-256 of the old line, without its line ending."""
    now: str
    """Our text for it; several lines are allowed."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `migrate --verify` said."""

    result: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a reader said of one answer of the tool."""

    verdict: str
    hash: str
    by: str
    why: str
    date: str


@dataclass(frozen=True, kw_only=True)
class First:
    """The verdict on the first answer that the tool ever gave on this program."""

    verdict: str
    date: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One program. Paths are relative to the checkout; those of `data` to `folder`."""

    name: str
    repository: str
    commit: str
    script: str
    folder: str = ""
    """Where the program is started from; the script's folder where nothing is said."""
    arguments: tuple[str, ...] = ()
    migrate: tuple[str, ...] = ()
    """Options for `migrate`."""
    verify_options: tuple[str, ...] = ()
    """More options, for `--verify` alone."""
    data: tuple[Mapping[str, Any], ...] = ()
    """Recipes of `data.py`: `make` names one, `at` says where, the rest are its parameters."""
    mends: tuple[Mend, ...] = ()
    outcome: str = ""
    findings: tuple[str, ...] = ()
    """Ids: of those that block a refused program, else of those that ask for a review. Sorted, each once."""
    hash: str = ""
    verify: Verification | None = None
    verdict: Verdict | None = None
    first: First | None = None

    @property
    def place(self) -> str:
        """The folder that the program is started from."""
        return self.folder or str(Path(self.script).parent)

    @property
    def is_judged(self) -> bool:
        """Whether somebody has read the answer that is recorded."""
        return self.verdict is not None and self.verdict.hash == self.hash

    def inputs(self) -> str:
        """A hash of all that the tool's answer depends on, the tool aside."""
        given = asdict(self)
        for name in ("outcome", "findings", "hash", "verify", "verdict", "first"):
            del given[name]
        return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]


@dataclass
class Ledger:
    """All entries by name, in the order of the file."""

    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = LEDGER) -> Ledger:
        """
        Read a ledger.

        Raises:
            LedgerError: it is no YAML, or an entry is not as it must be.
        """
        try:
            data = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (OSError, yaml.YAMLError) as error:
            raise LedgerError(f"{path}: cannot be read: {error}") from None
        if not isinstance(data, dict):
            raise LedgerError(f"{path}: must map names of entries to entries")
        return cls({name: _entry(name, given) for name, given in data.items()})

    def text(self) -> str:
        """The ledger as a file holds it: in this one form, so that a change of an entry is a change of its lines."""
        plain = {entry.name: _plain(entry) for entry in sorted(self.entries.values(), key=lambda entry: entry.name)}
        return yaml.safe_dump(plain, sort_keys=False, width=140, allow_unicode=True)

    def write(self, path: Path = LEDGER) -> None:
        """Write it; a reader of the file sees the old text or the new one, never a part."""
        beside = path.with_suffix(".new")
        beside.write_text(self.text(), encoding="utf-8")
        beside.replace(path)


def _plain(value: Any) -> Any:
    """What YAML writes of it: fields that say nothing are left out."""
    if isinstance(value, (Entry, Mend, Verification, Verdict, First)):
        found = {item.name: _plain(getattr(value, item.name)) for item in fields(value) if item.name != "name"}
        return {name: kept for name, kept in found.items() if kept not in (None, "", [], {})}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _entry(name: str, given: Any) -> Entry:
    if not isinstance(given, dict):
        raise LedgerError(f"{name}: an entry is a mapping of its fields")
    known = {item.name for item in fields(Entry)} - {"name"}
    if unknown := sorted(given.keys() - known):
        raise LedgerError(f"{name}: unknown field {unknown[0]}; known are {', '.join(sorted(known))}")
    try:
        entry = Entry(
            name=name,
            **{
                **given,
                **{
                    key: tuple(map(str, given.get(key, ())))
                    for key in ("arguments", "migrate", "verify_options", "findings")
                },
                "data": tuple(given.get("data", ())),
                "mends": tuple(Mend(**mend) for mend in given.get("mends", ())),
                "verify": Verification(**given["verify"]) if given.get("verify") else None,
                "verdict": Verdict(**given["verdict"]) if given.get("verdict") else None,
                "first": First(**given["first"]) if given.get("first") else None,
            },
        )
    except TypeError as error:
        raise LedgerError(f"{name}: {str(error).replace('__init__() ', '')}") from None
    if flaw := next(flaws(entry), None):
        raise LedgerError(f"{name}: {flaw}")
    return entry


def flaws(entry: Entry) -> Iterator[str]:
    """What is wrong with an entry, sentence by sentence."""
    if len(entry.commit) != 40 or not _HEX.issuperset(entry.commit):
        yield f"commit must be 40 hexadecimal digits, and is {entry.commit!r}"
    if entry.repository.count("/") != 1:
        yield f"repository must be OWNER/NAME, and is {entry.repository!r}"
    if entry.outcome and entry.outcome not in OUTCOMES:
        yield f"outcome must be one of {', '.join(OUTCOMES)}"
    if list(entry.findings) != sorted(set(entry.findings)):
        yield "findings must be sorted, each id once"
    if entry.verify and entry.verify.result not in RESULTS:
        yield f"verify.result must be one of {', '.join(RESULTS)}"
    if entry.verify and entry.verify.result != "held" and not entry.verify.why:
        yield "verify.why must say what is broken, or why nothing could be tested"
    if verdict := entry.verdict:
        yield from _misfit(entry, verdict)


def _misfit(entry: Entry, verdict: Verdict) -> Iterator[str]:
    """Why a verdict cannot be given on what is recorded."""
    if verdict.verdict not in VERDICTS:
        yield f"verdict must be one of {', '.join(VERDICTS)}"
    elif entry.is_judged and verdict.verdict not in FITTING.get(entry.outcome, ()):
        yield f"{verdict.verdict!r} is no verdict on a program that {entry.outcome or 'was never run'}"
    elif entry.is_judged and verdict.verdict == "right" and entry.verify and entry.verify.result == "broken":
        yield "a program that --verify finds broken is not right"
    if len(verdict.why.split()) < 4:
        yield "verdict.why must say in a sentence what was read and seen"
