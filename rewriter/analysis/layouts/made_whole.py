"""What is made whole: values that a gather, a reduction or a broadcast makes equal on all processes, and where."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ...facts.accelerator import Side
from ...facts.module import Form, Gather
from ...facts.roles import Role
from ...facts.torch_api import process_calls
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import CallRecord, State, Unit, Unknown, origins
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in


class MadeWhole:
    """The gathers of one program: those of a plan, and those that the script makes itself."""

    def __init__(self, state: State, gathers: Iterable[tuple[Unit, Gather]]) -> None:
        self.nodes: set[cst.CSTNode] = set()
        """The expressions that are equal on all processes."""
        self._covered: dict[Binding, list[int]] = {}
        for unit, gather in gathers:
            self._join(unit, gather)
        for record in state.calls.values():
            if is_joining(record):
                self._joined_already(record)

    def _join(self, unit: Unit, gather: Gather) -> None:
        if gather.form is Form.REDUCE or (gather.form is Form.RECEIVE and not gather.names):
            self.nodes.add(gather.node)
            return
        self.nodes.update(gather.inline)
        self.nodes.update(read for read, _ in gather.counts)
        position = unit.names.order(gather.node) - 1 if gather.side is Side.BEFORE else unit.names.end(gather.node)
        scope = unit.names.scopes[unit.names.function(gather.node)]
        for name in gather.set_anew:
            self._cover(scope.lookup(name), position)

    def _joined_already(self, record: CallRecord) -> None:
        """A gather that the script itself assigns."""
        statement = record.unit.names.statement(record.node)
        for node in descendants(statement):
            value = node.value if isinstance(node, cst.Assign) else None
            if isinstance(value, cst.Subscript):
                value = value.value  # broadcast_object_list([name])[0]
            if isinstance(node, cst.Assign) and value is record.node:
                for target in nodes_in(node.targets[0].target, cst.Name):
                    self._cover(record.unit.names.binding(target), record.unit.names.end(statement))

    def _cover(self, binding: Binding | None, position: int) -> None:
        if binding is not None:
            self._covered.setdefault(binding, []).append(position)

    def covers(self, unit: Unit, binding: Binding, read: cst.Name) -> bool:
        """Whether a variable was gathered before a read, and not set again in between."""
        order, statement = unit.names.order, unit.names.statement
        for position in self._covered.get(binding, ()):
            if position < order(read):
                between = [d for d in binding.definitions if position < order(d) < order(read)]
                if all(statement(d) is statement(read) for d in between):  # output = output.float() reads it first
                    return True
        return False


def is_joining(record: CallRecord) -> bool:
    """
    Whether a call gives all processes the same: a method of the accelerator, a function of its package, or the result
    of a metric that joins the processes by itself.
    """
    name = method_name(record.node)
    method = name in process_calls.joining() and bool(origins(record.receiver, Role.ACCELERATOR))
    made = record.receiver.things if record.receiver is not None and name in ("compute", "aggregate") else ()
    joined = any(isinstance(t, Unknown) and process_calls.joins_processes(t.qualified) for t in made)
    return method or joined or process_calls.joins_values(outside_name(record))


def is_joint_step(record: CallRecord) -> bool:
    """Whether a call is a step of a prepared optimizer: what that returns of a closure is the loss of all processes."""
    return method_name(record.node) == "step" and bool(origins(record.receiver, Role.OPTIMIZER))
