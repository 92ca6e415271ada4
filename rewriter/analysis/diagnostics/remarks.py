"""
Remarks on the training itself: what becomes another computation when each process sees its shard of the batch, and
hand-made precision that cannot be carried over. They change nothing in the text.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.roles import SHARES, Origin, Role
from ...facts.torch_api.surroundings import writing_methods
from ...findings import Cause, Finding, Severity
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import CallRecord, External, Function, State, Unit, Unknown, origins
from ..effects.existing_guards import guarded
from ..layouts.engine.layout import Partial, Unclear, held
from ..layouts.loss_reductions import backward_layout
from ..layouts.losses import weighted_mean
from ..syntax.definitions import bindings_value, nodes_behind
from ..syntax.nodes import is_none
from ..training.gradient_path import backward_operand
from ..training.training import Training
from .batch_norms import batch_norms
from .batch_statistics import compares_with_batch
from .process_memory import memories
from .replaced_code import replaced_code


def remarks(state: State, unit: Unit, reach: Reach, training: Training, *, split: bool = False) -> Iterator[Finding]:
    """All remarks on one module."""
    yield from batch_norms(state, unit, reach, training)
    yield from _masked_means(state, unit, training)
    pairs = [*_pairs(state, unit, reach, training)]
    yield from pairs or _statistics(state, unit, training, split=split)
    yield from memories(state, unit, reach, training)
    yield from of_apex(state, unit)
    yield from _unstepped(state, unit, reach)
    yield from _unseen_savers(state, unit, reach)
    yield from replaced_code(state, unit, reach)


def _masked_means(state: State, unit: Unit, training: Training) -> Iterator[Finding]:
    """Losses that are no mean and no sum over the rows: of those that are chosen, divided by a sum of the batch,
    ``(loss * mask).sum() / mask.sum()``, or changed by a root. One finding."""
    for record in training.backwards:
        for part in held(backward_layout(state, record)) if record.unit is unit else ():
            if isinstance(part, Unclear) and part.bent:
                chosen = "if another loss is chosen, or " if part.otherwise else ""
                yield Finding(
                    "weighted-mean",
                    part.node if part.node in unit.names.parents else record.node,
                    "this loss takes a logarithm, a root or another function that is not linear of a sum or mean over "
                    "the batch: each process uses its own shard, so the result is close to the original's but not "
                    "equal to it",
                    f"no action needed {chosen}if close is good enough; otherwise keep this script on one device",
                    cause=Cause(part.node, part.reason),
                    case="not-linear",
                )
                return
            if isinstance(part, Partial) and part.uneven:
                yield weighted_mean(record.node, part.uneven)._replace(part=backward_operand(record))
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


def _pairs(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Finding]:
    """Products or differences of all rows of a batch with all rows: contrastive losses, minibatch discrimination."""
    loops = training.train_loops
    for node in unit.names.every(cst.BinaryOperation, cst.Call):
        if not any(reach.is_run_in(loop, node) for loop in loops):
            continue
        sides = _product(node)
        joined = sides is not None and all(origins(state.values.get(side), Role.OUTPUT) for side in sides)
        joined = joined or (sides is not None and _is_normalised(unit, sides[0]))
        if joined or _is_difference_of_rows(state, unit, node):
            yield Finding(
                "in-batch-pairs",
                node,
                "this loss compares rows within a batch: on N processes each row is compared only with the rows of its "
                "own shard, not with the whole batch",
                "increase the batch size, or gather the other side with its gradient and shift the labels by "
                "accelerator.process_index * len(batch)",
                case="pairs",
            )
            return


def _statistics(state: State, unit: Unit, training: Training, *, split: bool) -> Iterator[Finding]:
    """Rows beside a mean of their batch: the loss of a relativistic discriminator. ``split``: the processes share the
    script's batches."""
    for record in training.backwards:
        for where, node in _followed(state, unit, record) if record.unit is unit else ():
            if compares_with_batch(state, record, where, node):
                text = where.names.one_line(node)
                yield Finding(
                    "in-batch-pairs",
                    node if where is unit else record.node,
                    f"this loss is computed from `{text}`, which compares each row with a figure of its whole batch, "
                    "such as a mean: on N processes that is a figure of the rows of one process",
                    "no action needed: each process takes a batch of the script's size, unless --keep-global-batch is "
                    "given"
                    if not split
                    else "increase the batch size, or compute the figure from all rows: accelerator.reduce(...) gives "
                    "their mean where no gradient flows through it",
                    Severity.REVIEW if split else Severity.NOTE,
                    case="figure",
                )
                return


def _is_difference_of_rows(state: State, unit: Unit, node: cst.CSTNode) -> bool:
    """``x.unsqueeze(1) - x.unsqueeze(0)``, ``x[:, None] - x[None]``, ``torch.cdist(x, x)``."""
    if isinstance(node, cst.Call):
        names = [arg.value for arg in node.args[:2] if isinstance(arg.value, cst.Name)]
        same = len(names) == 2 and names[0].value == names[1].value and method_name(node) == "cdist"
        return same and bool(origins(state.values.get(names[0]), *SHARES))
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Subtract):
        return False
    if not all(origins(state.values.get(side), *SHARES) for side in (node.left, node.right)):
        return False  # positions, anchors
    left, right = _spread(unit, node.left), _spread(unit, node.right)
    return left is not None and right is not None and left[0] == right[0] and left[1] is not right[1]


