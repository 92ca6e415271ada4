"""
The diff as rows: lines side by side, the words that differ in them, and the edits that made each block.

The terminal and the page are drawn from these rows; the patch for machines is made from bytes, in ``diff``.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from ..editing.opcodes import CONTEXT, Opcode, grouped, opcodes, origins
from ..result import Change, FileResult

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_NAME = re.compile(r"`[^`]+`(?:, `[^`]+`)*")
_IMPORT = re.compile(r"\s*(?:from|import)\s")
_DEFINING = re.compile(r"\s*(?:(?:from|import)\s|\w+\s*=[^=])")
UNREAD = "unused"
"""Said of lines that are removed because nothing reads them now."""
_ALIKE = 0.45
"""Lines with less in common than this count as different lines, not as one changed line."""
_CELLS = 2500
"""Blocks with more pairs of lines than this are not aligned line by line: it would take too long."""

_TOLD = "told"
_UNCHANGED = ("equal", _TOLD)

Span = tuple[int, int]


class Row(NamedTuple):
    """One line before and after. ``None`` stands for a missing line; its number is 0."""

    old: int
    new: int
    before: str | None
    after: str | None
    out: tuple[Span, ...] = ()
    """Which parts of ``before`` were removed, if the two lines are one changed line."""
    into: tuple[Span, ...] = ()
    """Which parts of ``after`` are new."""
    shift: int = 0
    """How much further ``before`` is indented than in the first text, because its cell was moved."""

    @property
    def same(self) -> bool:
        """Whether the line is unchanged."""
        return self.before == self.after

    @property
    def moved(self) -> bool:
        """Whether only the indentation has changed."""
        if self.before is None or self.after is None or self.same:
            return False
        return self.before.strip() == self.after.strip()


class DiffBlock(NamedTuple):
    """Rows that belong together: unchanged ones, or changed ones and the edits that changed them."""

    rows: tuple[Row, ...]
    changes: tuple[Change, ...] = ()
    changed: bool = False


class Hunk(NamedTuple):
    """Blocks that are close to each other, with some unchanged lines around them."""

    blocks: tuple[DiffBlock, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        """The edits of all blocks."""
        return tuple(change for block in self.blocks for change in block.changes)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of all blocks."""
        return tuple(row for block in self.blocks for row in block.rows)


def hunks_of(file: FileResult, context: int = CONTEXT, told: Collection[int] = ()) -> list[Hunk]:
    """Split the difference of a file's two texts into hunks, and what is around the lines of which something is
    ``told``: of the first text. A moved cell of a notebook is where it has gone."""
    before, after = map(_lines, file.texts)
    heads = file.source.notebook.heads() if file.source.notebook is not None else ()
    order, same = _order(before, after, heads) if heads else (range(len(before)), {})
    there = {old + 1: at + 1 for at, old in enumerate(order)}
    shifts = _shifts(before, after, same)
    arranged = [after[same[old]] if old in same else " " * shifts.get(old, 0) + before[old] for old in order]
    groups = list(grouped(list(_cut_at(sorted(there.get(n, n) for n in told), opcodes(arranged, after))), context))
    changed = [code for group in groups for code in group if code[0] not in _UNCHANGED]
    # An edit is at the start of its node, and its change is at that line or after it. An import has no line.
    ends = [max(i2, i1 + 1) for _, i1, i2, _, _ in changed]
    imports = next((n for n, code in enumerate(changed) if _imports(before, after[slice(*code[3:])])), 0)
    behind: dict[int, list[Change]] = {}
    for change in file.changes:
        number = bisect_left(ends, there.get(change.line, change.line) + change.offset) if change.line else imports
        behind.setdefault(min(number, len(ends) - 1), []).append(change)
    hunks, number = [], 0
    for group in groups:
        blocks = []
        for tag, i1, i2, j1, j2 in group:
            if tag in _UNCHANGED:
                same_rows = (Row(i + 1, j1 + i - i1 + 1, arranged[i], arranged[i]) for i in range(i1, i2))
                blocks.append(DiffBlock(tuple(_numbered(same_rows, order, shifts))))
            else:
                rows = tuple(_numbered(_changed(arranged, after, range(i1, i2), range(j1, j2)), order, shifts))
                blocks.append(DiffBlock(rows, tuple(behind.get(number, _unread(rows))), changed=True))
                number += 1
        hunks.append(Hunk(tuple(_with_origins(blocks, before, after, heads)) if heads else tuple(blocks)))
    return hunks


