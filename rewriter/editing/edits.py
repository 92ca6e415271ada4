"""
The kinds of edit.

A rule never touches the tree: it names nodes of the original and says what should become of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import libcst as cst

from ..findings import Severity

Made = cst.CSTNode | Sequence[cst.CSTNode]


class EditGroup(Enum):
    """What an edit can be declined with: the program is right with a unit as a whole, and right without it."""

    TRAINING = "training"
    """It needs the others that make the training distributed, and they need it: all of them, or none at all."""
    FILES = "files"
    """What writes a file, and what waits for one: all of them, or none."""
    ALONE = "alone"
    """No other edit depends on it."""


@dataclass(frozen=True, eq=False)
class Edit:
    """One change at one node of the original tree."""

    rule: str
    node: cst.CSTNode
    reason: str = field(kw_only=True)
    severity: Severity = field(default=Severity.NOTE, kw_only=True)
    unit: EditGroup = field(default=EditGroup.TRAINING, kw_only=True)


@dataclass(frozen=True, eq=False)
class Replace(Edit):
    """Put what ``make`` returns in a node's place. ``make`` gets the node with all inner edits made."""

    make: Callable[[cst.CSTNode], Made]
    whole: bool = field(default=False, kw_only=True)
    """The old content is thrown away: an edit inside it would be lost, and is a conflict unless it is absorbed."""
    absorbs: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Rules whose edits inside a ``whole`` replacement are meant to go with it."""
    joins: bool = field(default=False, kw_only=True)
    """What is made is an ``if``, and takes in one with the same condition that another such edit makes next to it."""


@dataclass(frozen=True, eq=False)
class Remove(Edit):
    """Take a statement out of its block. Its comments move on to the next statement."""

    drops: Callable[[str], bool] = field(default=lambda comment: False, kw_only=True)
    """Says of a comment whether it goes with the statement."""
    absorbs: frozenset[str] = field(default=frozenset(), kw_only=True)


@dataclass(frozen=True, eq=False)
class InsertBefore(Edit):
    """Put a statement before one. It takes over the blank lines above; comments stay with their statement."""

    text: str


@dataclass(frozen=True, eq=False)
class InsertAfter(Edit):
    """Put a statement after one."""

    text: str


@dataclass(frozen=True, eq=False)
class AddParameter(Edit):
    """Give a function one more positional parameter at an index; one for a keyword alone where that is None."""

    name: str
    index: int | None


@dataclass(frozen=True, eq=False)
class AddArgument(Edit):
    """Hand a name to a call: by position where there is one, and the call fills everything before it so, else by
    keyword."""

    name: str
    index: int | None
    value: str = ""
    """What is handed, where it is not the name itself."""


@dataclass(frozen=True, eq=False)
class AddImport(Edit):
    """``from module import name`` at the top of the file. Several rules may ask for the same."""

    module: str
    name: str


_MOVING = frozenset(
    "move moves moved moving to the a an our my all this device devices gpu gpus cuda cpu put send sends sent "
    "sending transfer transfers copy copies data batch batches tensor tensors input inputs label labels image "
    "images target targets x y model models network net on onto into same as and them it its use using if "
    "available is where place load make sure both are of from host memory needed then".split()
)


def speaks_of_moving(comment: str) -> bool:
    """Whether a comment says nothing but that something is moved to a device."""
    words = re.findall(r"[A-Za-z]+", comment.lower())
    return bool(words) and all(w in _MOVING for w in words) and bool({"device", "gpu", "cuda", "gpus"} & set(words))


def with_keyword(call: cst.Call, name: str, value: cst.BaseExpression) -> cst.Call:
    """A call with one more keyword argument at its end, on a line of its own where the others are."""
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return with_last(call, cst.Arg(value, keyword=cst.Name(name), equal=equal))


def with_last(call: cst.Call, new: cst.Arg) -> cst.Call:
    """A call with one more argument at its end, in the style of those that it has; a line's comment stays on it."""
    if not call.args:
        return call.with_changes(args=[new])
    last, end = call.args[-1], call.args[-1].whitespace_after_arg
    if isinstance(last.comma, cst.Comma):
        end = last.comma.whitespace_after
    space = between(call.args)
    alone = len(call.args) == 1 and isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace)
    if alone and isinstance(end, cst.ParenthesizedWhitespace):
        space = call.whitespace_before_args.with_changes(empty_lines=[])
    if isinstance(end, cst.ParenthesizedWhitespace) and end.first_line.comment is not None:
        space = (space if isinstance(space, cst.ParenthesizedWhitespace) else end).with_changes(
            first_line=end.first_line.with_changes(whitespace=cst.SimpleWhitespace("  "))
        )
        end = end.with_changes(
            first_line=end.first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None), empty_lines=[]
        )
    own = last.with_changes(comma=cst.Comma(whitespace_after=space), whitespace_after_arg=cst.SimpleWhitespace(""))
    if isinstance(last.comma, cst.Comma):
        new = new.with_changes(comma=last.comma.with_changes(whitespace_after=end))
    else:
        new = new.with_changes(whitespace_after_arg=end)
    return call.with_changes(args=[*call.args[:-1], own, new])


def between(parts: Sequence[cst.Param] | Sequence[cst.Arg]) -> cst.BaseParenthesizableWhitespace:
    """What is between two parameters (or arguments): a line's end where each has a line of its own."""
    spaces = [p.comma.whitespace_after for p in parts[:-1] if isinstance(p.comma, cst.Comma)]
    lines = [space for space in spaces if isinstance(space, cst.ParenthesizedWhitespace)]
    if lines and len(lines) == len(spaces):
        plain = lines[0].first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
        return lines[0].with_changes(first_line=plain, empty_lines=[])
    return cst.SimpleWhitespace(" ")
