"""The diff for a person at a terminal: coloured, as wide as the terminal, each change below its rules and reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..result import FileResult
from .diff import shown
from .rows import DiffBlock, Hunk, Row, Span, hunks_of, is_whole, reasons
from .text import visible

NARROWEST = 80
"""Two columns need this many characters; a narrower terminal gets one."""
_ROOM = 20
"""Lines are never cut shorter than this many characters."""
_PIECE = re.compile(r"\s+|\w+|[^\w\s]")
_DEFINITION = re.compile(r"\s*(?:async\s+def|def|class)\s+\w+")
_OUT, _IN, _DIM, _WHY = "red", "green", "dim", "yellow"
_MARK = "reverse"


def console(*, color: bool) -> Console:
    """Return a console for stdout: without colours if they are not wanted, as wide as the terminal."""
    return Console(highlight=False, no_color=not color, color_system="auto" if color else None)


def print_diff(files: Sequence[FileResult], console: Console, *, side_by_side: bool = False) -> None:
    """Print the diffs of the changed files."""
    two = side_by_side and console.width >= NARROWEST
    for file in files:
        if file.changed:
            hunks = hunks_of(file)
            console.print(_title(file, console.width))
            for hunk in hunks:
                print_hunk(file, hunk, console, side_by_side=two)


def print_hunk(file: FileResult, hunk: Hunk, console: Console, *, side_by_side: bool = False) -> None:
    """Print one hunk: where it is, and its blocks."""
    digits = len(str(max((max(row.old, row.new) for row in hunk.rows), default=1)))
    _print(console, [Text(_place(file, hunk), style="cyan")])
    for block in hunk.blocks:
        _print(console, _why(block, digits, console.width))
        _print(console, _columns(block, digits, console.width) if side_by_side else _lines(block, digits, console))


def _print(console: Console, lines: Iterable[Text]) -> None:
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _title(file: FileResult, width: int) -> Text:
    """The file's name and the number of its changes, on a separate line."""
    name = visible(shown(file.source.path))
    line = "─" * max(0, min(width, 100) - len(name) - 4)
    return Text.assemble(("── ", _DIM), (name, "bold"), (f" {line}", _DIM), no_wrap=True, overflow="ignore")


def _place(file: FileResult, hunk: Hunk) -> str:
    """Where a hunk is: its first line, and the function around it."""
    rows = hunk.rows
    first = next((row.old for row in rows if row.old), 1)
    lines = file.texts[0].split("\n")
    inside = next((row.before for row in rows if row.before is not None and not row.same), None)
    start = next((row.old for row in rows if row.old and not row.same), first)
    indent = _indent(inside) if inside is not None else _indent(lines[first - 1])
    for line in reversed(lines[: start - 1]):
        if line.strip() and _indent(line) < indent:
            indent = _indent(line)
            if found := _DEFINITION.match(line):
                return f"@@ line {first}, in {visible(found[0].strip())} @@"
    return f"@@ line {first} @@"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _why(block: DiffBlock, digits: int, width: int) -> Iterator[Text]:
    """Each rule and reason of a block, on as many lines as the words need."""
    margin = " " * (2 * digits + 3)
    for rule, reason, _ in reasons(block.changes):
        text = Text.assemble((rule, f"{_WHY} bold"), (f": {visible(reason)}" if reason else "", _WHY))
        for part, line in enumerate(_cut(text, width - len(margin) - 4)):
            yield Text.assemble(margin, ("# " if not part else "#   ", _WHY), line)


# One column -----------------------------------------------------------------------------------------------------------


def _lines(block: DiffBlock, digits: int, console: Console) -> Iterator[Text]:
    """The lines of a block as in a unified diff: the removed ones, then the added ones."""
    if not block.changed:
        for row in block.rows:
            yield from _numbered((row.old, row.new), " ", row.before or "", (), "", digits, console)
        return
    for row in block.rows:
        if row.before is not None:
            yield from _numbered((row.old, 0), "-", row.before, row.out, _OUT, digits, console, moved=row.moved)
    for row in block.rows:
        if row.after is not None:
            yield from _numbered((0, row.new), "+", row.after, row.into, _IN, digits, console, moved=row.moved)