def _spread(unit: Unit, node: cst.BaseExpression) -> tuple[str, bool] | None:
    """The variable that an expression gives another dimension, and whether that dimension comes before its rows."""
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    values = bindings_value(unit.names, binding) if binding is not None else []
    part: cst.BaseExpression = values[0] if len(values) == 1 else node
    found, front = False, False
    while isinstance(part, (cst.Call, cst.Subscript)):
        if isinstance(part, cst.Subscript):
            empty = [i for i, e in enumerate(part.slice) if isinstance(e.slice, cst.Index) and is_none(e.slice.value)]
            found, front = found or bool(empty), front or 0 in empty
            part = part.value
            continue
        if not isinstance(part.func, cst.Attribute):
            return None
        if part.func.attr.value == "unsqueeze" and part.args:
            place = part.args[0].value
            found, front = True, front or (isinstance(place, cst.Integer) and place.evaluated_value == 0)
        part = part.func.value
    return (part.value, front) if found and isinstance(part, cst.Name) else None


def _product(node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The factors of a matrix product whose second one is transposed."""
    sides: tuple[cst.BaseExpression, cst.BaseExpression] | None = None
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
        sides = node.left, node.right
    elif isinstance(node, cst.Call) and method_name(node) in ("mm", "matmul"):
        values = [arg.value for arg in node.args if arg.keyword is None]
        if isinstance(node.func, cst.Attribute) and len(values) == 1:
            values.insert(0, node.func.value)
        sides = (values[0], values[1]) if len(values) == 2 else None
    return sides if sides is not None and _is_transposed(sides[1]) else None


def _is_normalised(unit: Unit, node: cst.BaseExpression) -> bool:
    """``z = F.normalize(z)``: rows whose products are their similarities, whoever has made them."""
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    values = bindings_value(unit.names, binding) if binding is not None else []
    return any(isinstance(value, cst.Call) and method_name(value) == "normalize" for value in values)


def _is_transposed(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Attribute):
        return node.attr.value == "T"
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    sizes = [a.value.evaluated_value for a in node.args if isinstance(a.value, cst.Integer)]
    return node.func.attr.value == "t" or (node.func.attr.value in ("transpose", "permute") and set(sizes) == {0, 1})


def of_apex(state: State, unit: Unit) -> Iterator[Finding]:
    """What apex does to a model, beside the accelerator: asked of scripts that distribute themselves, too."""
    for call in unit.names.calls:
        record = state.calls.get(call)
        names = [t.qualified for t in record.callees if isinstance(t, External)] if record is not None else []
        if any(name.startswith("apex.amp.") for name in names):
            yield Finding(
                "apex",
                call,
                "apex patches the model and the optimizer and scales the loss itself: its effect on a prepared model "
                "and optimizer is not known",
                "use torch.autocast and torch.amp.GradScaler instead; they are migrated",
                Severity.BLOCKED,
                case="amp",
            )
            return
        if "apex.parallel.DistributedDataParallel" in names:
            yield Finding(
                "apex",
                call,
                "this wrapper of apex averages the gradients, and the accelerator would average them as well",
                "use torch.nn.parallel.DistributedDataParallel instead; it is migrated",
                Severity.BLOCKED,
                case="ddp",
            )
            return


def _unstepped(state: State, unit: Unit, reach: Reach) -> Iterator[Finding]:
    """A scaler that scales the loss, and never steps: the original steps on scaled gradients."""
    uses = state.once(_uses_of_scalers, lambda: _uses_of_scalers(state, reach))
    if "scale" in uses and "step" not in uses and uses["scale"].unit is unit:
        yield Finding(
            "unstepped-scaler",
            uses["scale"].node,
            "the loss is scaled, but no scaler.step(optimizer) removes the scale again; the migrated script keeps this "
            "behaviour of the original",
            "step with the scaler: scaler.step(optimizer), scaler.update()",
        )


def _uses_of_scalers(state: State, reach: Reach) -> dict[str, CallRecord]:
    """The methods of scalers that the program calls, each with its first call."""
    uses: dict[str, CallRecord] = {}
    for record in state.calls.values():
        if origins(record.receiver, Role.SCALER) and reach.function_of(record.node) in reach.reachable:
            uses.setdefault(method_name(record.node), record)
    return uses


def _unseen_savers(state: State, unit: Unit, reach: Reach) -> Iterator[Finding]:
    """Objects of other packages that are given the model and save it: early stopping, checkpoint callbacks."""
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None or unit.names.function(call) not in reach.reachable:
            continue
        names = [t.qualified for t in record.callees if isinstance(t, Unknown)]
        saves = any("stop" in n.lower() or "checkpoint" in n.lower() for n in names)
        if saves and any(origins(state.values.get(arg.value), Role.MODEL) for arg in call.args):
            yield Finding(
                "once",
                call,
                f"{names[0].rpartition('.')[2]} is defined outside this program: if it saves the model, every process "
                "writes the file",
                "migrate the module that defines it as well, or call it on the main process and broadcast its result",
                case="outside-code",
            )
            return
        if _saves_itself(state, record) and not guarded(state, unit, call):
            yield Finding(
                "once",
                call,
                f"nothing that was found in this program defines this {method_name(call)}: if it writes a file, every "
                "process writes it",
                "call it on the main process: if accelerator.is_main_process",
                case="outside-code",
            )
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
