"""
Figures that leave the process are those of all rows, or a finding says whose they are: printed, logged, written, or
given to a scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.callees import made_names, method_name, outside_names
from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.values import Unit, origins
from ..analysis.layouts.epoch_quotients import RowTotals, datasets, division
from ..analysis.layouts.running_figures import is_logged, line_of
from ..analysis.syntax.nodes import dotted
from ..analysis.syntax.walk import children, nodes_in
from ..facts.effects import EffectKind
from ..facts.roles import Role
from ..facts.torch_api import surroundings
from .own_rows import OwnRows
from .program import EmittedProgram
from .row_labels import RowsOf
from .violation import Violation

TRAINING, EVALUATION, COUNTED = "training-figures", "evaluation-figures", "evaluated-batches"
"""What is shown of the rows that one process trains on, and of those that it evaluates; how many batches these are."""
DIVIDED = "divided-by-all"
"""What one process totals of its own rows, divided by the number of all rows."""
_LEAVE = (EffectKind.PRINT, EffectKind.CONSOLE, EffectKind.WRITE)


def shown(program: EmittedProgram) -> Iterator[Violation]:
    """The values that leave the process, and are computed from its own rows; each once in its function."""
    if not program.prepares:
        return
    rows: OwnRows | None = None
    told: set[tuple[cst.CSTNode, str]] = set()
    for unit in program.reach.units:
        for call in _leaving(program, unit):
            rows = rows or OwnRows(program)
            places = (place for arg in call.args for place in _figures(rows, unit, arg.value, frozenset()))
            for home, node in places:
                text, code = home.names.module.code_for_node(node), home.names.function(node)
                if (code, text) in told:
                    continue
                told.add((code, text))
                of = rows.of(home, node)
                kind = EVALUATION if RowsOf.EVALUATION in of else TRAINING if of else COUNTED
                yield Violation(kind, CodePlace(home, node), text)


def divided(program: EmittedProgram) -> Iterator[Violation]:
    """The quotients, after a loop over a prepared loader, of a total of own rows and the number of all rows; ``other``
    is the total."""
    state, reach = program.state, program.reach
    loaders = [o for loop in state.loaders for o in reach.loaders(loop) if o in program.prepared]
    counts = RowTotals(state, datasets(loaders))
    rows: OwnRows | None = None
    for unit in reach.units if loaders else ():
        for node in unit.names.every(cst.BinaryOperation, cst.AugAssign):
            sides = division(node)
            if sides is None or not counts.counts(sides[1]) or reach.batch_loops(node, unit):
                continue
            rows = rows or OwnRows(program)
            called = {call.func for call in nodes_in(sides[0], cst.Call)}  # `total.item()` is computed from `total`
            places = (n for n in nodes_in(sides[0], cst.Name, cst.Attribute) if n not in called)
            total = next((n for n in places if rows.of(unit, n)), None)
            if total is not None and unit.names.function(node) in reach.reachable:
                text = unit.names.one_line(node)
                yield Violation(DIVIDED, CodePlace(unit, node), text, CodePlace(unit, total))


def _leaving(program: EmittedProgram, unit: Unit) -> Iterator[cst.Call]:
    """The calls that print, log, draw or write, and those that give a figure to a scheduler."""
    found = {line_of(unit, effect): None for effect in program.outputs[unit].effects if effect.kind in _LEAVE}
    for call in unit.names.calls:
        record = program.state.calls.get(call)
        if record is None:
            continue
        ours = bool(origins(record.receiver, Role.ACCELERATOR)) and method_name(call) in ("print", "log")
        steers = method_name(call) == "step" and bool(origins(record.receiver, Role.SCHEDULER))
        drawn = any(map(surroundings.pictures, (*outside_names(record), *made_names(record))))
        if ours or steers or drawn or is_logged(program.state, call):
            found[call] = None
    reached = program.reach.reachable
    yield from (n for n in found if isinstance(n, cst.Call) and unit.names.function(n) in reached)


def _figures(
    rows: OwnRows, unit: Unit, node: cst.CSTNode, seen: frozenset[cst.CSTNode]
) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    """
    The variables and attributes in an argument that are computed from own rows.

    What a function shows for its callers, ``def log(text): print(text)``, is named as they give it.
    """
    if isinstance(node, cst.Name) or (isinstance(node, cst.Attribute) and dotted(node)):
        if rows.of(unit, node):
            given = [place for home, value in rows.handed(unit, node) if value not in seen
                     for place in _figures(rows, home, value, seen | {value})]  # fmt: skip
            yield from given or [(unit, node)]
        elif isinstance(node, cst.Name) and rows.counted(unit, node):
            yield unit, node
    elif isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name) and not rows.of(unit, node):
        return  # an entry of a table whose other entries are of own rows
    elif isinstance(node, cst.Call) and method_name(node) in ("len", "size"):
        return  # how many rows a batch has is no figure
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and rows.formats(unit, node):
        for part in (node.func.value, *(arg.value for arg in node.args)):
            yield from _figures(rows, unit, part, seen)
    elif not isinstance(node, cst.Call) or rows.formats(unit, node):
        for child in children(node):
            yield from _figures(rows, unit, child, seen)
