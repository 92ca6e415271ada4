"""
Where a wrong figure comes from: the line that adds it up from the rows of one process.

A figure that is printed or written has names. Each is followed through the assignments, calls and returns of its file,
until a statement in a loop over data makes it of values of that loop, and nothing has gathered these.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

_GATHERED = re.compile(r"\b(gather|gather_for_metrics|reduce|all_reduce|all_gather)\(")
_MAKER = re.compile(r"(?:\w+\.)*(?:Accelerator|PartialState)\(")
_DEPTH = 4
"""Through so many names and calls a figure is followed."""
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


class FigureOrigin(NamedTuple):
    """A line that makes a figure of the rows of one process."""

    line: int
    name: str
    """The figure."""
    parts: tuple[str, ...]
    """What it is made of there: values of the loop over data."""
    scalar: bool
    """It is made of one number of the batch, such as its loss."""

    @property
    def missing(self) -> str:
        """What to write, and where."""
        if self.scalar:
            number = f'accelerator.reduce({self.parts[0]}.detach(), reduction="mean")'
            return f"write `{number}` for `{self.parts[0]}` in line {self.line}"
        values = ", ".join(self.parts)
        given = f"({values})" if len(self.parts) > 1 else values
        return f"add `{values} = accelerator.gather_for_metrics({given})` before line {self.line}"


def origin_of(text: str, line: int) -> FigureOrigin | None:
    """The origin of a figure that a statement shows; None where none is found."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _holds(node, line)]
    if not around:
        return None
    scope = max((n for n in around if isinstance(n, _FUNCTION)), key=lambda n: n.lineno, default=tree)
    shown = max(around, key=lambda node: (node.lineno, node.col_offset))
    found = (_made(tree, scope, name, _DEPTH) for name in _read(shown) if name != _shows(shown))
    called = (node for node in ast.walk(shown) if isinstance(node, ast.Call))
    given = (_returned(tree, node, None, _DEPTH) for node in called)  # `print(evaluate(model, loader))`
    return next(filter(None, (*found, *given)), None)


def _shows(statement: ast.stmt) -> str:
    """The object that shows what it is given, and is no figure itself: `accelerator.print(hits)`."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not (call.args or call.keywords) or not isinstance(call.func, ast.Attribute):
        return ""
    return call.func.value.id if isinstance(call.func.value, ast.Name) else ""


def _holds(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _made(tree: ast.Module, scope: _Scope, name: str, depth: int) -> FigureOrigin | None:
    """Where a name of a function, or of the script, is made of rows of one process."""
    gathered = _gathered(scope)
    if not depth or name in gathered or name in _accelerators(tree):
        return None
    for loop, statement in _in_loops(scope):
        if _changes(statement, name):
            inside = _bound(loop)
            parts = tuple(part for part in _read(statement) if part in inside and part != name)
            if not gathered.isdisjoint(parts) or _GATHERED.search(ast.unparse(statement)):
                return None
            numbers = tuple(part for part in parts if _is_number(statement, part))
            if parts:
                return FigureOrigin(statement.lineno, name, numbers or parts, bool(numbers))
    for node in _own(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if name in _targets(target) and (found := _followed(tree, scope, node.value, name, target, depth)):
                    return found
    return None


def _accelerators(tree: ast.Module) -> set[str]:
    """The names of the accelerator, to which values are given (`accelerator.backward(loss)`): it is no figure."""
    made = (n for n in ast.walk(tree) if isinstance(n, ast.Assign) and _MAKER.match(ast.unparse(n.value)))
    return {name for node in made for target in node.targets for name in _targets(target)}


def _followed(
    tree: ast.Module, scope: _Scope, value: ast.expr, name: str, target: ast.expr, depth: int
) -> FigureOrigin | None:
    """Through the value that is given to a name: what a function of the file returns, or the names in it."""
    if _function(tree, value) is None:
        sources = (_made(tree, scope, read, depth - 1) for read in _read(value) if read != name)
        return next(filter(None, sources), None)
    items = target.elts if isinstance(target, ast.Tuple) else [target]
    at = next((n for n, item in enumerate(items) if name in _targets(item)), 0)
    return _returned(tree, value, at, depth)


def _function(tree: ast.Module, value: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function of the file that a value calls."""
    called = value.func if isinstance(value, ast.Call) else None
    names = {node.name: node for node in ast.walk(tree) if isinstance(node, _FUNCTION)}
    return names.get(getattr(called, "id", getattr(called, "attr", "")))


def _returned(tree: ast.Module, call: ast.AST, at: int | None, depth: int) -> FigureOrigin | None:
    """Through what a called function of the file returns: the part of it at a place, or all of it."""
    function = _function(tree, call)
    if function is None:
        return None
    for node in _own(function):
        if isinstance(node, ast.Return) and node.value is not None:
            whole = node.value
            part = at is not None and isinstance(whole, ast.Tuple) and at < len(whole.elts)
            given = whole.elts[at] if part else whole  # type: ignore[attr-defined]
            for read in _read(given):
                if found := _made(tree, function, read, depth - 1):
                    return found
    return None