def new_lines(before: str, after: str) -> Callable[[int], int]:
    """For each line of a text, counted from 1, that of another which it is or which has taken its place."""
    if before == after:
        return lambda line: line
    one, other = _lines(before), _lines(after)
    found: dict[int, int] = {}
    for kind, i1, i2, j1, j2 in opcodes(one, other):
        if kind == "equal":
            found.update(zip(range(i1 + 1, i2 + 1), range(j1 + 1, j2 + 1), strict=True))
            continue
        last = j1 + 1
        for row in _changed(one, other, range(i1, i2), range(j1, j2)):
            last = row.new or last
            if row.old:
                found[row.old] = max(min(last, len(other)), 1)
    return lambda line: found.get(line, line)


def _order(before: Sequence[str], after: Sequence[str], heads: Collection[str]) -> tuple[list[int], dict[int, int]]:
    """The lines of a first text in the order of a second one, to which some of them have moved, and for those that are
    in it their lines there. Others are after what was before them, those that begin a moved cell before its rest."""
    found = {old: new for new, old in origins(before, after).items()}
    place: dict[int, tuple[int, int]] = {}
    at = (-1, 0)
    for old, line in enumerate(before):
        if old in found:
            at = found[old], 0
        elif old and before[old - 1] in heads:
            end = next((n for n in range(old, len(before)) if before[n] in heads), len(before))
            first = next((found[n] for n in range(old, end) if n in found), None)
            at = (at[0], at[1] + 1) if first is None or line in heads else (first - 1, old)
        else:
            at = at[0], at[1] + 1
        place[old] = at
    return sorted(place, key=lambda old: (*place[old], old)), found


def _shifts(before: Sequence[str], after: Sequence[str], same: Mapping[int, int]) -> dict[int, int]:
    """How much further the lines of a moved cell are indented where they have gone, and the lines that changed there as
    those before them."""
    shifts: dict[int, int] = {}
    for old, line in enumerate(before if same else ()):
        if old in same and line.strip():
            shifts[old] = indent_of(after[same[old]]) - indent_of(line)
        elif old - 1 in shifts:
            shifts[old] = shifts[old - 1] if line.strip() else 0
    return {old: shift for old, shift in shifts.items() if shift > 0}


def indent_of(line: str) -> int:
    """The columns of white space that a line begins with."""
    return len(line) - len(line.lstrip())


def _numbered(rows: Iterable[Row], order: Sequence[int], shifts: Mapping[int, int]) -> Iterator[Row]:
    """Rows with the numbers that their lines have in the first text."""
    for row in rows:
        old = order[row.old - 1] if row.old else -1
        yield row._replace(old=old + 1, shift=shifts.get(old, 0))


def _with_origins(
    blocks: Iterable[DiffBlock], before: Sequence[str], after: Sequence[str], heads: Collection[str]
) -> Iterator[DiffBlock]:
    """Blocks of a notebook, and before the lines that come from another cell the name of that cell."""
    cells = [_cells(text, heads) for text in (before, after)]
    named = ""
    for block in blocks:
        named = named or next((cells[1][row.new - 1] for row in block.rows if row.new), "")
        rows: list[Row] = []
        for row in block.rows:
            here = cells[1][row.new - 1] if row.new else named
            there = cells[0][row.old - 1] if row.old else named
            if row.new and after[row.new - 1] in heads:
                named = there = here
            if row.old and there != named and not (block.changed and rows):
                name = cell_name(there)
                text = f"from {name}" if there != here or not row.new else f"{name}, its own lines"
                if rows:
                    yield block._replace(rows=tuple(rows))
                    rows = []
                yield DiffBlock((Row(0, 0, text, text),))
                named = there
            rows.append(row)
        yield block._replace(rows=tuple(rows))


def cell_name(head: str) -> str:
    """The name of a cell, of the line at which it begins in the readable form of a notebook."""
    return head.removeprefix("# code ").removeprefix("# ")


def _cells(text: Sequence[str], heads: Collection[str]) -> list[str]:
    """The head of the cell of each line."""
    found = [""]
    for line in text:
        found.append(line if line in heads else found[-1])
    return found[1:]


def _imports(before: Collection[str], after: Sequence[str]) -> bool:
    """Whether lines import what the first text does not."""
    return any(_IMPORT.match(line) and line not in before for line in after)


def _unread(rows: Sequence[Row]) -> Iterator[Change]:
    """The reason of lines that no edit removed: imports and variables of which nothing is left that reads them."""
    gone = [row for row in rows if row.before is not None and row.before.strip()]
    if gone and all(row.after is None and _DEFINING.match(row.before or "") for row in gone):
        yield Change(UNREAD, gone[0].old, 1, "nothing reads this any more")


