"""The lines above statements, comments and blank ones, when statements are removed, replaced or put between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from .edits import is_other_device, speaks_of_device, speaks_of_shape


def surviving(statement: cst.CSTNode, drops: Callable[[str], bool], attached: bool = False) -> list[cst.EmptyLine]:
    """The lines above a removed statement that stay, and its trailing comment as a separate line."""
    above = list(getattr(statement, "leading_lines", ()))
    while attached and above and above[-1].comment is not None:
        above.pop()
    alone = sum(line.comment is not None for line in above) == 1  # a line of several may end a sentence of another
    lines = [line for line in above if line.comment is None or not (alone and drops(line.comment.value))]
    trailing = getattr(statement, "trailing_whitespace", None)
    comment = trailing.comment if isinstance(trailing, cst.TrailingWhitespace) else None
    if comment is not None and not (drops(comment.value) or _goes_along(comment.value, drops)):
        lines.append(cst.EmptyLine(comment=comment))
    return lines


def _goes_along(comment: str, drops: Callable[[str], bool]) -> bool:
    """Whether a comment on the line of a removed statement is on that alone: a shape; of a move, what another language
    says, unless it plans something."""
    foreign = not comment.isascii() and not any(word in comment for word in ("TODO", "FIXME", "XXX"))
    of_device = speaks_of_device(comment) or is_other_device(comment)
    return speaks_of_shape(comment) or (drops("# gpu") and (foreign or of_device))


def lines_above(statement: cst.CSTNode, made: Sequence[cst.CSTNode]) -> list[cst.EmptyLine]:
    """The lines above what took the place of a statement: its own, and those that came with what it held."""
    own, new = (list(getattr(node, "leading_lines", ())) for node in (statement, made[0] if made else statement))
    return new if new[: len(own)] == own else own


def lines_below(taken: list[cst.EmptyLine], lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """The lines above a statement, without those that went with the statement before it."""
    return list(lines[len(taken) :] if list(lines[: len(taken)]) == taken else lines)


def joined_lines(carried: list[cst.EmptyLine], own: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Kept lines followed by a statement's own lines, without doubling the blank lines between them."""
    kept = list(carried)
    if own and own[0].comment is None:
        while kept and kept[-1].comment is None:
            kept.pop()
    return [*kept, *own]


def without_opening_blanks(lines: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """The lines from the first comment on."""
    start = next((i for i, line in enumerate(lines) if line.comment is not None), len(lines))
    return lines[start:]


def led(new: list[cst.CSTNode], lines: list[cst.EmptyLine], inserted: int) -> list[cst.CSTNode]:
    """Give the lines above a statement to its replacement: blank lines to the first new one, comments to the
    statement."""
    if not new:
        return []
    if not inserted:
        return [new[0].with_changes(leading_lines=lines), *new[1:]]
    start = next((i for i, line in enumerate(lines) if line.comment is not None), len(lines))
    first = new[0].with_changes(leading_lines=lines[:start])
    rest = list(new[1:])
    if lines[start:] and len(rest) >= inserted:
        rest[inserted - 1] = rest[inserted - 1].with_changes(leading_lines=lines[start:])
    elif rest and len(rest) >= inserted:
        rest[inserted - 1] = rest[inserted - 1].with_changes(leading_lines=())
    return [first, *rest]


def before_definition(
    new: list[cst.CSTNode], lines: list[cst.EmptyLine], inserted: int, above: cst.CSTNode | None
) -> list[cst.CSTNode]:
    """Statements that are inserted before a function or class: it keeps the lines above it, and they follow the line
    before them directly, unless that is no plain one."""
    blank = next((i for i, line in enumerate(lines) if line.comment is not None), len(lines))
    first = [] if isinstance(above, cst.SimpleStatementLine) else lines[:blank]
    return [
        new[0].with_changes(leading_lines=first),
        *new[1:inserted],
        new[inserted].with_changes(leading_lines=lines),
        *new[inserted + 1 :],
    ]
