"""Names of files that are made of the rows of a process's own shard: no two processes have the same."""

from __future__ import annotations

import libcst as cst

from ..analysis.dataflow.values import Unit, origins
from ..analysis.syntax.walk import children, descendants
from ..analysis.training.training import method_name
from ..facts.roles import Role
from .program import AuditedProgram

_TEXTS = frozenset(
    "str Path join basename dirname splitext split rsplit strip rstrip lstrip replace removesuffix removeprefix format "
    "lower upper with_suffix with_name joinpath relative_to item int zfill".split()
)
"""Calls that make a text, a number or a path of what they are given, and nothing else."""
Seen = frozenset[cst.CSTNode]


def names_own_rows(program: AuditedProgram, unit: Unit, path: cst.CSTNode, seen: Seen = frozenset()) -> bool:
    """Whether a path contains a part of a row that a loop over a sharded loader gives."""
    if isinstance(path, cst.Name):
        binding = unit.names.binding(path) if path not in seen else None
        definitions = binding.definitions if binding is not None else ()
        return bool(definitions) and all(_is_of_row(program, unit, d, seen | {path}) for d in definitions)
    if isinstance(path, cst.Call) and method_name(path) not in _TEXTS:
        return False
    if isinstance(path, (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.Lambda)):
        return False
    if isinstance(path, cst.Attribute):
        return names_own_rows(program, unit, path.value, seen)
    return any(names_own_rows(program, unit, child, seen) for child in children(path))


def _is_of_row(program: AuditedProgram, unit: Unit, definition: cst.CSTNode, seen: Seen) -> bool:
    """Whether a variable gets a part of a row: as the target of a loop, or computed from one."""
    for around in unit.names.ancestors(definition):
        if isinstance(around, (cst.For, cst.CompFor)):
            return _gives_rows(program, unit, around, definition, seen)
        if isinstance(around, cst.Assign):
            return names_own_rows(program, unit, around.value, seen)
        if not isinstance(around, (cst.Element, cst.Tuple, cst.List, cst.AssignTarget, cst.StarredElement)):
            return False
    return False


def _gives_rows(
    program: AuditedProgram, unit: Unit, loop: cst.For | cst.CompFor, definition: cst.CSTNode, seen: Seen
) -> bool:
    """Whether what a loop gives to one of its targets is rows of a sharded loader, or a part of them, and no count."""
    target: cst.CSTNode = loop.target
    iterated: cst.BaseExpression = loop.iter
    while isinstance(iterated, cst.Call) and iterated.args:
        name = method_name(iterated)
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
    loaders = origins(program.state.values.get(iterated), Role.LOADER)
    if loaders:
        return all(program.is_sharded(loader) is True for loader in loaders)
    return names_own_rows(program, unit, iterated, seen)