def _changes(statement: ast.stmt, name: str) -> bool:
    """Whether a statement adds to a name, or gives it to one of its methods: `total += x`, `meter.update(x)`."""
    if isinstance(statement, ast.AugAssign):
        return name in _targets(statement.target)
    called = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute) and (called.args or called.keywords):
        return isinstance(called.func.value, ast.Name) and called.func.value.id == name
    own = isinstance(statement, ast.Assign) and name in _read(statement.value)
    return own and any(name in _targets(target) for target in statement.targets)  # type: ignore[attr-defined]


def _is_number(statement: ast.stmt, part: str) -> bool:
    """Whether a statement takes one number of a value of the loop: `total += loss.item()`."""
    text = ast.unparse(statement)
    return re.search(rf"(?<![\w.]){part}(\.detach\(\)|\.data|\.cpu\(\))*\.item\(\)", text) is not None


def _in_loops(scope: _Scope) -> Iterator[tuple[ast.For, ast.stmt]]:
    """The statements of a function in its loops over data, each with the innermost loop."""
    for loop in _own(scope):
        if isinstance(loop, ast.For) and not ast.unparse(loop.iter).startswith("range("):
            inner = {id(n) for one in _own(loop) if isinstance(one, ast.For) and one is not loop for n in ast.walk(one)}
            for node in _own(loop):
                if isinstance(node, ast.stmt) and node is not loop and id(node) not in inner:
                    yield loop, node


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a node, without those of the functions and classes in it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, (*_FUNCTION, ast.ClassDef, ast.Lambda)):
            yield from _own(node)


def _bound(loop: ast.For) -> set[str]:
    """The names that a loop binds, without the one that counts."""
    found = set(_targets(loop.target))
    if ast.unparse(loop.iter).startswith("enumerate(") and isinstance(loop.target, ast.Tuple):
        found.difference_update(_targets(loop.target.elts[0]))
    for node in _own(loop):
        if isinstance(node, ast.Assign):
            found.update(name for target in node.targets for name in _targets(target))
    return found


def _gathered(scope: _Scope) -> set[str]:
    """The names whose values are of all processes, or are computed from such."""
    found: set[str] = set()
    for node in _own(scope):
        if isinstance(node, ast.Assign):
            names = {name for target in node.targets for name in _targets(target)}
            if _GATHERED.search(ast.unparse(node.value)) or found.intersection(_read(node.value)):
                found |= names
    return found


def _targets(node: ast.expr) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _read(node: ast.AST) -> list[str]:
    """The names that a node reads, in order, without those that it calls."""
    called = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    names.sort(key=lambda n: (n.lineno, n.col_offset))
    return list(dict.fromkeys(n.id for n in names if id(n) not in called))


def rate_set_at(text: str) -> tuple[int | None, bool]:
    """The last line of a file that sets a learning rate by hand (`group["lr"] = ...`, `group.update(lr=...)`), and
    whether the file speaks of a scheduler."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None, True
    found = [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AugAssign) and _sets_rate(node)
    ]
    for call in _calls(text):
        held = ast.unparse(call.func)
        if held.endswith(".update") and ("param_groups" in held or "group" in held) and "lr" in ast.unparse(call):
            found.append(call.lineno)
    return max(found, default=None), "sched" in text.lower()


def _sets_rate(node: ast.Assign | ast.AugAssign) -> bool:
    targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
    keys = (target.slice for target in targets if isinstance(target, ast.Subscript))
    return any(isinstance(key, ast.Constant) and key.value == "lr" for key in keys)


_CALLS = re.compile(r"(?:^|\.)(?:(save\w*)|(load|load_state|load_file|read_\w+)|(wait_for_everyone))$")


def prepared_at(text: str) -> int | None:
    """The first line of a file that gives something to the accelerator's `prepare`."""
    calls = (node for node in _calls(text) if ast.unparse(node.func).endswith(".prepare"))
    return next((node.lineno for node in calls), None)


def read_unwaited(text: str, line: int) -> int | None:
    """The last line above a line that reads a file after something was saved, and no process has waited in between."""
    found, saved = None, False
    for node in _calls(text):
        known = _CALLS.search(ast.unparse(node.func))
        if known is None or node.lineno > line:
            continue
        if known[2] and saved:
            found = node.lineno
        saved = bool(known[1]) or (saved and not known[3])
    return found


def _calls(text: str) -> list[ast.Call]:
    """The calls of a file by their lines."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return sorted((n for n in ast.walk(tree) if isinstance(n, ast.Call)), key=lambda n: (n.lineno, n.col_offset))
