"""``migrate --explain train.py:143``: all that is said about one line of a file: the edits there with their reasons and
what their rules do, the findings with what they mean, and what changes at run time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..config import ConfigError
from ..project.import_graph import absolute
from ..report.expect import expectations
from ..report.explaining import cases, explained, meaning, section, sections
from ..report.groups import FindingGroup, groups
from ..report.inline import bare, said, wrapped
from ..report.rows import DiffBlock, Hunk, hunks_of
from ..report.terminal import console, print_hunk
from ..report.text import counted, visible
from ..result import FileResult, Result
from ..rule import Entry
from .invoked import invoked, quoted
from .request import Request

_PLACE = re.compile(r"(?P<file>.+\.(?:py|ipynb)):(?:(?:cell )?(?P<cell>\d+)(?: In\[\d*\])?(?:, line |:))?(?P<line>\d+)")
"""``train.py:143``, with a column ``train.py:143:5``, ``train.ipynb:3:7``, and as a finding names
it: ``train.ipynb:cell 3 In[5], line 7``."""
_NEAR = 8
"""So many other lines are named where nothing is said of one."""


class AskedLine(NamedTuple):
    """A line of a file; of a notebook a line of a cell."""

    path: Path
    line: int
    cell: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{f'cell {self.cell}, line ' if self.cell else ''}{self.line}"


def place_of(words: Sequence[str]) -> AskedLine | None:
    """The place that the arguments of ``--explain`` name; None where they are ids."""
    found = _PLACE.fullmatch(" ".join(words))
    if found is None:
        return None
    path = Path(found["file"])
    if path.suffix == ".py" and found["cell"]:  # a line and a column, as editors and compilers write a place
        return AskedLine(path, int(found["cell"]))
    return AskedLine(path, int(found["line"]), int(found["cell"] or 0))


def explain_line(catalogue: Sequence[Entry], request: Request, place: AskedLine) -> None:
    """Print what is said about a line; ``ConfigError`` where that is nothing."""
    result, file = _looked_at(catalogue, request, place)
    line = _line(file, place)
    blocks = [block for hunk in hunks_of(file) for block in hunk.blocks if _is_at(block, line)] if file.changed else []
    found = [group for group in groups(result) if _speaks_of(group, file, line)]
    changes = _at_run_time(file, line)
    if not blocks and not found and not changes:
        raise _nothing(file, line, place)
    _print(catalogue, request, file, blocks, found)
    page = console(color=request.color)
    for number, text in enumerate(changes):
        heading = [] if number else ["What changes at run time"]
        page.out("\n".join([*heading, *(f"  {row}" for row in wrapped(f"- {text}", page.width - 2))]), highlight=False)


def _at_run_time(file: FileResult, line: int) -> list[str]:
    """What the summary says of the line: what changes there when the migrated script runs."""
    here = tuple(trait for trait in file.traits if trait.line == line)
    return list(expectations(Result((file._replace(traits=here),), 1))) if file.changed else []


def _looked_at(catalogue: Sequence[Entry], request: Request, place: AskedLine) -> tuple[Result, FileResult]:
    """The run on the file, and its result for it: of a module that trains nothing by itself, on the programs of the
    project that import it."""
    from ..project.scan import Surveyor

    answers: list[tuple[Result, FileResult]] = []
    for hook in (False, True) if request.follow else (False,):
        surveyor = Surveyor(catalogue, request.options, every=False, notes=True, cached=request.cache)
        survey = surveyor.look([place.path], follows=request.follow, hook=hook)
        if survey.refused:
            raise survey.refused[0]
        result = survey.result()
        own = [file for file in result.files if absolute(file.source.path) == absolute(place.path)]
        answers += [(result, file) for file in own]
        if own and (own[0].changes or any(found.id != "no-entry-point" for found in own[0].diagnoses)):
            return result, own[0]
    if answers:
        return answers[0]
    cause = "nothing is said of this file: it trains no model, and no program that does imports it"
    raise ConfigError(str(place.path), cause)


def _line(file: FileResult, place: AskedLine) -> int:
    """The line as the result counts it; ``ConfigError`` where the file has no such line."""
    lines = file.texts[0].split("\n")
    notebook = file.source.notebook
    if notebook is None:
        if place.cell or not 0 < place.line <= len(lines):
            count = len(lines) - (not lines[-1])
            raise ConfigError(str(place), f"the file has no such line: it has {count}")
        return place.line
    if not place.cell:
        remedy = f"Name it as well: --explain '{place.path}:cell 3, line {place.line}'"
        raise ConfigError(str(place), "a line of a notebook is that of a cell", remedy)
    for number in range(len(lines), 0, -1):  # the line that begins a cell has the place of its first one
        if notebook.place(number) == (place.cell, place.line):
            return number
    raise ConfigError(str(place), "the notebook has no such line in a cell of code")


def _is_at(block: DiffBlock, line: int) -> bool:
    """Whether a block changes a line, or has an edit that belongs to it."""
    changed = any(row.old == line and not row.same for row in block.rows)
    return block.changed and (changed or any(change.line == line for change in block.changes))


def _speaks_of(group: FindingGroup, file: FileResult, line: int) -> bool:
    """Whether a finding is about a line, or comes from it."""
    for _, other, found in group.members:
        if other is file and found.line == line:
            return True
        if found.cause is not None and found.cause.line == line:
            at = Path(found.cause.path) if found.cause.path else other.source.path
            if absolute(at) == absolute(file.source.path):
                return True
    return False


def _print(
    catalogue: Sequence[Entry],
    request: Request,
    file: FileResult,
    blocks: Sequence[DiffBlock],
    found: Sequence[FindingGroup],
) -> None:
    page = console(color=request.color)
    told = {entry.id: entry for entry in catalogue}
    for block in blocks:
        print_hunk(file, Hunk((block,)), page)
        page.print()
        for rule in dict.fromkeys(change.rule for change in block.changes):
            if rule in told:
                summary = told[rule].load().summary.replace("``", "`")
                words = f"{rule}: {summary} Its example: {invoked()} --explain {rule}"
                page.out("\n".join(wrapped(words, page.width)), highlight=False)
        page.print()
    shown = set[str]()
    for group in found:
        colored = page.is_terminal and request.color
        for line in said(group, page.width, page.encoding, code=True):
            page.out(line if colored else bare(line), highlight=False)
        page.print()
        for text in _meaning(group, page.width, colored):
            if text not in shown:
                shown.add(text)
                page.out(text, highlight=False)


def _meaning(group: FindingGroup, width: int, color: bool) -> Iterator[str]:
    """What the finding's case means."""
    id, case = group.first.id, group.first.case
    if id in sections():
        text = meaning(id, case) if group.first.remedy else section(id, case)
        yield explained(id, text, "findings", case, width=width, color=color)
        if group.first.remedy:
            named = f"{id}-{case}" if case in cases(id) else id
            yield f"With an example: {invoked()} --explain {named}\n"


def _nothing(file: FileResult, line: int, place: AskedLine) -> ConfigError:
    """What to say of a line of which nothing is said: its text, and the lines of which something is."""
    lines = {change.line for change in file.changes} | {found.line for found in file.diagnoses}
    lines |= {trait.line for trait in file.traits if file.changed}
    near = sorted(sorted(lines - {0}, key=lambda other: abs(other - line))[:_NEAR])
    more = len(lines - {0}) - len(near)
    text = visible(file.texts[0].split("\n")[line - 1].strip())
    noun = "" if file.source.notebook is not None else "line " if len(near) == 1 else "lines "
    remedy = f"Something is said of {noun}{(', ' if noun else '; ').join(file.at(other)[1:] for other in near)}"
    remedy += f" and {counted(more, 'other line')}" if more else ""
    if not near:
        remedy = f"The whole result: {invoked()} {quoted([str(place.path)])}"
    return ConfigError(str(place), f"nothing is said of this line{f', `{text}`' if text else ''}", remedy)
