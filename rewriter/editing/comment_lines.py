"""The lines above statements, comments and blank ones, when statements are removed, replaced or put between."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

import libcst as cst

from ..facts.spellings import DEVICE_WORDS


def surviving(
    statement: cst.CSTNode, drops: Callable[[str], bool], attached: bool = False, last: bool = False
) -> list[cst.EmptyLine]:
    """The lines above a removed statement that stay, and its trailing comment as a separate line if that may be needed
    still. ``last``: nothing is left of what the comment above it heads."""
    above = list(getattr(statement, "leading_lines", ()))
    heading = heading_of(above)
    code = cst.Module([]).code_for_node(_bare(statement))
    if attached or (last and heading and _only_heads(heading, code)):
        above = above[: len(above) - len(heading)]
    alone = sum(line.comment is not None for line in above) == 1  # a line of several may end a sentence of another
    lines = [line for line in above if line.comment is None or not (alone and drops(line.comment.value))]
    trailing = getattr(statement, "trailing_whitespace", None)
    comment = trailing.comment if isinstance(trailing, cst.TrailingWhitespace) else None
    if comment is not None and not drops(comment.value) and _is_needed_still(comment.value, code):
        lines.append(cst.EmptyLine(comment=comment))
    return lines


def heads_nothing(statements: Sequence[cst.BaseStatement], index: int, goes: Callable[[cst.CSTNode], bool]) -> bool:
    """Whether what a comment above a statement heads goes as a whole: all up to a blank line or a comment. After a
    blank line it may head more, unless there is another comment, a definition or nothing."""
    for statement in statements[index + 1 :]:
        lines = statement.leading_lines if isinstance(statement, _LED) else ()
        if lines:
            commented = any(line.comment is not None for line in lines)
            return commented or isinstance(statement, (cst.FunctionDef, cst.ClassDef))
        if not goes(statement):
            return False
    return not all(map(goes, statements))  # of a block that goes as a whole, what is around it may be meant


def speaks_for_nothing(heading: Sequence[cst.EmptyLine], drops: Callable[[str], bool]) -> bool:
    """Whether a comment above a line is on what the line no longer does."""
    texts = [line.comment.value for line in heading if line.comment is not None]
    return len(texts) == 1 and drops(texts[0])


def paragraph(statements: Sequence[cst.BaseStatement], index: int) -> list[cst.BaseStatement]:
    """A statement and those after it, up to a comment or a blank line."""
    found = [statements[index]]
    for statement in statements[index + 1 :]:
        if isinstance(statement, _LED) and statement.leading_lines:
            break
        found.append(statement)
    return found


def names_a_device(node: cst.CSTNode) -> bool:
    """Whether the text of a node names a device."""
    return any(word in cst.Module([]).code_for_node(_bare(node)) for word in ("device", "cuda"))


def _bare(node: cst.CSTNode) -> cst.CSTNode:
    """A statement without its comments."""
    if not isinstance(node, cst.SimpleStatementLine):
        return node
    return node.with_changes(leading_lines=(), trailing_whitespace=cst.TrailingWhitespace())


def without_trailing(node: cst.CSTNode, drops: Callable[[str], bool]) -> cst.CSTNode:
    """A line without the comment on it that is on what it no longer does."""
    space = node.trailing_whitespace if isinstance(node, cst.SimpleStatementLine) else None
    if space is None or space.comment is None or not drops(space.comment.value):
        return node
    return node.with_changes(trailing_whitespace=space.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None))


_LED = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
_A_SENTENCE = 3
"""A comment of more lines is prose, and may be on more than what it is above."""


def heading_of(above: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """The comment lines directly above a statement, up to one that is code."""
    found: list[cst.EmptyLine] = []
    for line in reversed(above):
        if line.comment is None or is_code(line.comment.value):
            break
        found.insert(0, line)
    return found


def _only_heads(heading: Sequence[cst.EmptyLine], code: str) -> bool:
    """Whether comment lines are a heading of some code, and no prose, plan, fact or separator."""
    texts = [line.comment.value for line in heading if line.comment is not None]
    return len(texts) <= _A_SENTENCE and not any(_is_needed_still(text, code) or _RULED.search(text) for text in texts)


_PLANS = ("TODO", "FIXME", "XXX")
_RULED = re.compile(r"#\s*%%|[#=*-]{5}")
"""A cell of a script, or a line across the page."""


def _is_needed_still(comment: str, code: str) -> bool:
    """Whether a comment says more than what its code does: it plans something, is code, gives a number, or names what
    is elsewhere."""
    if _is_size_or_device(comment):
        return False
    names = re.findall(r"[a-z]\w*_\w+", comment)
    facts = re.search(r"\d", re.sub(r"[\[(].*?[\])]", "", comment))  # not the sizes of a tensor
    return (
        any(word in comment for word in _PLANS)
        or is_code(comment)
        or (facts is not None and comment.isascii())
        or any(name not in code for name in names)
    )


def _is_size_or_device(comment: str) -> bool:
    """Whether a comment is the size of a tensor, ``torch.Size([B, 1])``, or another choice of the device, in code."""
    try:
        said = ast.parse(comment.lstrip("# \t"), mode="eval").body
    except (SyntaxError, ValueError):
        return False
    if isinstance(said, ast.Call):
        return ast.unparse(said.func) in ("Size", "torch.Size")
    return isinstance(said, ast.IfExp) and any(word in comment for word in DEVICE_WORDS)


def is_code(comment: str) -> bool:
    """Whether a comment is a statement or a call that is commented out."""
    text = comment.lstrip("#").strip()
    try:
        body = ast.parse(f"{text} pass" if text.endswith(":") else text).body
    except (SyntaxError, ValueError):
        return False
    said = [each.value for each in body if isinstance(each, (ast.Expr, ast.AnnAssign))]  # ``shape: [B]``
    return len(said) < len(body) or any(isinstance(value, ast.Call) for value in said)


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


def _first_comment(lines: Sequence[cst.EmptyLine]) -> int:
    """How many blank lines are above the first comment; all of them where there is none."""
    return next((i for i, line in enumerate(lines) if line.comment is not None), len(lines))


def without_opening_blanks(lines: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """The lines from the first comment on."""
    return lines[_first_comment(lines) :]


def without_closing_blanks(lines: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """The lines up to the last comment."""
    return lines[: max((i + 1 for i, line in enumerate(lines) if line.comment is not None), default=0)]


def led(new: list[cst.CSTNode], lines: list[cst.EmptyLine], inserted: int) -> list[cst.CSTNode]:
    """Give the lines above a statement to its replacement: blank lines to the first new one, comments to the
    statement."""
    if not new:
        return []
    if not inserted:
        return [new[0].with_changes(leading_lines=lines), *new[1:]]
    start = _first_comment(lines)
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
    first = [] if isinstance(above, cst.SimpleStatementLine) else lines[: _first_comment(lines)]
    return [
        new[0].with_changes(leading_lines=first),
        *new[1:inserted],
        new[inserted].with_changes(leading_lines=lines),
        *new[inserted + 1 :],
    ]
