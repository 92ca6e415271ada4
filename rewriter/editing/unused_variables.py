"""
Remove variables that only served removed code: a flag that nothing checks any more, a device that nothing reads.

A variable is removed from the new text if the original reads it, nothing reads it now, and its value is computed
without side effects. A file that looks at its own names (``globals()``, ``exec``) keeps them all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import libcst as cst

from ..analysis.syntax.names import Names
from ..analysis.syntax.scopes import Binding, ScopeKind
from ..analysis.syntax.walk import children, descendants
from ..facts.spellings import OWN_NAMES
from .apply import apply
from .edits import Edit, Remove, speaks_of_device
from .imports import exported, names_in

_LOOKING = OWN_NAMES | {"eval", "exec"}
_CALLS = frozenset("is_available device_count is_built device range list int str bool len input max min format".split())
_CHOOSING = frozenset("the a tensor tensors type types device configuration config choose select set define".split())
_ROUNDS = 4


def drop_idle(before: Names, tree: cst.Module, *, entry: bool) -> cst.Module:
    """
    Remove the variables that nothing reads after the migration.

    Args:
        before: the names of the original.
        tree: the new text.
        entry: nobody imports names from this module: those at its top level count, too.
    """
    read = {binding.name for binding in _candidates(before, entry=entry)}
    for _ in range(_ROUNDS if read else 0):
        found = Counter(name.value for name in names_in(tree))
        if sum(found[name] for name in _LOOKING) > _asked_of_others(tree):
            break
        idle = read - exported(tree)
        statements = [s for s in _definitions(tree) if _name(s) in idle]
        defined = Counter(_name(s) for s in statements if _is_pure(s.value))
        gone = {name for name, times in defined.items() if found[name] == times}
        edits: list[Edit] = [
            Remove("leftovers", _line_of(s, tree), reason="this is no longer used", drops=_speaks_of_it)
            for s in statements
            if _name(s) in gone
        ]
        if not edits:
            break
        tree, _, _ = apply(tree, _parents(tree), edits)
    return tree


def _asked_of_others(tree: cst.Module) -> int:
    """How often ``vars`` is asked what another object has: ``vars(args)``."""
    calls = (node for node in descendants(tree) if isinstance(node, cst.Call) and node.args)
    return sum(isinstance(call.func, cst.Name) and call.func.value == "vars" for call in calls)


def _speaks_of_it(comment: str) -> bool:
    """Whether a comment only says that a device or a tensor type is chosen."""
    return speaks_of_device(comment) or set(re.findall(r"[a-z]+", comment.lower())) <= _CHOOSING


def _candidates(before: Names, *, entry: bool) -> Iterator[Binding]:
    """The variables that the original reads."""
    for scope in before.scopes.values():
        if scope.kind is ScopeKind.FUNCTION or (scope.kind is ScopeKind.MODULE and entry):
            for binding in scope.bindings.values():
                if binding.reads and binding.definitions and all(isinstance(d, cst.Name) for d in binding.definitions):
                    yield binding


def _definitions(node: cst.CSTNode) -> Iterator[cst.Assign]:
    """The plain assignments to one name, except those in class bodies."""
    if isinstance(node, cst.Assign):
        if len(node.targets) == 1 and isinstance(node.targets[0].target, cst.Name):
            yield node
    elif not isinstance(node, cst.BaseExpression):
        for child in children(node):
            if not (node.__class__ is cst.ClassDef and isinstance(child, cst.SimpleStatementLine)):
                yield from _definitions(child)


def _name(assign: cst.Assign) -> str:
    target = assign.targets[0].target
    return target.value if isinstance(target, cst.Name) else ""


def _is_pure(value: cst.CSTNode) -> bool:
    """Whether a value need not be computed: names, constants, comparisons, checks of availability."""
    if isinstance(value, cst.Call):
        func = value.func
        name = func.attr.value if isinstance(func, cst.Attribute) else getattr(func, "value", "")
        return name in _CALLS and all(_is_pure(arg.value) for arg in value.args)
    if isinstance(value, (cst.Await, cst.Yield, cst.NamedExpr, cst.BaseComp, cst.Lambda)):
        return False
    return all(_is_pure(child) for child in children(value))


def _line_of(assign: cst.Assign, tree: cst.Module) -> cst.CSTNode:
    """The line of an assignment, or the assignment itself if it shares the line with other statements."""
    for node in descendants(tree):
        if isinstance(node, cst.SimpleStatementLine) and assign in node.body:
            return node if len(node.body) == 1 else assign
    return assign


def _parents(tree: cst.Module) -> dict[cst.CSTNode, cst.CSTNode]:
    """The parents of all nodes of a tree."""
    return {child: node for node in descendants(tree) for child in children(node)}