def _cut_at(told: Sequence[int], codes: Iterable[Opcode]) -> Iterator[Opcode]:
    """Cut what is equal at some lines, which then count as a change: a hunk shows them."""
    for kind, i1, i2, j1, j2 in codes:
        at = i1
        for line in told if kind == "equal" else ():
            if at < line <= i2:
                if at < line - 1:
                    yield kind, at, line - 1, j1 + at - i1, j1 + line - 1 - i1
                yield _TOLD, line - 1, line, j1 + line - 1 - i1, j1 + line - i1
                at = line
        if kind != "equal" or at < i2:
            yield kind, at, i2, j1 + at - i1, j2


def reasons(changes: Sequence[Change]) -> list[tuple[str, str, list[int]]]:
    """Each rule with each of its reasons once, and the lines of its edits. Reasons that differ in one name are one
    with all the names, unless the name is what the sentence begins with."""
    groups: dict[tuple[str, str, str], tuple[dict[str, None], list[int]]] = {}
    for change in changes:
        before, name, after = _parted(change.reason)
        names, lines = groups.setdefault((change.rule, before, after), ({}, []))
        names[name] = None
        if change.line not in lines:
            lines.append(change.line)
    return [
        (rule, before + ", ".join(names) + after, lines) for (rule, before, after), (names, lines) in groups.items()
    ]


def alike(reason: str) -> tuple[str, str]:
    """What reasons have in common that are said as one."""
    before, _, after = _parted(reason)
    return before, after


def _parted(reason: str) -> tuple[str, str, str]:
    """A reason as what comes before its first name, that name, and the rest; whole where it begins with a name."""
    found = _NAME.search(reason)
    if found is None or not found.start():
        return reason, "", ""
    return reason[: found.start()], found[0], reason[found.end() :]


def _lines(text: str) -> list[str]:
    """Split at line feeds only, because the line numbers of the edits count these."""
    lines = text.split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def _changed(before: Sequence[str], after: Sequence[str], old: range, new: range) -> Iterator[Row]:
    """The rows of a changed block: similar lines are beside each other, with their words compared; then the others."""
    i, j = old.start, new.start
    for left, right in [*_pairs([before[n] for n in old], [after[n] for n in new]), (len(old), len(new))]:
        for gone, come in zip_longest(range(i, old.start + left), range(j, new.start + right)):
            yield Row(
                0 if gone is None else gone + 1,
                0 if come is None else come + 1,
                None if gone is None else before[gone],
                None if come is None else after[come],
            )
        i, j = old.start + left, new.start + right
        if left < len(old):
            out, into = words(before[i], after[j])
            yield Row(i + 1, j + 1, before[i], after[j], out, into)
            i, j = i + 1, j + 1


def _pairs(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Which lines became which, in order: the pairs with the highest total similarity."""
    if not before or not after or len(before) * len(after) > _CELLS:
        return []
    likeness = [[_likeness(one, other) for other in after] for one in before]
    best = [[0.0] * (len(after) + 1) for _ in range(len(before) + 1)]
    for i in range(len(before) - 1, -1, -1):
        for j in range(len(after) - 1, -1, -1):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], likeness[i][j] + best[i + 1][j + 1])
    pairs, i, j = [], 0, 0
    while i < len(before) and j < len(after):
        if likeness[i][j] and best[i][j] == likeness[i][j] + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _likeness(one: str, other: str) -> float:
    """How much of two lines is equal, in words; 0 for lines that are not similar."""
    matcher = difflib.SequenceMatcher(None, _TOKEN.findall(one.strip()), _TOKEN.findall(other.strip()), autojunk=False)
    if matcher.real_quick_ratio() < _ALIKE:
        return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= _ALIKE else 0.0


def words(before: str, after: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The parts of two lines that differ, split at words; their indentation is none, which would be a solid block."""
    one, other = _TOKEN.findall(before), _TOKEN.findall(after)
    out: list[Span] = []
    into: list[Span] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag != "equal":
            _mark(out, one, i1, i2)
            _mark(into, other, j1, j2)
    return _without_indentation(before, out), _without_indentation(after, into)


def is_whole(text: str, marks: Sequence[Span]) -> bool:
    """Whether all of a line differs, so that no part of it stands out."""
    return len(marks) == 1 and not text[: marks[0][0]].strip() and marks[0][1] >= len(text)


def _without_indentation(line: str, spans: Sequence[Span]) -> tuple[Span, ...]:
    indent = indent_of(line)
    return tuple((max(start, indent), end) for start, end in spans if end > indent)


def _mark(spans: list[Span], tokens: Sequence[str], first: int, end: int) -> None:
    """Add a span, joined with the last one where nothing is between."""
    if first == end:
        return
    start = sum(map(len, tokens[:first]))
    stop = start + sum(map(len, tokens[first:end]))
    if spans and spans[-1][1] == start:
        start = spans.pop()[0]
    spans.append((start, stop))
