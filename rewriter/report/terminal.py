"""
The diff for a person at a terminal: coloured, as wide as the terminal, each change below its rules and reasons.

What is found is said where the line is: below it, with its part marked. A line of which something is said is shown
even where nothing changes.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text

from ..editing.opcodes import CONTEXT
from ..result import FileResult
from .diff import shown
from .groups import FindingGroup
from .hunk_place import place_of_hunk
from .inline import COLORS, Numbering, Told, marked, numberings, said, told_of
from .rows import DiffBlock, Hunk, Row, Span, cell_name, hunks_of, indent_of, is_whole, reasons
from .text import at_lines, visible

NARROWEST = 80
"""Two columns need this many characters; a narrower terminal gets one."""
_ROOM = 10
"""Lines are never cut shorter than this many characters."""
_HANG = 4
"""What is wrapped of a line is indented so much further than the line, as long as that leaves ``_WIDE`` columns."""
_WIDE = 40
_PIECE = re.compile(r"\s+|\w+|[^\w\s]")
_OUT, _IN, _DIM, _WHY = "red", "green", "dim", "yellow"
_MARK = "reverse"
_TOLD = Style(meta={"told": True})
"""Shows nothing: it names the part of a line that a finding is about."""


def console(*, color: bool) -> Console:
    """Return a console for stdout: without colours if they are not wanted, as wide as the terminal. What its encoding
    does not know is a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False, no_color=not color, color_system="auto" if color else None)


def print_diff(
    files: Sequence[FileResult],
    console: Console,
    *,
    side_by_side: bool = False,
    found: Sequence[FindingGroup] = (),
    context: int = CONTEXT,
) -> None:
    """Print the diffs of the changed files, each change with some lines around it, and what was ``found`` in all of
    them at its lines."""
    two = side_by_side and console.width >= NARROWEST
    for file in files:
        told = told_of(file, found)
        if file.changed or told:
            _print(console, [_title(file, console)])
            _print(console, _told(told.get(0, ()), "", console, code=True))
            for hunk in hunks_of(file, context, told=[line for line in told if line]):
                print_hunk(file, hunk, console, side_by_side=two, told=told)


def print_hunk(
    file: FileResult, hunk: Hunk, console: Console, *, side_by_side: bool = False, told: Told | None = None
) -> None:
    """Print one hunk: where it is, and its blocks."""
    sheet = _Sheet(console, *numberings(file), told or {}, hunk)
    _print(console, [Text(f"@@ {place_of_hunk(file, hunk, (sheet.old, sheet.new), sheet.found)} @@", style="cyan")])
    for block in hunk.blocks:
        _print(console, _why(block, sheet))
        _print(console, _columns(block, sheet) if side_by_side else _lines(block, sheet))


class _Sheet:
    """What the lines of a hunk are drawn with."""

    def __init__(self, console: Console, old: Numbering, new: Numbering, told: Told, hunk: Hunk) -> None:
        self.console, self.old, self.new, self.told = console, old, new, told
        self.width = console.width
        self.digits = len(str(max((max(old(row.old), new(row.new)) for row in hunk.rows), default=1)))
        self.margin = " " * (2 * self.digits + 3) if self.width >= _WIDE else ""
        self.between = " | " if console.options.ascii_only else " │ "

    def known(self, text: str) -> str:
        """A text with a question mark for each character that the terminal does not know."""
        encoding = self.console.encoding
        return text.encode(encoding, "replace").decode(encoding) if self.console.options.ascii_only else text

    def found(self, row: Row) -> Sequence[FindingGroup]:
        """What is said of a line, at its first text; of a line that was moved, at its new indentation."""
        told = self.told.get(row.old, ()) if row.old else ()
        return [group.shifted(row.shift) for group in told] if row.shift else told


