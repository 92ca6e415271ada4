"""Which values differ between ranks by nature: times, and what names a rank. Told by the words of the script."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

TIME = frozenset(
    "time times elapsed duration durations seconds secs sec ms clock now eta speed throughput timer tic toc perf "
    "monotonic memory mem allocated reserved fps tps hours minutes mins".split()
)
"""Parts of names that mean a time, or what a machine has spent."""
RANK = frozenset(
    "rank ranks process_index is_main_process is_local_main_process is_last_process current_device device_id "
    "device_index gpu pid getpid hostname gethostname uuid uuid1 uuid4 mkdtemp rng".split()
)
"""Parts of names that mean the process itself, or whole names."""
_NUMERIC = frozenset("max min round float int str abs sum repr format divmod range".split())
"""Functions whose result is of the kind of their arguments."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_DISPLAYS = (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
_PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def parts(name: str) -> set[str]:
    """The words of a name: `batch_time`, `BatchTime` and `timeOfBatch` hold `time`."""
    return {part.lower() for part in _PART.findall(name)} | {name.lower()}


def kind_of(name: str) -> str:
    """`time`, `rank`, or an empty text."""
    found = parts(name)
    return "rank" if found & RANK else "time" if found & TIME else ""


class Nature:
    """
    What the expressions of one scope (a function, or the body of a module) are by nature.

    Args:
        scope: the function, or the module.
        attributes: names of attributes that hold such a value, and its kind; of the whole file.
    """

    def __init__(self, scope: ast.AST, attributes: dict[str, str]) -> None:
        self._names: dict[str, str] = {}
        self._attributes = attributes
        statements = list(_assignments(scope))
        changed = True
        while changed:
            before = len(self._names) + len(attributes)
            for targets, value in statements:
                kind = "" if isinstance(value, _DISPLAYS) else self.of(value)
                for target in targets if kind else ():
                    self._mark(target, kind)
            changed = len(self._names) + len(attributes) > before

    def of(self, expression: ast.AST) -> str:
        """`rank`, `time`, or an empty text for everything else."""
        kinds = {kind for kind in self._kinds(expression) if kind}
        return "rank" if "rank" in kinds else "time" if kinds else ""

    def _kinds(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Name):
            yield self._names.get(node.id) or kind_of(node.id)
        elif isinstance(node, ast.Attribute):
            yield self._attributes.get(node.attr) or kind_of(node.attr)
            yield from self._kinds(node.value)
        elif isinstance(node, ast.Subscript):
            yield from self._kinds(node.value)
            yield from self._kinds(node.slice)
        elif isinstance(node, ast.Constant):
            yield kind_of(node.value) if isinstance(node.value, str) and node.value.isidentifier() else ""
        elif isinstance(node, ast.Call):
            yield from self._kinds(node.func)
            if isinstance(node.func, ast.Name) and node.func.id in _NUMERIC:
                for argument in node.args:
                    yield from self._kinds(argument)
        elif isinstance(node, _SCOPES):
            return
        else:
            for child in ast.iter_child_nodes(node):
                yield from self._kinds(child)

    def _mark(self, target: ast.AST, kind: str) -> None:
        if isinstance(target, ast.Name):
            self._names.setdefault(target.id, kind)
        elif isinstance(target, ast.Attribute):
            self._attributes.setdefault(target.attr, kind)


def _assignments(scope: ast.AST) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    for node in _within(scope):
        if isinstance(node, ast.Assign):
            yield node.targets, node.value
        elif isinstance(node, (ast.AugAssign, ast.NamedExpr)) or (isinstance(node, ast.AnnAssign) and node.value):
            assert node.value is not None
            yield [node.target], node.value


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """What belongs to a scope, and to no scope in it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, _SCOPES) or isinstance(child, ast.ClassDef):
            yield from _within(child)
