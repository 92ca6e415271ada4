"""
Loaders in a table that another module makes, ``from data import loaders``: each is prepared under its key.

Where the other module makes them, there is no accelerator yet. Who trains with ``loaders["train"]`` puts the prepared
loader there, so that all who read the table have it.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.constant_values import constants_of
from ..analysis.dataflow.constants import Text
from ..analysis.dataflow.values import Mapping, Unit
from ..analysis.syntax.definitions import setter
from ..analysis.syntax.walk import descendants
from ..facts.roles import Origin, Role
from .prepare_position import Held


def imported_entries(reach: Reach, code: Code, origin: Origin, uses: Iterator[cst.CSTNode]) -> list[Held]:
    """
    The entries of imported tables by which some code's module knows a loader; none where it is read in another way.

    ``uses``: the expressions by which the training iterates the loader. What a loop without a model reads may not be
    another entry that the same line makes: its batches would be taken for those of the prepared one.
    """
    unit = reach.unit(code)
    if origin.role is not Role.LOADER or origin.place in unit.names.parents:
        return []
    names: dict[str, None] = {}
    loops = (loop for loop, loaders in reach.state.loaders.items() if origin in loaders)
    others = (loop for loop in loops if isinstance(loop, (cst.For, cst.CompFor)))
    held = (node for loop in others for node in _holding(reach, loop.iter, origin))
    for node in uses:
        found = list(_entries(reach, unit, node, origin))
        if not found:
            return []
        names.update(dict.fromkeys(found))
    known = (list(_entries(reach, unit, node, origin)) for node in held)
    return [Held(origin, name, []) for name in names] if all(k and names.keys() >= set(k) for k in known) else []


def _holding(reach: Reach, node: cst.BaseExpression, origin: Origin) -> Iterator[cst.CSTNode]:
    """The parts of an expression that give a loader."""
    values = reach.state.values
    yield from (part for part in descendants(node) if part in values and origin in values[part].things)


def in_table(held: Held) -> bool:
    """Whether a name is that of an entry: ``loaders["train"]``."""
    return held.name.endswith("]")


def _entries(reach: Reach, unit: Unit, node: cst.CSTNode, origin: Origin) -> Iterator[str]:
    """The texts of a read of a table, ``loaders[phase]``, with each of the keys that it may have."""
    texts = _texts(reach, unit, node) if isinstance(node, cst.Subscript) and node in unit.names.parents else []
    for text, tables, key in texts:
        places = [table.rest for table in tables] + [t.entries[key] for t in tables if key in t.entries]
        if any(origin in place.things for place in places):
            yield text


def _texts(reach: Reach, unit: Unit, node: cst.BaseExpression) -> list[tuple[str, list[Mapping], str]]:
    """The spellings of a read of a table with its keys, the table that it reads, and the key; none of any other."""
    if not isinstance(node, cst.Subscript) or len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
        return []
    slot = reach.state.values.get(node.value)
    tables = [thing for thing in (slot.things if slot is not None else ()) if isinstance(thing, Mapping)]
    if not tables or slot is None or len(tables) != len(slot.things):
        return []
    keys = _keys(reach, unit, node.slice[0].slice.value)
    if keys is None:  # those that are written in the table, if it has no others
        keys = {key for table in tables for key in table.entries}
        if any(table.rest.things for table in tables):
            return []
    bases = [text for text, _, _ in _texts(reach, unit, node.value)] or _imported(unit, node.value)
    return [(f"{base}[{_quoted(key)}]", tables, key) for base in bases for key in sorted(keys)]


def _keys(reach: Reach, unit: Unit, node: cst.BaseExpression) -> set[str] | None:
    """The texts that a key may be: a constant, or what a loop over written ones gives; None if they are not known."""
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    loops = [setter(unit.names, definition) for definition in binding.definitions] if binding is not None else []
    given: list[cst.BaseExpression] = [node]
    if loops and all(isinstance(loop, cst.For) and isinstance(loop.iter, (cst.List, cst.Tuple)) for loop in loops):
        given = [element.value for loop in loops for element in loop.iter.elements]  # type: ignore[union-attr]
    found: set[str] = set()
    for value in given:
        keys = constants_of(reach.state).of(unit, value)
        if not keys or not all(isinstance(key, Text) and key.whole for key in keys):
            return None
        found.update(key.end for key in keys if isinstance(key, Text))
    return found


def _imported(unit: Unit, node: cst.BaseExpression) -> list[str]:
    """The name of what an import has given the module: ``loaders``, ``data.loaders``."""
    root = node
    while isinstance(root, cst.Attribute):
        root = root.value
    binding = unit.names.binding(root) if isinstance(root, cst.Name) else None
    if binding is None or binding.scope is not unit.names.scope or not binding.definitions:
        return []
    given = all(isinstance(definition, cst.ImportAlias) for definition in binding.definitions)
    return [unit.names.module.code_for_node(node)] if given else []


def _quoted(key: str) -> str:
    """A key as it is usually written."""
    return f'"{key}"' if repr(key) == f"'{key}'" and '"' not in key else repr(key)