def _numbered(
    numbers: tuple[int, int],
    sign: str,
    text: str,
    marks: Sequence[Span],
    style: str,
    digits: int,
    console: Console,
    *,
    moved: bool = False,
) -> Iterator[Text]:
    """One line with its old and its new number, each in its own column; 0 means that it has no such number. Of a line
    that has only ``moved`` to another indentation the sign alone is coloured."""
    room = console.width - 2 * digits - 4
    head = "".join(f"{number or '':>{digits}} " for number in numbers)
    for part, line in enumerate(_wrapped(text, marks, "" if moved else style, room)):
        yield Text.assemble((head if not part else " " * len(head), _DIM), (sign, style), line)


def _wrapped(text: str, marks: Sequence[Span], style: str, room: int) -> list[Text]:
    """A line wrapped at the width of the terminal, its changed words marked. Marks are positions in the text of the
    file."""
    text = text.rstrip("\r")
    line = Text()
    position = 0
    whole = is_whole(text, marks)
    for start, end in () if whole else marks:
        line.append(visible(text[position:start]), style)
        line.append(visible(text[start:end]), f"{style} {_MARK}")
        position = end
    line.append(visible(text[position:]), style)
    line.expand_tabs(4)
    return _cut(line, room)


def _cut(line: Text, room: int) -> list[Text]:
    """
    Cut a line so that no part is wider than ``room``: at a space, else beside punctuation.

    A word is cut only if it is wider than the room itself.
    """
    room = max(room, _ROOM)
    if line.cell_len <= room:
        return [line]
    cuts: list[int] = []
    start, blank, width = 0, 0, 0
    for piece in _PIECE.finditer(line.plain):
        cells = cell_len(piece[0])
        while width + cells > room and not piece[0].isspace() and piece.start() > start:
            # A space near the margin is a better place than the middle of an expression.
            start = blank if cell_len(line.plain[start:blank]) * 2 > room else piece.start()
            cuts.append(start)
            width = cell_len(line.plain[start : piece.start()])
        width += cells
        if piece[0].isspace() and line.plain[start : piece.start()].strip():
            blank = piece.end()
    parts: list[Text] = []
    for part in line.divide(cuts):
        part.rstrip()
        while part.cell_len > room:
            short = part.copy()
            short.truncate(room, overflow="crop")
            parts.append(short)
            part = part[len(short.plain) :]
        parts.append(part)
    return parts


# Two columns ----------------------------------------------------------------------------------------------------------


def _columns(block: DiffBlock, digits: int, width: int) -> Iterator[Text]:
    """The lines of a block, before on the left and after on the right."""
    half = (width - 3) // 2
    room = half - digits - 3
    for row in block.rows:
        left = _side(row.old, row.before, "-", row.out, _OUT, row, digits, room)
        right = _side(row.new, row.after, "+", row.into, _IN, row, digits, room)
        for part in range(max(len(left), len(right))):
            one = left[part].copy() if part < len(left) else Text()
            one.pad_right(half - one.cell_len)
            yield Text.assemble(one, (" │ ", _DIM), right[part] if part < len(right) else "")


def _side(
    number: int, text: str | None, sign: str, marks: Sequence[Span], style: str, row: Row, digits: int, room: int
) -> list[Text]:  # fmt: skip
    if text is None:
        return []
    sign, style = (" ", "") if row.same else (sign, style)
    lines = _wrapped(text, marks, "" if row.moved else style, room)
    heads = [f"{number:>{digits}} ", *[" " * (digits + 1)] * (len(lines) - 1)]
    return [Text.assemble((head, _DIM), (sign, style), line) for head, line in zip(heads, lines, strict=True)]
