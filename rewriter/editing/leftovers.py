"""
Remove what only served removed code: a flag that nothing checks any more, a device that nothing reads, the function
that chose it, an import.

Names are followed through a whole program, as one module may have read what another has. One goes from the new text if
the original reads it, nothing reads it now, and its value is computed without side effects. What was dead before stays.
So does what code outside the program may read: a module that other files import keeps all its names, and a file that
looks at its own names (``globals()``, ``exec``) does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import libcst as cst

from ..analysis.syntax.names import Names
from ..analysis.syntax.nodes import dotted, is_docstring
from ..analysis.syntax.resolving import resolve
from ..analysis.syntax.scopes import Binding, Scope, ScopeKind
from ..analysis.syntax.walk import children, descendants, nodes_in
from ..facts.spellings import OWN_NAMES
from .apply import apply
from .edits import Edit, Remove, speaks_of_device
from .imports import drop_unused, exported, names_in
from .unread_fields import unread_fields

_LOOKING = OWN_NAMES | {"eval", "exec"}
_BY_NAME = frozenset({"getattr", "sys", "importlib"})
"""What may take a name of the module by a string."""
_CALLS = frozenset("is_available device_count is_built device range list int str bool len input max min format".split())
_CHOOSING = frozenset("the a tensor tensors type types device configuration config choose select set define".split())
_ROUNDS = 4


class Written(NamedTuple):
    """A module after the edits."""

    before: Names
    """The names of the original."""
    tree: cst.Module
    """The new text."""
    edited: bool = True
    taken: frozenset[str] = frozenset()
    """The names that other modules read from the original; ``*`` where they read whatever it has."""
    open: bool = False
    """Code outside the program may read its names."""


def tidied(program: Sequence[Written]) -> list[cst.Module]:
    """The new texts of a program, without the names of edited modules that nothing reads after the migration."""
    modules = list(program)
    for _ in range(_ROUNDS):
        changed = False
        for index, module in enumerate(modules):
            if module.edited:
                others = [other.tree for other in modules if other is not module]
                tree = drop_unused(module.before, _without_idle(module, others), module.taken)
                changed = changed or tree is not module.tree
                modules[index] = module._replace(tree=tree)
        if not changed:
            break
    return [module.tree for module in modules]


def _without_idle(module: Written, others: Sequence[cst.Module]) -> cst.Module:
    tree = module.tree
    found = Counter(name.value for name in names_in(tree))
    looking = sum(found[name] for name in _LOOKING)
    if looking and looking > _asked_of_others(tree):
        return tree
    now = resolve(tree)
    idle = list(_idle(module, now, others))
    fields = [] if module.open else list(unread_fields(module.before, now, others))
    defaults = list(_idle_defaults(module, now))
    quiet = _quiet_functions(now) if idle or fields else {}
    edits: list[Edit] = [
        Remove("leftovers", _line(now, field), reason="this is no longer used", drops=_speaks_of_it)
        for field in fields
        if _is_pure(field.value, quiet)
    ]
    edits += [Remove("leftovers", each, reason="this is no longer used", drops=_speaks_of_it) for each in defaults]
    for binding in idle:
        statements = [_statement(now, definition, binding.scope, quiet) for definition in binding.definitions]
        edits += [
            Remove("leftovers", s, reason="this is no longer used", drops=_speaks_of_it, attached=_is_function(s))
            for s in statements
            if s is not None and None not in statements
        ]
    return apply(tree, now.parents, edits)[0] if edits else tree


def _idle(module: Written, now: Names, others: Sequence[cst.Module]) -> Iterator[Binding]:
    """The variables and functions that the original reads, and that nothing reads now."""
    before = _by_name(module.before)
    mentioned: set[str] | None = None
    for name, scope in _by_name(now).items():
        old = before.get(name)
        for binding in scope.bindings.values() if old is not None else ():
            was = old.bindings.get(binding.name) if old is not None else None
            if binding.reads or was is None:
                continue
            if scope.kind is ScopeKind.FUNCTION:
                if was.reads:
                    yield binding
                continue
            if module.open or "*" in module.taken or not (was.reads or binding.name in module.taken):
                continue
            if mentioned is None:
                mentioned = exported(now.module).union(*map(_mentioned, others))
                if any(name.value in _BY_NAME for name in names_in(now.module)):
                    mentioned |= {str(string.raw_value) for string in nodes_in(now.module, cst.SimpleString)}
            if binding.name not in mentioned:
                yield binding


def _idle_defaults(module: Written, now: Names) -> Iterator[cst.If]:
    """The choices that give a parameter its value where the caller gives none, ``if device is None: device = ...``, of
    a parameter that nothing else reads now."""
    before = _by_name(module.before)
    for name, scope in _by_name(now).items():
        if scope.kind is not ScopeKind.FUNCTION or name not in before:
            continue
        for binding in scope.bindings.values():
            was = before[name].bindings.get(binding.name)
            given = [d for d in binding.definitions if isinstance(d, cst.Param)]
            choices = [_default(now, d) for d in binding.definitions if d not in given]
            if was is None or not given or not choices or None in choices or len(was.reads) <= len(binding.reads):
                continue
            inside = {node for choice in choices if choice is not None for node in descendants(choice)}
            if inside.issuperset(binding.reads):
                yield from (choice for choice in choices if choice is not None)


def _default(names: Names, definition: cst.CSTNode) -> cst.If | None:
    """The ``if`` around an assignment that does nothing else."""
    choice = next(names.enclosing(definition, cst.If), None)
    if not isinstance(choice, cst.If) or choice.orelse is not None or not _is_pure(choice.test):
        return None
    (line,) = choice.body.body if len(choice.body.body) == 1 else (None,)
    smalls = line.body if isinstance(line, cst.SimpleStatementLine) else ()
    alone = len(smalls) == 1 and isinstance(smalls[0], cst.Assign) and len(smalls[0].targets) == 1
    return choice if alone and definition in set(descendants(choice)) and _is_quiet_line(smalls[0]) else None


def _by_name(names: Names) -> dict[str, Scope]:
    """The scope of the module, and those of functions, as far as no two have the same name."""
    kinds = (ScopeKind.MODULE, ScopeKind.FUNCTION)
    scopes = [scope for scope in names.scopes.values() if scope.kind in kinds]
    times = Counter(scope.qualname for scope in scopes)
    return {scope.qualname: scope for scope in scopes if times[scope.qualname] == 1}


@lru_cache(maxsize=512)  # the modules beside one that changes are the same for the next one
def _mentioned(tree: cst.Module) -> frozenset[str]:
    """Every name, attribute and string of a module: what may read a name of another one."""
    nodes = nodes_in(tree, cst.Name, cst.SimpleString)
    return frozenset(node.value if isinstance(node, cst.Name) else str(node.raw_value) for node in nodes)


def _asked_of_others(tree: cst.Module) -> int:
    """How often ``vars`` is asked what another object has: ``vars(args)``."""
    calls = (node for node in descendants(tree) if isinstance(node, cst.Call) and node.args)
    return sum(isinstance(call.func, cst.Name) and call.func.value == "vars" for call in calls)


def _speaks_of_it(comment: str) -> bool:
    """Whether a comment only says that a device or a tensor type is chosen."""
    return speaks_of_device(comment) or set(re.findall(r"[a-z]+", comment.lower())) <= _CHOOSING


# What can be removed --------------------------------------------------------------------------------------------------


def _is_function(statement: cst.CSTNode | None) -> bool:
    return isinstance(statement, cst.FunctionDef)


def _statement(
    names: Names, definition: cst.CSTNode, scope: Scope, quiet: Mapping[str, cst.FunctionDef]
) -> cst.CSTNode | None:
    """The statement that defines a name and does nothing else; None where that does more."""
    if isinstance(definition, cst.FunctionDef):
        plain = not definition.decorators and names.within.get(definition) is scope
        return definition if plain and len(scope.bindings[definition.name.value].definitions) == 1 else None
    target = names.parents.get(definition)
    assign = names.parents.get(target) if isinstance(target, cst.AssignTarget) else target
    if isinstance(assign, cst.Assign):
        value: cst.BaseExpression | None = assign.value if len(assign.targets) == 1 else None
    else:
        value = assign.value if isinstance(assign, cst.AnnAssign) and assign.target is definition else None
    if value is None or assign is None or names.within.get(definition) is not scope or not _is_pure(value, quiet):
        return None
    return _line(names, assign)


def _line(names: Names, small: cst.CSTNode) -> cst.CSTNode:
    """The line of a statement, or the statement itself if it shares the line with others."""
    line = names.parents.get(small)
    return line if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else small


def _is_pure(value: cst.CSTNode, quiet: Mapping[str, cst.FunctionDef] | None = None) -> bool:
    """Whether a value need not be computed: names, constants, comparisons, checks of availability."""
    if isinstance(value, cst.Call):
        func = value.func
        name = func.attr.value if isinstance(func, cst.Attribute) else getattr(func, "value", "")
        if _is_first_part(value):
            return True
        own = isinstance(func, cst.Name) and quiet is not None and name in quiet
        return (own or name in _CALLS) and all(_is_pure(arg.value, quiet) for arg in value.args)
    if isinstance(value, (cst.Await, cst.Yield, cst.NamedExpr, cst.BaseComp, cst.Lambda)):
        return False
    return all(_is_pure(child, quiet) for child in children(value))


def _is_first_part(call: cst.Call) -> bool:
    """``next(model.parameters())``: begun anew each time, it takes nothing from anybody."""
    made = call.args[0].value if len(call.args) == 1 else None
    if dotted(call.func) not in ("next", "iter") or not isinstance(made, cst.Call):
        return False
    parts = isinstance(made.func, cst.Attribute) and made.func.attr.value in ("parameters", "buffers") and not made.args
    return parts or (dotted(made.func) == "iter" and _is_first_part(made))


def _quiet_functions(names: Names) -> dict[str, cst.FunctionDef]:
    """The functions of a module that do nothing but choose what they return."""
    functions = [statement for statement in names.module.body if isinstance(statement, cst.FunctionDef)]
    return {
        function.name.value: function
        for function in functions
        if not function.decorators and function.asynchronous is None and _is_quiet(function.body)
        if len(names.scope.bindings[function.name.value].definitions) == 1
    }


def _is_quiet(block: cst.BaseSuite) -> bool:
    for statement in block.body:
        if isinstance(statement, cst.If):
            branch: cst.If | cst.Else | None = statement
            while branch is not None:
                if not _is_quiet(branch.body) or (isinstance(branch, cst.If) and not _is_pure(branch.test)):
                    return False
                branch = branch.orelse if isinstance(branch, cst.If) else None
        elif not is_docstring(statement):
            smalls = statement.body if isinstance(statement, cst.SimpleStatementLine) else (statement,)
            if not all(map(_is_quiet_line, smalls)):
                return False
    return True


def _is_quiet_line(small: cst.CSTNode) -> bool:
    if isinstance(small, cst.Assign):
        return all(isinstance(target.target, cst.Name) for target in small.targets) and _is_pure(small.value)
    if isinstance(small, cst.Return):
        return small.value is None or _is_pure(small.value)
    return isinstance(small, cst.Pass)
