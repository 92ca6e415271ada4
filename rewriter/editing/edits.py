"""
The kinds of edit.

A rule never touches the tree: it names nodes of the original and says how they change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import libcst as cst

from ..findings import Severity

Made = cst.CSTNode | Sequence[cst.CSTNode]


def keeps_comments(comment: str) -> bool:
    """No comment is removed."""
    return False


class EditGroup(Enum):
    """The edits that can only be declined together: the program is correct with the whole group, and correct without
    it."""

    TRAINING = "training"
    """The edits that make the training distributed need each other: all of them are made, or none."""
    FILES = "files"
    """Edits of code that writes a file, or waits for one: all of them are made, or none."""
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
    """The old content is replaced: an edit inside it would be lost, and is a conflict unless it is absorbed."""
    absorbs: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Rules whose edits inside a ``whole`` replacement may be dropped."""
    joins: bool = field(default=False, kw_only=True)
    """The new statement is an ``if``, or a ``with``. If another such edit creates the same next to it, they are
    merged."""
    drops: Callable[[str], bool] = field(default=keeps_comments, kw_only=True)
    """Tells whether a comment above the line, or on it, is removed if the line names no device any more."""


@dataclass(frozen=True, eq=False)
class Remove(Edit):
    """Remove a statement from its block. Its comments move to the next statement."""

    drops: Callable[[str], bool] = field(default=keeps_comments, kw_only=True)
    """Tells whether a comment is removed with the statement."""
    attached: bool = field(default=False, kw_only=True)
    """The comments directly above it are on it alone, and go as well: those of a function."""
    absorbs: frozenset[str] = field(default=frozenset(), kw_only=True)


@dataclass(frozen=True, eq=False)
class InsertBefore(Edit):
    """Insert a statement before another. It takes over the blank lines above; comments stay with their statement."""

    text: str


@dataclass(frozen=True, eq=False)
class InsertAfter(Edit):
    """Insert a statement after another."""

    text: str


@dataclass(frozen=True, eq=False)
class AddParameter(Edit):
    """Give a function one more positional parameter at an index; a keyword-only parameter if the index is None."""

    name: str
    index: int | None
    default: str = ""
    """The default of the parameter; without one, every call must give it."""


@dataclass(frozen=True, eq=False)
class AddArgument(Edit):
    """Pass a name to a call: by position if it has one and all arguments before it are positional, else by keyword."""

    name: str
    index: int | None
    value: str = ""
    """The value that is passed, if it is not the name itself."""


@dataclass(frozen=True, eq=False)
class AddImport(Edit):
    """``from module import name`` at the top of the file. Several rules may ask for the same."""

    module: str
    name: str


_MOVING = frozenset(
    "move moves moved moving to the a an our my all this device devices gpu gpus cuda cpu put send sends sent "
    "sending transfer transfers copy copies data batch batches tensor tensors input inputs label labels image "
    "images target targets x y model models network net on onto into same as and them it its use using if "
    "available is where place load make sure both are of from host memory needed then get possible when "
    "network networks speed up faster training calculation calculations computation computations check change variable "
    "variables e g eg".split()
)
_PARALLEL = _MOVING | frozenset(
    "dataparallel parallel parallelize parallelism wrap wrapped multi multiple several more than one across over "
    "distribute nn".split()
)


def speaks_of_moving(comment: str) -> bool:
    """Whether a comment only says that something is moved to a device."""
    words = re.findall(r"[A-Za-z]+", comment.lower())
    return bool(words) and all(w in _MOVING for w in words) and bool({"device", "gpu", "cuda", "gpus"} & set(words))


def speaks_of_parallelism(comment: str) -> bool:
    """Whether a comment only says that a model is spread over several devices."""
    words = re.findall(r"[A-Za-z]+", comment.lower())
    plain = not any(sign in comment for sign in "=()[]") and all(word in _PARALLEL for word in words)
    return plain and any("parallel" in word or "gpus" in word for word in words)


def speaks_of_device(comment: str) -> bool:
    """Whether a comment is a few words on the choice of the device, and no code that is commented out."""
    words = re.findall(r"[A-Za-z]+", comment.lower())
    code = any(sign in comment for sign in "=()")
    others = any(letter.isalpha() and not letter.isascii() for letter in comment)
    return (
        not (code or others)
        and len(words) <= _FEW
        and not {"device", "devices", "gpu", "gpus", "cuda", "cpu"}.isdisjoint(words)
    )


_FEW = 8


