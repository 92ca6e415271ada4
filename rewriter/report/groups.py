"""Findings as their readers see them: those of one cause are one, with its places; the most serious first."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from ..findings import Severity
from ..result import Diagnosis, FileResult, Result
from .frames import View, place, views
from .text import counted

ORDER = (Severity.ERROR, Severity.BLOCKED, Severity.REVIEW, Severity.NOTE)
FRAMED = 50
"""The code of so many findings is shown, the most serious ones."""
_SHOWN = 10
"""The code of so many places of one finding is shown."""
_LONG_END = 4
"""An end of so many words that two findings have is said once."""
_NAMED = 6
"""So many other places of a finding are named."""


class FindingGroup(NamedTuple):
    """One finding, and the places of which it is said."""

    first: Diagnosis
    members: tuple[tuple[int, FileResult, Diagnosis], ...]
    """Each with the number of its file in the result."""

    def message(self) -> str:
        """What is said, without what is said where the code of the cause is shown."""
        if self.first.cause is None:
            return self.first.message
        label = self.first.cause.label
        return self.first.message.replace(f" ({label})", "").replace(f": {label}.", ".")

    def places(self) -> list[str]:
        """The places, each once."""
        return list(dict.fromkeys(place(file, found.line) for _, file, found in self.members))

    def also(self, seen: Container[str] = ()) -> str:
        """The other places in a few words, without those that have been ``seen``; empty where there are none."""
        rest = [place for place in self.places()[1:] if place not in seen]
        more = f" and {counted(len(rest) - _NAMED, 'other place')}" if len(rest) > _NAMED else ""
        named, between = rest[:_NAMED], ", "
        if self.file.source.notebook is not None:  # its places have commas, and need not repeat its name
            named = [place.removeprefix(f"{self.places()[0].partition(':')[0]}:") for place in named]
            between = "; "
        return f"also {between.join(named)}{more}" if rest else ""

    def shifted(self, columns: int) -> FindingGroup:
        """The finding for a line that has so many columns more of indentation."""
        column, end = self.first.column + columns, self.first.end and self.first.end + columns
        return self._replace(first=self.first._replace(column=column, end=end))

    @property
    def file(self) -> FileResult:
        """The file of the first place."""
        return self.members[0][1]

    def shown(self) -> list[View]:
        """The lines of code to show: that of the first place, those of which something else is said, and the cause."""
        found: list[View] = []
        said = {self.first.message: None}
        lines = {self.places()[0]}
        for number, (_, file, diagnosis) in enumerate(self.members):
            at = place(file, diagnosis.line)
            if not number:
                found += [view for view in views(file, diagnosis) if not view.is_cause]
            elif diagnosis.message not in said and at not in lines and len(said) < _SHOWN:
                said[diagnosis.message] = None
                lines.add(at)
                found += [
                    view for view in views(file, diagnosis, _own_words(diagnosis, self.first)) if not view.is_cause
                ]
        return found + [view for view in views(self.file, self.first) if view.is_cause]


def _own_words(found: Diagnosis, first: Diagnosis) -> str:
    """What a finding says that the first of its group does not: without a long end that both have, and nothing where
    that is the code that is underlined."""
    mine, others = found.message.split(" "), first.message.split(" ")
    whole, every = len(mine), list(mine)
    while mine and others and mine[-1] == others[-1]:
        mine.pop()
        others.pop()
    while len(mine) < whole and " ".join(mine).count("`") % 2:  # code is not cut in the middle
        mine.append(every[len(mine)])
    if whole - len(mine) < _LONG_END:
        return found.message
    words = " ".join(mine).rstrip(",:;")
    return "" if words.startswith("`") and words.find("`", 1) == len(words) - 1 else words


def groups(result: Result) -> list[FindingGroup]:
    """The findings of a run."""
    found: dict[object, list[tuple[int, FileResult, Diagnosis]]] = {}
    for number, file in enumerate(result.files):
        for diagnosis in file.diagnoses:
            found.setdefault(_key(result, file, diagnosis), []).append((number, file, diagnosis))
    listed = [FindingGroup(members[0][2], tuple(members)) for members in found.values()]
    return sorted(listed, key=lambda group: ORDER.index(group.first.severity))


def placed(found: Sequence[FindingGroup], files: Sequence[FileResult]) -> list[FindingGroup]:
    """The findings that the diff of some files shows at their lines: the most serious ones, as many as have code, but
    not those that say what somebody answered about it."""
    paths = {file.source.path for file in files}
    return [group for group in found[:FRAMED] if group.file.source.path in paths and group.first.id != "declined"]


def _key(result: Result, file: FileResult, found: Diagnosis) -> object:
    """What findings have in common that are one: their cause, else the programs, the situation and what to do about it;
    each says of its own line what differs."""
    cause = found.cause
    if cause is None:
        alike = found._replace(line=0, column=0, end=0)
        what = (found.id, found.severity, found.case, found.remedy) if found.case and found.remedy else alike
        return what, result.programs.get(file.source.path, ())
    path = cause.path or str(file.source.path)
    return found.id, found.severity, found.remedy, cause._replace(path=path)
