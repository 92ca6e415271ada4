"""What the rows of the loaders' data are made of."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.values import CallRecord, State, Unit, origins
from ..syntax.nodes import keyword
from ..syntax.walk import descendants
from .tracing import Tracer

_INSIDE = (cst.Name, cst.Attribute, cst.Call)


def row_sources(state: State, reach: Reach) -> set[cst.CSTNode]:
    """
    The calls whose values the rows of loaders may be made of, as far back as they are seen.

    What the constructor of a data set runs is among them. Batches without a loader are those of the main process,
    whatever the others have drawn.
    """
    tracer, found, seen = Tracer(state, reach), set[cst.CSTNode](), set[cst.CSTNode]()
    pending: list[tuple[Unit, cst.CSTNode]] = [(record.unit, data) for record, data in _data_sets(state)]
    while pending:
        unit, node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if not isinstance(node, _INSIDE):
            pending += [(unit, below) for below in descendants(node) if isinstance(below, _INSIDE)]
            continue
        for source in tracer.sources(unit, node):
            if source.node is not node:
                if source.known:  # else a definition, not a value
                    pending.append((source.unit, source.node))
            elif isinstance(node, cst.Attribute):
                pending.append((unit, node.value))
            elif isinstance(node, cst.Call):
                found.add(node)
                pending += [(unit, arg.value) for arg in node.args]
                pending += [(unit, node.func.value)] if isinstance(node.func, cst.Attribute) else []
                if reach.called(node):
                    found.update(each for each in reach.runs(node, unit) if isinstance(each, cst.Call))
    return found


def _data_sets(state: State) -> Iterator[tuple[CallRecord, cst.BaseExpression]]:
    """The calls that make the loaders, and what each is given to read."""
    for record in state.calls.values():
        if any(origin.node is record.node for origin in origins(record.result, Role.LOADER)):
            data = keyword(record.node, "dataset", 0)
            if data is not None:
                yield record, data
