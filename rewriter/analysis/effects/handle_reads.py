"""What code that all processes run reads off an object that only one of them has."""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ..dataflow.callees import outside_name
from ..dataflow.values import Instance, State, Unit, Unknown
from .existing_guards import guarded

Read = tuple[Unit, cst.CSTNode]
_CHAINS = (cst.Attribute, cst.Call, cst.Subscript)


class HandleReads:
    """
    The reads of what one handle tells: its folder, its run, whatever a method of it gives.

    Args:
        state: the solved program.
        call: what makes the handle.
        settled: statements that only the main process will run.
        inside: code that runs where the handle is only: the methods of its own class.
    """

    def __init__(
        self,
        state: State,
        call: cst.Call,
        settled: Container[cst.CSTNode],
        inside: Container[cst.CSTNode] = (),
    ) -> None:
        self.state, self.settled, self.inside = state, settled, inside
        self._givers: list[cst.CSTNode] = [call]
        """What makes the handle, and the calls that give something of it."""
        self._seen: set[cst.CSTNode] = set()

    def by_all(self) -> Read | None:
        """Where all processes compute with something that they read off the handle; None where none does."""
        for giver in self._givers:  # grows on the way
            for unit, node in list(self._holding(giver)):
                found = self._used(unit, node, told=giver is not self._givers[0])
                if found is not None:
                    return found
        return None

    def _holding(self, giver: cst.CSTNode) -> Iterator[tuple[Unit, cst.CSTNode]]:
        for node, slot in list(self.state.values.items()):
            if any(isinstance(t, (Unknown, Instance)) and t.node is giver for t in slot.things):
                unit = next((u for u in self.state.units.values() if node in u.names.parents), None)
                if unit is not None and unit.names.function(node) not in self.inside:
                    yield unit, node

    def _used(self, unit: Unit, node: cst.CSTNode, *, told: bool) -> Read | None:
        """What computes with something read off an expression. ``told``: the expression is such a thing."""
        parents, here = unit.names.parents, node
        while isinstance(above := parents.get(here), _CHAINS) and here in (getattr(above, "value", None), _func(above)):
            here, told = above, True
        if not told or here in self._seen:
            return None
        self._seen.add(here)
        if isinstance(above, (cst.Expr, cst.AssignTarget, cst.Del, cst.WithItem)) or self._is_of_one(unit, here):
            return None
        if isinstance(above, cst.AugAssign) and above.target is here:
            return None
        if isinstance(above, cst.Assign):
            return self._kept(unit, above, here)
        if isinstance(above, cst.Return):
            return self._given_back(unit, above)
        return unit, here

    def _is_of_one(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether only the process with the handle evaluates a node for good: in a branch of its own, in what is
        printed, in what a method of the handle is given."""
        if guarded(self.state, unit, node):
            return True
        for around in unit.names.ancestors(node):
            if around in self.settled:
                return True
            record = self.state.calls.get(around) if isinstance(around, cst.Call) else None
            if record is not None and (outside_name(record) == "builtins.print" or self._is_held(around)):
                return True
        return False

    def _is_held(self, node: cst.CSTNode) -> bool:
        """Whether a call is one of the handle's methods."""
        while isinstance(node, _CHAINS):
            node = node.func if isinstance(node, cst.Call) else node.value
            slot = self.state.values.get(node)
            things = slot.things if slot is not None else ()
            if any(isinstance(t, (Unknown, Instance)) and t.node in self._givers for t in things):
                return True
        return False

    def _kept(self, unit: Unit, assign: cst.Assign, value: cst.CSTNode) -> Read | None:
        """What computes with a variable that something of the handle is kept in."""
        for target in (one.target for one in assign.targets):
            binding = unit.names.binding(target) if isinstance(target, cst.Name) else None
            if binding is not None:
                for read in binding.reads:
                    found = self._used(unit, read, told=True)
                    if found is not None:
                        return unit, value
            elif isinstance(target, cst.Attribute) and self._is_followed(value):
                self._givers.append(value)
            else:
                return unit, value
        return None

    def _is_followed(self, value: cst.CSTNode) -> bool:
        """Whether it is known where else a value is held."""
        slot = self.state.values.get(value)
        return any(isinstance(t, Unknown) and t.node is value for t in (slot.things if slot is not None else ()))

    def _given_back(self, unit: Unit, statement: cst.Return) -> Read | None:
        """What computes with what a function gives back."""
        for site in self.state.sites.get(unit.names.function(statement), ()):
            found = self._used(self.state.calls[site].unit, site, told=True)
            if found is not None:
                return found
        return None


def _func(node: cst.CSTNode | None) -> cst.CSTNode | None:
    return node.func if isinstance(node, cst.Call) else None
