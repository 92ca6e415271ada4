"""
Remarks on the training itself: what becomes another computation when each process sees its shard of the batch, and
hand-made precision that cannot be carried over. They change nothing in the text.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.diagnostics import (
    ApexAmp,
    ApexDdp,
    ComparedRows,
    ComparedWithBatch,
    NotLinear,
    OutsideSaver,
    RankedRows,
    UnknownSaver,
    UnsteppedScaler,
)
from ...facts.reasons.losses import WeightedMean
from ...facts.roles import Origin, Role
from ...facts.torch_api.surroundings import writing_methods
from ..dataflow.call_graph import Reach, reach_of
from ..dataflow.callees import method_name
from ..dataflow.values import CallRecord, External, Function, State, Unit, Unknown, origins
from ..effects.existing_guards import guarded
from ..layouts.engine.layout import Partial, Unclear, held
from ..layouts.loop_layouts import layouts_of
from ..layouts.loss_reductions import backward_layout
from ..syntax.definitions import nodes_behind
from ..training.gradient_path import backward_operand
from ..training.training import Training
from .batch_norms import batch_norms
from .batch_statistics import compares_with_batch
from .outdated import outdated
from .process_memory import memories
from .replaced_code import replaced_code


def remarks(state: State, unit: Unit, reach: Reach, training: Training, *, split: bool = False) -> Iterator[Reason]:
    """All remarks on one module."""
    yield from batch_norms(state, unit, reach, training)
    yield from _masked_means(state, unit, training)
    pairs = [*_pairs(state, unit, reach, training)]
    pairs = pairs or [*_ranked(state, unit, training, split=split)]
    yield from pairs or _statistics(state, unit, training, split=split)
    yield from memories(state, unit, reach, training)
    yield from of_apex(state, unit)
    yield from _unstepped(state, unit, reach)
    yield from _unseen_savers(state, unit, reach)
    yield from replaced_code(state, unit, reach)
    yield from outdated(state, unit, reach, training)


def _masked_means(state: State, unit: Unit, training: Training) -> Iterator[Reason]:
    """Losses that are no mean and no sum over the rows: of those that are chosen, divided by a sum of the batch,
    ``(loss * mask).sum() / mask.sum()``, or changed by a root. One finding."""
    for record in training.backwards:
        for part in held(backward_layout(state, record)) if record.unit is unit else ():
            if isinstance(part, Unclear) and part.bent:
                node = part.node if part.node in unit.names.parents else record.node
                yield NotLinear(node, part.node, part.reason, bool(part.otherwise))
                return
            if isinstance(part, Partial) and part.uneven:
                yield WeightedMean(record.node, part.uneven, backward_operand(record))
                return


def _behind(unit: Unit, record: CallRecord) -> Iterator[cst.CSTNode]:
    """The nodes of the expressions from which a backward pass starts, through variables."""
    return nodes_behind(unit.names, record.node)


def _followed(state: State, unit: Unit, record: CallRecord) -> Iterator[tuple[Unit, cst.CSTNode]]:
    """The same with the functions of the program, and the criteria, that a loss comes from."""
    pending: list[tuple[Unit, cst.CSTNode]] = [(unit, node) for node in _behind(unit, record)]
    seen: set[cst.CSTNode] = set()
    while pending:
        where, node = pending.pop(0)
        yield where, node
        made = state.calls.get(node) if isinstance(node, cst.Call) else None
        for function in _called(state, made) if made is not None else ():
            if function.node not in seen:
                seen.add(function.node)
                returned = (r.value for r in function.unit.names.returns.get(function.node, ()) if r.value is not None)
                for value in returned:
                    pending += [(function.unit, part) for part in nodes_behind(function.unit.names, value)]


def _called(state: State, record: CallRecord) -> Iterator[Function]:
    for thing in record.callees:
        klass = state.klass.get(thing) if isinstance(thing, Origin) else None
        function = thing if isinstance(thing, Function) else klass.method("forward") if klass is not None else None
        if function is not None:
            yield function


def _pairs(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Reason]:
    """Products, differences, comparisons of all rows of a batch with all rows: contrastive losses, minibatch
    discrimination."""
    loops, layouts = training.train_loops, layouts_of(state)
    for node in unit.names.every(cst.BinaryOperation, cst.Comparison, cst.Call):
        if not any(reach.is_run_in(loop, node) for loop in loops):
            continue
        around = [loop for loop in layouts.around(unit, node) if loop.ran(node)]
        given = (part for loop in around for part in held(loop.value(node)))
        if any(isinstance(one, Unclear) and one.paired and one.node is node for one in given):
            yield ComparedRows(node)
            return
        sides = _product(node)
        of_sides = [part for side in sides for loop in around for part in held(loop.value(side))]
        rows = bool(sides) and all(origins(state.values.get(side), Role.OUTPUT) for side in sides)
        if rows and any(isinstance(one, Unclear) for one in of_sides):  # halves of them, chosen by their place
            yield ComparedRows(node)
            return


def _product(node: cst.CSTNode) -> tuple[cst.BaseExpression, ...]:
    """The factors of a matrix product whose second one is transposed."""
    sides: list[cst.BaseExpression] = []
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
        sides = [node.left, node.right]
    elif isinstance(node, cst.Call) and method_name(node) in ("mm", "matmul"):
        sides = [arg.value for arg in node.args if arg.keyword is None]
        if isinstance(node.func, cst.Attribute) and len(sides) == 1:
            sides.insert(0, node.func.value)
    return tuple(sides) if len(sides) == 2 and _is_transposed(sides[1]) else ()


def _is_transposed(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Attribute):
        return node.attr.value == "T"
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    sizes = [a.value.evaluated_value for a in node.args if isinstance(a.value, cst.Integer)]
    return node.func.attr.value == "t" or (node.func.attr.value in ("transpose", "permute") and set(sizes) == {0, 1})


def _ranked(state: State, unit: Unit, training: Training, *, split: bool) -> Iterator[Reason]:
    """Rows that a loss takes by how large they are: the hardest of a batch."""
    for record in training.backwards:
        for part in held(backward_layout(state, record)) if record.unit is unit else ():
            if isinstance(part, Unclear) and part.ranked == "some":
                home = reach_of(state).unit_of(part.node, unit)
                text = home.names.one_line(part.node.with_changes(lpar=(), rpar=()))
                yield RankedRows(part.node if home is unit else record.node, text, split)
                return


def _statistics(state: State, unit: Unit, training: Training, *, split: bool) -> Iterator[Reason]:
    """Rows beside a mean of their batch: the loss of a relativistic discriminator. ``split``: the processes share the
    script's batches."""
    for record in training.backwards:
        for where, node in _followed(state, unit, record) if record.unit is unit else ():
            if compares_with_batch(state, record, where, node):
                text = where.names.one_line(node)
                yield ComparedWithBatch(node if where is unit else record.node, text, split)
                return