def alternatives(statement: cst.CSTNode, following: cst.CSTNode) -> list[cst.EmptyLine]:
    """The comments directly below an assignment that give its names another value: ``# scheduler = StepLR(...)``."""
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    targets = [each.target for each in small.targets] if isinstance(small, cst.Assign) else []
    names = {cst.Module([]).code_for_node(target).replace(" ", "") for target in targets}
    found: list[cst.EmptyLine] = []
    opened = 0
    for line in getattr(following, "leading_lines", ()):
        text = line.comment.value.lstrip("# \t") if line.comment is not None else ""
        given, equals, _ = text.partition("=")
        if not text or not (opened > 0 or (equals and given.replace(" ", "") in names)):
            break
        found.append(line)
        opened += sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
    return found


def with_argument(call: cst.Call, edit: AddArgument) -> cst.Call:
    """A call with the argument that an edit adds."""
    args = list(call.args)
    plain = next((i for i, a in enumerate(args) if a.keyword is not None or a.star), len(args))
    value = cst.parse_expression(edit.value or edit.name)
    comma = cst.Comma(whitespace_after=between(args))
    if edit.index is not None and plain >= edit.index:
        index, new = edit.index, cst.Arg(value)
    else:
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        index, new = len(args), cst.Arg(value, keyword=cst.Name(edit.name), equal=equal)
    if index >= len(args):
        return with_last(call, new)
    args.insert(index, new.with_changes(comma=comma))
    return call.with_changes(args=args)


def with_keyword(call: cst.Call, name: str, value: cst.BaseExpression) -> cst.Call:
    """A call with one more keyword argument at its end, on a separate line if the others are."""
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return with_last(call, cst.Arg(value, keyword=cst.Name(name), equal=equal))


def with_last(call: cst.Call, new: cst.Arg) -> cst.Call:
    """A call with one more argument at its end, in the style of the existing ones; a comment stays on its line."""
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
    """The whitespace between two parameters (or arguments): a line break if each is on a separate line."""
    spaces = [p.comma.whitespace_after for p in parts[:-1] if isinstance(p.comma, cst.Comma)]
    lines = [space for space in spaces if isinstance(space, cst.ParenthesizedWhitespace)]
    if lines and len(lines) == len(spaces):
        plain = lines[0].first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
        return lines[0].with_changes(first_line=plain, empty_lines=[])
    return cst.SimpleWhitespace(" ")


def broadcast_statement(names: tuple[str, ...]) -> str:
    """The statement by which variables receive the main process's values."""
    if len(names) == 1:
        return f"{names[0]} = broadcast_object_list([{names[0]}])[0]"
    listed = ", ".join(names)
    return f"{listed} = broadcast_object_list([{listed}])"


def broadcast_value(node: cst.CSTNode) -> Made:
    """An expression whose value is that of the main process."""
    assert isinstance(node, cst.BaseExpression)
    listed = cst.List([cst.Element(node)])
    return cst.Subscript(
        cst.Call(cst.Name("broadcast_object_list"), [cst.Arg(listed)]),
        [cst.SubscriptElement(cst.Index(cst.Integer("0")))],
    )


def opened(node: cst.CSTNode) -> Made:
    """What an ``if`` holds, without the ``if``."""
    if isinstance(node, cst.IfExp):
        return node.body
    assert isinstance(node, cst.If)
    return contents(node)


def contents(node: cst.If) -> Made:
    """The statements that an ``if`` holds, with the comments above it and on its line."""
    if isinstance(node.body, cst.SimpleStatementSuite):
        space = node.body.trailing_whitespace
        return cst.SimpleStatementLine(node.body.body, leading_lines=node.leading_lines, trailing_whitespace=space)
    assert isinstance(node.body, cst.IndentedBlock)
    first, *others = node.body.body
    said = node.body.header.comment
    own = [cst.EmptyLine(comment=said)] if said is not None and not speaks_of_device(said.value) else []
    return [first.with_changes(leading_lines=[*node.leading_lines, *own, *_leading(first)]), *others]


def applied_model(node: cst.CSTNode) -> cst.Call:
    """``net(x)`` for ``data_parallel(net, x, devices)``."""
    assert isinstance(node, cst.Call)
    words = ("module", "inputs", "device_ids", "output_device", "dim", "module_kwargs")
    given = {arg.keyword.value if arg.keyword is not None else words[i]: arg.value for i, arg in enumerate(node.args)}
    inputs = given["inputs"]
    args = [cst.Arg(e.value) for e in inputs.elements] if isinstance(inputs, cst.Tuple) else [cst.Arg(inputs)]
    if "module_kwargs" in given:
        args.append(cst.Arg(given["module_kwargs"], star="**"))
    return cst.Call(given["module"], args)


def _leading(statement: cst.CSTNode) -> Sequence[cst.EmptyLine]:
    lines: Sequence[cst.EmptyLine] = getattr(statement, "leading_lines", ())
    return lines
