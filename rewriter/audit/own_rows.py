"""Names of files that are made of the rows of a process's own shard: no two processes have the same."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.containers import key_of
from ..analysis.dataflow.values import Unit, origins
from ..analysis.distributed.tracing import argument_of
from ..analysis.syntax.definitions import unshadowed
from ..analysis.syntax.nodes import keyword
from ..analysis.syntax.walk import children, descendants
from ..analysis.training.training import method_name
from ..facts.roles import Role
from .program import AuditedProgram

_PLAIN = frozenset(
    "str Path join basename dirname splitext split rsplit strip rstrip lstrip replace removesuffix removeprefix format "
    "lower upper with_suffix with_name joinpath relative_to item int zfill to cpu cuda items values".split()
)
"""Calls that give what they are given, or make a text, a number or a path of it, and nothing else."""
Seen = frozenset[cst.CSTNode]


def names_own_rows(program: AuditedProgram, unit: Unit, path: cst.CSTNode, seen: Seen = frozenset()) -> bool:
    """Whether a path contains a part of a row that a loop over a sharded loader gives."""
    if isinstance(path, cst.Name):
        binding = unit.names.binding(path) if path not in seen else None
        definitions = unshadowed(unit.names, binding, path) if binding is not None else ()
        return bool(definitions) and all(_is_of_row(program, unit, d, seen | {path}) for d in definitions)
    if isinstance(path, cst.Call) and method_name(path) not in _PLAIN:
        return False
    if isinstance(path, (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.Lambda)):
        return False
    if isinstance(path, cst.Attribute):
        return names_own_rows(program, unit, path.value, seen)
    if isinstance(path, (cst.DictComp, cst.BaseSimpleComp)):
        made = path.value if isinstance(path, cst.DictComp) else path.elt
        return names_own_rows(program, unit, made, seen)
    if isinstance(path, cst.Subscript) and path not in seen and (key := _key(path)) is not None:
        stored = [value for value in _stored(program, key) if value[1] not in seen]
        if stored and all(names_own_rows(program, home, value, seen | {path}) for home, value in stored):
            return True
    return any(names_own_rows(program, unit, child, seen) for child in children(path))


def _key(subscript: cst.Subscript) -> str | None:
    """``"name"`` of ``row["name"]``."""
    index = subscript.slice[0].slice if len(subscript.slice) == 1 else None
    return key_of(index.value) if isinstance(index, cst.Index) else None


def _stored(program: AuditedProgram, key: str) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    """What the code that is reached puts under a key: ``{"name": x}``, ``dict(name=x)``, ``row["name"] = x``."""
    for unit in program.reach.units:
        found: list[tuple[cst.CSTNode, cst.BaseExpression]] = []
        for node in unit.names.every(cst.DictElement):
            assert isinstance(node, cst.DictElement)
            found += [(node, node.value)] if key_of(node.key) == key else []
        for call in unit.names.calls:
            value = keyword(call, key) if method_name(call) == "dict" else None
            found += [(call, value)] if value is not None else []
        for target in unit.names.every(cst.AssignTarget):
            assert isinstance(target, cst.AssignTarget)
            assign = unit.names.parents.get(target)
            if (
                isinstance(target.target, cst.Subscript)
                and isinstance(assign, cst.Assign)
                and _key(target.target) == key
            ):
                found.append((target, assign.value))
        yield from ((unit, value) for node, value in found if unit.names.function(node) in program.reached)


def _is_of_row(program: AuditedProgram, unit: Unit, definition: cst.CSTNode, seen: Seen) -> bool:
    """Whether a variable gets a part of a row: as the target of a loop, computed from one, or from every caller."""
    for around in (definition, *unit.names.ancestors(definition)):
        if isinstance(around, cst.Param):
            return _is_given_rows(program, unit, around, seen)
        if isinstance(around, (cst.For, cst.CompFor)):
            return _gives_rows(program, unit, around, definition, seen)
        if isinstance(around, cst.Assign):
            return names_own_rows(program, unit, around.value, seen)
        if around is not definition and not isinstance(
            around, (cst.Element, cst.Tuple, cst.List, cst.AssignTarget, cst.StarredElement)
        ):
            return False
    return False


def _is_given_rows(program: AuditedProgram, unit: Unit, param: cst.Param, seen: Seen) -> bool:
    """Whether every call gives a part of a row to a parameter."""
    function = unit.names.parents.get(unit.names.parents.get(param, param))
    if not isinstance(function, cst.FunctionDef) or function in program.state.escaped:
        return False
    given = [(site.unit, argument_of(unit, function, param, site)) for site in program.sites(function)]
    return bool(given) and all(
        value is not None and value not in seen and names_own_rows(program, home, value, seen | {value})
        for home, value in given
    )


def _gives_rows(
    program: AuditedProgram, unit: Unit, loop: cst.For | cst.CompFor, definition: cst.CSTNode, seen: Seen
) -> bool:
    """Whether what a loop gives to one of its targets is rows of a sharded loader, or a part of them, and no count."""
    target: cst.CSTNode = loop.target
    iterated: cst.BaseExpression = loop.iter
    while isinstance(iterated, cst.Call) and iterated.args:
        name = method_name(iterated)
        if name not in ("enumerate", "zip") and origins(program.state.values.get(iterated), Role.LOADER):
            break
        parts = [element.value for element in target.elements] if isinstance(target, (cst.Tuple, cst.List)) else []
        place = next((i for i, part in enumerate(parts) if definition in set(descendants(part))), None)
        if name == "enumerate" and len(parts) == 2:
            if place == 0:
                return False
            target, iterated = parts[1], iterated.args[0].value
        elif name == "zip" and place is not None and place < len(iterated.args):
            target, iterated = parts[place], iterated.args[place].value
        elif name in ("enumerate", "zip"):
            return False
        else:
            iterated = iterated.args[0].value  # a progress bar, or a call that skips batches
    if isinstance(iterated, cst.Call) and method_name(iterated) == "items" and isinstance(target, cst.Tuple):
        if definition in set(descendants(target.elements[0])):
            return False
    loaders = origins(program.state.values.get(iterated), Role.LOADER)
    if loaders:
        return all(program.is_sharded(loader) is True for loader in loaders)
    return names_own_rows(program, unit, iterated, seen)