def _told(found: Sequence[FindingGroup], margin: str, console: Console, *, code: bool) -> Iterator[Text]:
    """What findings say, below the line that they are about."""
    for group in found:
        for line in said(group, console.width - len(margin), console.encoding, code=code):
            yield Text.assemble(margin, Text.from_ansi(line))


def _print(console: Console, lines: Iterable[Text]) -> None:
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _title(file: FileResult, console: Console) -> Text:
    """The file's name on a separate line."""
    name = visible(shown(file.source.path))
    sign = "-" if console.options.ascii_only else "─"
    line = sign * max(0, min(console.width, 100) - cell_len(name) - 4)
    return Text.assemble((f"{sign * 2} ", _DIM), (name, "bold"), (f" {line}", _DIM))


def _why(block: DiffBlock, sheet: _Sheet) -> Iterator[Text]:
    """Each rule and reason of a block, on as many lines as the words need; where its edits are at several lines, with
    those of each reason."""
    told = reasons(block.changes)
    several = len(told) > 1 and len({sheet.old(change.line) for change in block.changes if change.line}) > 1
    for rule, reason, lines in told:
        where = at_lines(sorted(map(sheet.old, lines))) if several else ""
        words = f": {visible(reason)}{f' ({where})' if where and reason else ''}" if reason else ""
        text = Text.assemble((rule, f"{_WHY} bold"), (words, _WHY))
        for part, line in enumerate(_cut(text, sheet.width - len(sheet.margin) - 4)):
            yield Text.assemble(sheet.margin, ("# " if not part else "#   ", _WHY), line)


# One column -----------------------------------------------------------------------------------------------------------


def _lines(block: DiffBlock, sheet: _Sheet) -> Iterator[Text]:
    """The lines of a block as in a unified diff: the removed ones, then the added ones."""
    if not block.changed:
        for row in block.rows:
            yield from _numbered((row.old, row.new), " ", row.before or "", (), "", sheet, found=sheet.found(row))
        return
    for row in block.rows:
        if row.before is not None:
            style = "" if row.moved else _OUT
            yield from _numbered(
                (row.old, 0), "-", row.before, row.out, style, sheet, sign=_OUT, found=sheet.found(row)
            )
    for row in block.rows:
        if row.after is not None:
            yield from _numbered((0, row.new), "+", row.after, row.into, "" if row.moved else _IN, sheet, sign=_IN)


def _numbered(
    lines: tuple[int, int],
    sign_text: str,
    text: str,
    marks: Sequence[Span],
    style: str,
    sheet: _Sheet,
    *,
    sign: str = "",
    found: Sequence[FindingGroup] = (),
) -> Iterator[Text]:
    """One line with its old and its new number, each in its own column; 0 means that it has no such number. Below it
    is what was ``found`` there."""
    numbers = sheet.old(lines[0]), sheet.new(lines[1])
    if not any(numbers) and sheet.old.counts_cells:  # the line at which a cell of a notebook begins
        text, style = cell_name(text), "bold"
    head = "".join(f"{number or '':>{sheet.digits}} " for number in numbers)
    room = sheet.width - len(head) - 2
    for part, line in enumerate(_wrapped(sheet.known(text), marks, style, room, marked(text, found))):
        yield Text.assemble((head if not part else " " * len(head), _DIM), (sign_text, sign), line)
        for start, end in _pointed(line):
            blank = " " * (len(head) + 1 + cell_len(line.plain[:start]))
            yield Text.assemble(blank, Text.from_ansi(_carets(cell_len(line.plain[start:end]), found[0])))
    yield from _told(found, sheet.margin, sheet.console, code=False)


def _carets(length: int, group: FindingGroup) -> str:
    return f"\x1b[{COLORS[group.first.severity]}m{'^' * length}\x1b[0m"


def _pointed(line: Text) -> list[Span]:
    """The parts of a line that a finding is about, without the space around them."""
    parts = [(part.start, part.end) for part in line.spans if isinstance(part.style, Style) and part.style.meta]
    words = [(start, line.plain[start:end]) for start, end in parts if line.plain[start:end].strip()]
    return [(start + len(word) - len(word.lstrip()), start + len(word.rstrip())) for start, word in words]