def of_apex(state: State, unit: Unit) -> Iterator[Reason]:
    """What apex does to a model, beside the accelerator: asked of scripts that distribute themselves, too."""
    for call in unit.names.calls:
        record = state.calls.get(call)
        names = [t.qualified for t in record.callees if isinstance(t, External)] if record is not None else []
        if any(name.startswith("apex.amp.") for name in names):
            yield ApexAmp(call)
            return
        if "apex.parallel.DistributedDataParallel" in names:
            yield ApexDdp(call)
            return


def _unstepped(state: State, unit: Unit, reach: Reach) -> Iterator[Reason]:
    """A scaler that scales the loss, and never steps: the original steps on scaled gradients."""
    uses = state.once(_uses_of_scalers, lambda: _uses_of_scalers(state, reach))
    if "scale" in uses and "step" not in uses and uses["scale"].unit is unit:
        yield UnsteppedScaler(uses["scale"].node)


def _uses_of_scalers(state: State, reach: Reach) -> dict[str, CallRecord]:
    """The methods of scalers that the program calls, each with its first call."""
    uses: dict[str, CallRecord] = {}
    for record in state.calls.values():
        if origins(record.receiver, Role.SCALER) and reach.function_of(record.node) in reach.reachable:
            uses.setdefault(method_name(record.node), record)
    return uses


def _unseen_savers(state: State, unit: Unit, reach: Reach) -> Iterator[Reason]:
    """Objects of other packages that are given the model and save it: early stopping, checkpoint callbacks."""
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None or unit.names.function(call) not in reach.reachable:
            continue
        names = [t.qualified for t in record.callees if isinstance(t, Unknown)]
        saves = any("stop" in n.lower() or "checkpoint" in n.lower() for n in names)
        if saves and any(origins(state.values.get(arg.value), Role.MODEL) for arg in call.args):
            yield OutsideSaver(call, names[0].rpartition(".")[2])
            return
        if _saves_itself(state, record) and not guarded(state, unit, call):
            classes = (klass for each in reach.units for klass in each.classes.values())
            owners = (c.node.name.value for c in classes if method_name(call) in c.unit.names.scopes[c.node].bindings)
            yield UnknownSaver(call, method_name(call), tuple(dict.fromkeys(owners)))
            return


def _saves_itself(state: State, record: CallRecord) -> bool:
    """``model.save(path)`` of a model whose class is chosen elsewhere: by a configuration, by another package."""
    name = method_name(record.node)
    if not record.node.args or not name.startswith("save") or name in writing_methods() or record.receiver is None:
        return False
    models = origins(record.receiver, Role.MODEL)
    classes = (state.klass.get(model) for model in models)
    seen = any(klass is not None and klass.method(name) is not None for klass in classes)
    return bool(models) and not seen
