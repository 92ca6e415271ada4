"""Dictionaries, lists and tuples that are written out, with what the program puts into them later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import libcst as cst

from ...facts.container_methods import changes
from ...facts.roles import Origin
from .call_graph import Reach
from .callees import method_name
from .modules import imported, unit_named
from .object_fields import ObjectFields
from .values import Instance, State, Unit

_DEEPEST = 8


class WrittenEntry(NamedTuple):
    """One entry, in the code of a module."""

    unit: Unit
    key: cst.BaseExpression | int
    """The key, or the place in a list."""
    value: cst.BaseExpression
    certain: bool = True
    """It is there from the start; without, some path of the program puts it there."""


class WrittenOut:
    """Answers for one solved program."""

    def __init__(self, state: State, reach: Reach, fields: ObjectFields) -> None:
        self._state, self._reach, self._fields = state, reach, fields

    def entries(self, unit: Unit, node: cst.BaseExpression, depth: int = 0) -> list[WrittenEntry] | None:
        """The entries of what an expression gives; None if they are not all known."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, cst.Name):
            return self._of_name(unit, node, depth)
        if isinstance(node, cst.Attribute):
            return self._of_attribute(node, depth)
        if isinstance(node, cst.Dict):
            return self._of_dict(unit, node, depth)
        if isinstance(node, (cst.List, cst.Tuple)):
            plain = all(isinstance(e, cst.Element) for e in node.elements)
            return [WrittenEntry(unit, place, e.value) for place, e in enumerate(node.elements)] if plain else None
        if isinstance(node, cst.IfExp):
            sides = [self.entries(unit, side, depth + 1) for side in (node.body, node.orelse)]
            known = [side for side in sides if side is not None]
            both = [entry._replace(certain=False) for side in known for entry in side]
            return both if len(known) == len(sides) else None
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and method_name(node) == "dict":
            return self._handed(unit, node.args, depth)
        return None

    def _of_dict(self, unit: Unit, node: cst.Dict, depth: int) -> list[WrittenEntry] | None:
        found: list[WrittenEntry] = []
        for element in node.elements:
            if isinstance(element, cst.DictElement):
                found.append(WrittenEntry(unit, element.key, element.value))
                continue
            spread = self.entries(unit, element.value, depth + 1)
            if spread is None:
                return None
            found += spread
        return found

    def _handed(self, unit: Unit, args: Iterable[cst.Arg], depth: int) -> list[WrittenEntry] | None:
        """What ``dict(other, a=1)`` and ``update`` are given."""
        found: list[WrittenEntry] = []
        for arg in args:
            if arg.keyword is not None:
                found.append(WrittenEntry(unit, cst.SimpleString(repr(arg.keyword.value)), arg.value))
                continue
            spread = self.entries(unit, arg.value, depth + 1) if arg.star != "*" else None
            if spread is None:
                return None
            found += spread
        return found

    def _of_name(self, unit: Unit, node: cst.Name, depth: int) -> list[WrittenEntry] | None:
        binding = unit.names.binding(node)
        if binding is None or len(binding.definitions) != 1:
            return None
        definition = binding.definitions[0]
        if isinstance(definition, cst.ImportAlias):
            module, _, name = imported(unit, definition).rpartition(".")
            other = unit_named(self._state, module)
            there = other.names.scope.bindings.get(name) if other is not None else None
            first = there.definitions[0] if there is not None and len(there.definitions) == 1 else None
            if other is None or not isinstance(first, cst.Name):
                return None
            found, later = self._of_name(other, first, depth + 1), self._changes(unit, binding.reads, depth)
            return found + later if found is not None and later is not None else None
        assign = unit.names.parents.get(unit.names.parents.get(definition, definition))
        if not isinstance(assign, cst.Assign):
            return None
        found, later = self.entries(unit, assign.value, depth + 1), self._changes(unit, binding.reads, depth)
        return found + later if found is not None and later is not None else None

    def _of_attribute(self, node: cst.Attribute, depth: int) -> list[WrittenEntry] | None:
        slot = self._state.values.get(node.value)
        things = [t for t in slot.things if isinstance(t, (Instance, Origin))] if slot is not None else []
        writes = {write for thing in things for write in self._fields.writes(thing, node.attr.value)}
        write = writes.pop() if len(writes) == 1 else None
        if write is None:
            return None
        found = self.entries(*write, depth + 1)
        for unit in self._reach.units if found is not None else ():
            reads = [n for n in unit.names.every(cst.Attribute) if getattr(n, "attr", node).value == node.attr.value]
            later = self._changes(unit, reads, depth)
            if later is None or found is None:
                return None
            found = found + later
        return found

    def _changes(self, unit: Unit, reads: Iterable[cst.CSTNode], depth: int) -> list[WrittenEntry] | None:
        """What code that reads a container puts into it; None where that is not known."""
        found: list[WrittenEntry] = []
        for read in reads:
            put = self._put(unit, read, depth)
            if put is None:
                return None
            found += [entry._replace(certain=False) for entry in put]
        return found

    def _put(self, unit: Unit, read: cst.CSTNode, depth: int) -> list[WrittenEntry] | None:
        parents = unit.names.parents
        parent = parents.get(read)
        above = parents.get(parent) if parent is not None else None
        if isinstance(parent, cst.Subscript) and parent.value is read:
            assign = parents.get(above) if isinstance(above, cst.AssignTarget) else None
            index = parent.slice[0].slice if len(parent.slice) == 1 else None
            if isinstance(assign, cst.Assign) and isinstance(index, cst.Index):
                return [WrittenEntry(unit, index.value, assign.value)]
            return None if isinstance(above, (cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.Del)) else []
        if isinstance(parent, cst.Attribute) and isinstance(above, cst.Call) and above.func is parent:
            if parent.attr.value == "update":
                return self._handed(unit, above.args, depth)
            if parent.attr.value == "setdefault" and len(above.args) == 2:
                return [WrittenEntry(unit, above.args[0].value, above.args[1].value)]
            return None if changes(parent.attr.value) else []
        if isinstance(parent, cst.Arg) and not parent.star and isinstance(above, cst.Call):
            return None if self._reach.called(above) else []
        return []
