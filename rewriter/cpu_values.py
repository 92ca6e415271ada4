"""
Where a value goes that a migrated script has taken to the CPU, ``x.cpu()``. Standard library only: part of the gate.

Such a value is one process's own. The rules have business with it where it becomes part of a figure or of a decision,
and none where it ends in a file that the main process writes, or in a model. This follows names, all functions of a
file taken together, and answers no to everything that it does not know.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence

from .shallow import Call, Survey, dotted

_UNFOLLOWED = (
    ast.IfExp, ast.BoolOp, ast.Compare, ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""What decides by a value, or hands it on in a way that is not followed."""
_KNOWN = frozenset({"torch", "torchvision", "torchaudio", "numpy", "matplotlib", "PIL", "os", "math", "builtins"})
"""Modules that keep nothing of what they are given; any other one may be a file of the program."""


def end_in_files(survey: Survey, nodes: Sequence[ast.AST], writes: frozenset[str], *, tells: bool = True) -> bool:
    """
    Whether nothing in a file but models, and what the main process writes, is given a value from the CPU.

    ``writes`` are the names of functions that write a file. A file that may evaluate anything gets no for an answer;
    with ``tells`` also one that draws numbers which are the same on all processes: that is told each time.
    """
    if tells and any(isinstance(node, ast.Attribute) and node.attr == "random" for node in nodes):
        return False
    loops = (node for node in nodes if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)))
    return all(_counts(loop) or _trains(loop) for loop in loops) and _Followed(survey, nodes, writes).is_harmless()


def _counts(loop: ast.For | ast.AsyncFor | ast.comprehension) -> bool:
    """``for i in range(n)``: it iterates no loader."""
    return isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) == "range"


def _trains(loop: ast.AST) -> bool:
    """Whether a backward pass stands in a loop: it evaluates nothing."""
    return any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(loop))


class _Followed:
    """The names that a value from the CPU reaches."""

    def __init__(self, survey: Survey, nodes: Sequence[ast.AST], writes: frozenset[str]) -> None:
        self.survey, self.writes = survey, writes
        self.modules = dict(_imported(nodes)) | dict.fromkeys(vars(builtins), "builtins")
        self.calls: dict[ast.AST, Call] = {call.node: call for call in survey.calls}
        self.functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self.statements: list[tuple[ast.stmt, str]] = []
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.setdefault(node.name, []).append(node)
                own = (inner for inner in ast.walk(node) if isinstance(inner, ast.Return))
                self.statements += [(statement, node.name) for statement in own]
            elif isinstance(node, ast.stmt) and not isinstance(node, ast.Return):
                self.statements.append((node, ""))
        self.reached: set[str] = set()
        self.lost = False
        """Some code was given such a value, and is not in sight."""

    def is_harmless(self) -> bool:
        """Follow the values to their ends."""
        known = -1
        while known != len(self.reached):
            known = len(self.reached)
            for statement, function in self.statements:
                if any(self._holds(part) for part in _parts(statement)) and not self._takes(statement, function):
                    return False
        return not self.lost

    def _takes(self, statement: ast.stmt, function: str) -> bool:
        """Note what a statement does with such a value; False where that is not known to be harmless."""
        if any(isinstance(node, _UNFOLLOWED) for part in _parts(statement) for node in ast.walk(part)):
            return False
        if isinstance(statement, ast.Return):
            self.reached.add(function)
            return True
        if isinstance(statement, ast.Assign):
            names = [name for target in statement.targets for name in _bound(target)]
            self.reached.update(names)
            return "" not in names
        call = self.calls.get(statement.value) if isinstance(statement, ast.Expr) else None
        return call is not None and call.place.guarded and call.name in self.writes and self._is_known(call)

    def _is_known(self, call: Call) -> bool:
        """Whether a module is called that has nothing to do with this program."""
        return self.modules.get(dotted(call.node.func).partition(".")[0]) in _KNOWN

    def _holds(self, node: ast.AST) -> bool:
        """Whether an expression holds such a value. Functions of the file that are given one hold it as well."""
        if isinstance(node, ast.Name):
            return node.id in self.reached
        if not isinstance(node, ast.Call):
            return self._any(ast.iter_child_nodes(node))
        call = self.calls.get(node)
        if call is None:
            return True  # in a place where calls are not looked at: a default, a decorator
        if call.name == "cpu" and not call.gathered:
            return True
        if self.survey.is_prepared(dotted(node.func), call.place.scope):
            return False  # a model computes with it: what it gives is looked at like all that models give
        handed = [*node.args, *(keyword.value for keyword in node.keywords)]
        own, given = self._holds(node.func), self._any(handed)
        if given:
            self._give(call, handed, own=own)
        return own or given

    def _any(self, nodes: Iterable[ast.AST]) -> bool:
        """Whether any of some expressions holds such a value. All of them are looked at."""
        return any([self._holds(node) for node in nodes])  # noqa: C419

    def _give(self, call: Call, handed: Sequence[ast.expr], *, own: bool) -> None:
        """Note that a call is handed such a value; ``own``: it is a method of one."""
        name = dotted(call.node.func)
        if any(dotted(value) in self.functions for value in handed):
            self.lost = True  # somebody calls that function with it
        elif name in (call.name, f"self.{call.name}") and call.name in self.functions:
            for function in self.functions[call.name]:
                given = function.args
                names = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
                self.reached.update(argument.arg for argument in names if argument is not None)
        else:
            self.lost = self.lost or not (own or self._is_known(call))


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """What belongs to a statement itself, without the statements inside it."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, (ast.ExceptHandler, ast.match_case)):
            yield from (part for part in ast.iter_child_nodes(child) if not isinstance(part, ast.stmt))
        elif not isinstance(child, ast.stmt):
            yield child


def _bound(target: ast.expr) -> Iterator[str]:
    """The names that hold what is assigned; an empty one for an attribute of something."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _bound(element)
    elif isinstance(target, (ast.Starred, ast.Subscript)):
        yield from _bound(target.value)
    else:
        yield target.id if isinstance(target, ast.Name) else ""


def _imported(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    """The names that imports bind, each with the top-level module that it comes from; none for a relative import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, "" if node.level else (node.module or "").partition(".")[0]