def _wrapped(text: str, marks: Sequence[Span], style: str, room: int, told: Sequence[Span] = ()) -> list[Text]:
    """A line wrapped at the width of the terminal, its changed words marked. Marks are positions in the text of the
    file, as are those of the parts of which something is ``told``."""
    text = text.rstrip("\r")
    line = Text()
    position = 0
    whole = is_whole(text, marks)
    for start, end in () if whole else marks:
        line.append(visible(text[position:start]), style)
        line.append(visible(text[start:end]), f"{style} {_MARK}")
        position = end
    line.append(visible(text[position:]), style)
    for start, end in told:
        line.stylize(_TOLD, len(visible(text[:start])), len(visible(text[:end])))
    line.expand_tabs(4)
    hang = max(min(indent_of(line.plain) + _HANG, room - _WIDE), 0)
    first, *rest = _cut(line, room, hang)
    return [first, *(Text(" " * hang) + part for part in rest)]


def _cut(line: Text, room: int, hang: int = 0) -> list[Text]:
    """
    Cut a line so that no part is wider than ``room``, and those after the first than what a ``hang`` leaves of it: at a
    space, else beside punctuation.

    A word is cut only if it is wider than the room itself.
    """
    room = max(room, _ROOM)
    if line.cell_len <= room:
        return [line]
    whole = room
    cuts: list[int] = []
    start, blank, width = 0, 0, 0
    for piece in _PIECE.finditer(line.plain):
        cells = cell_len(piece[0])
        while width + cells > room and not piece[0].isspace() and piece.start() > start:
            # A space near the margin is a better place than the middle of an expression.
            start = blank if cell_len(line.plain[start:blank]) * 2 > room else piece.start()
            room -= 0 if cuts else hang
            cuts.append(start)
            width = cell_len(line.plain[start : piece.start()])
        width += cells
        if piece[0].isspace() and line.plain[start : piece.start()].strip():
            blank = piece.end()
    parts: list[Text] = []
    for part in line.divide(cuts):
        part.rstrip()
        while part.cell_len > (limit := room if parts else whole):
            short = part.copy()
            short.truncate(limit, overflow="crop")
            parts.append(short)
            part = part[len(short.plain) :]
        parts.append(part)
    return parts


# Two columns ----------------------------------------------------------------------------------------------------------


def _columns(block: DiffBlock, sheet: _Sheet) -> Iterator[Text]:
    """The lines of a block, before on the left and after on the right."""
    half = (sheet.width - 3) // 2
    room, cells = half - sheet.digits - 3, sheet.old.counts_cells
    for row in block.rows:
        left = _side(sheet.old(row.old), row.before, "-", row.out, _OUT, row, sheet.digits, room, cells)
        right = _side(sheet.new(row.new), row.after, "+", row.into, _IN, row, sheet.digits, room, cells)
        for part in range(max(len(left), len(right))):
            one = left[part].copy() if part < len(left) else Text()
            one.pad_right(half - one.cell_len)
            yield Text.assemble(one, (sheet.between, _DIM), right[part] if part < len(right) else "")
        yield from _told(sheet.found(row), sheet.margin, sheet.console, code=True)


def _side(
    number: int, text: str | None, sign: str, marks: Sequence[Span], style: str, row: Row, digits: int, room: int,
    cells: bool,
) -> list[Text]:  # fmt: skip
    if text is None:
        return []
    text = text if number or not cells else cell_name(text)
    sign, style = (" ", "") if row.same else (sign, style)
    lines = _wrapped(text, marks, "" if row.moved else style, room)
    heads = [f"{number or '':>{digits}} ", *[" " * (digits + 1)] * (len(lines) - 1)]
    return [Text.assemble((head, _DIM), (sign, style), line) for head, line in zip(heads, lines, strict=True)]
