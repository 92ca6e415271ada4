"""
Rows that a script takes from a data set itself, and combines with what a loader yields: ``torch.equal(x, data[i][0])``.

On one device both are where the data set keeps its rows. A prepared loader yields its batches on the device, while the
data set gives its rows where they were: they follow the batch, ``data[i][0].to(x.device)``, wherever either is.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.placement import Move, Placement
from ...facts.reasons import Reason
from ...facts.reasons.devices import RowAtRest
from ...facts.roles import TENSORS
from ...facts.torch_api.kinds import tensors, training
from ...facts.torch_api.loading import row
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import CallRecord, State, Unit, Unknown, origins
from ..syntax.definitions import plain_values
from ..syntax.walk import nodes_in
from .host_tensors import PLAIN, moved_before, on_host, operands
from .moves import Mover

_TENSORS_ALONE = ("equal", "allclose", "isclose", "dist", "cosine_similarity", "pairwise_distance")
"""Operations that take no numbers, beside products, losses and what joins tensors."""

_COMPARED = (cst.Equal, cst.NotEqual, cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual)


def rows_at_rest(mover: Mover, unit: Unit) -> Iterator[Placement | Reason]:
    """
    The rows of a data set that meet a batch on the device, in one module.

    Yields:
        A move to the batch's device for what is certainly a tensor; a finding for what may be a number as well.
    """
    if mover.existing:
        return
    rests = mover.made_on_host.rests
    for node in unit.names.every(cst.Call, cst.Comparison, cst.BinaryOperation, cst.Subscript):
        if isinstance(node, cst.Subscript):
            yield from _indices(mover, unit, node)
            continue
        if not _computes(mover, node):
            continue
        values = [value for value in _operands(node) if isinstance(value, PLAIN)]
        rows = [value for value in values if rests(unit, value)] if len(values) > 1 else []
        batch = next((v for v in values if v not in rows and _as_it_comes(mover, unit, v)), None) if rows else None
        if batch is None:
            continue
        certain, plain = _takes_tensors(mover.state, node), not any(nodes_in(batch, cst.Call))
        for value in rows:
            if certain and plain:
                because = "{} is a row of a data set, and is combined with what the loader yields on the device"
                yield Placement(value, Move.PLACE, because, spare=True, beside=batch)
            elif certain or (
                mover.made_on_host.always_rests(unit, value)
                and not (_is_label(unit, value) or _is_number(mover.state, value))
            ):
                yield RowAtRest(value, unit.names.one_line(value), unit.names.one_line(batch))


def _operands(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """What an operation, a function or a method of a tensor works on together."""
    yield from operands(node)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        yield node.func.value


def _computes(mover: Mover, node: cst.CSTNode) -> bool:
    """Whether tensors are computed with one another: by an operator, a function of torch or a method of a tensor."""
    record = mover.state.calls.get(node) if isinstance(node, cst.Call) else None
    if isinstance(node, cst.Call):
        known = row(_full_name(record)) if record is not None and not mover.reach.called(node) else None
        return known is not None and not isinstance(known.transfer, tensors.Convert)  # `x.to(device)` joins nothing
    return not isinstance(node, cst.Comparison) or all(
        isinstance(each.operator, _COMPARED) for each in node.comparisons
    )


def _full_name(record: CallRecord) -> str:
    """The name of a function of torch, or of a method of a tensor; empty for any other."""
    name = outside_name(record)
    if name:
        return name if name.startswith("torch.") else ""
    return f"torch.Tensor.{method_name(record.node)}" if isinstance(record.node.func, cst.Attribute) else ""


def _takes_tensors(state: State, node: cst.CSTNode) -> bool:
    """Whether an operation takes tensors alone, and no numbers."""
    if isinstance(node, cst.BinaryOperation):
        return isinstance(node.operator, cst.MatrixMultiply)
    record = state.calls.get(node) if isinstance(node, cst.Call) else None
    if record is None:
        return False
    name = _full_name(record)
    known = row(name)
    kinds = (tensors.Concat, tensors.Product, training.Loss)
    return name.rpartition(".")[2] in _TENSORS_ALONE or (known is not None and isinstance(known.transfer, kinds))


def _as_it_comes(mover: Mover, unit: Unit, node: cst.BaseExpression) -> bool:
    """Whether an expression may hold what a prepared loader yields, or a model gives, where that has put it."""
    if not isinstance(node, PLAIN) or on_host(mover, unit, node):
        return False
    held = origins(mover.state.values.get(node), *TENSORS)
    return any(o.source in mover.placed for o in held) and not moved_before(mover, unit, node)


def _indices(mover: Mover, unit: Unit, node: cst.Subscript) -> Iterator[Placement]:
    """The places in a batch at which a tensor of a data set is read: ``data.targets[rows]``."""
    if not isinstance(node.value, cst.Attribute) or not mover.made_on_host.rests(unit, node.value):
        return
    for element in node.slice:
        place = element.slice.value if isinstance(element.slice, cst.Index) else None
        if place is not None and _as_it_comes(mover, unit, place):
            yield Placement(place, Move.HOST, "it is on the device, and an index into a tensor of the data set")


def _is_number(state: State, node: cst.BaseExpression) -> bool:
    """``data.mean``: an attribute of a data set, of which nothing says that it is a tensor."""
    slot = state.values.get(node)
    made = [thing.qualified for thing in (slot.things if slot is not None else ()) if isinstance(thing, Unknown)]
    return isinstance(node, cst.Attribute) and not any(name.startswith("torch.") for name in made)


def _is_label(unit: Unit, node: cst.BaseExpression) -> bool:
    """``data[i][1]``, ``words["<eos>"]``: a number or a tensor of one, which may be on the CPU in any operation."""
    values = plain_values(unit.names, node) if isinstance(node, cst.Name) else ()
    return any(map(_is_entry, (node, *values)))


def _is_entry(node: cst.BaseExpression) -> bool:
    index = node.slice[0].slice if isinstance(node, cst.Subscript) and len(node.slice) == 1 else None
    place = index.value if isinstance(index, cst.Index) else None
    return isinstance(place, cst.SimpleString) or (isinstance(place, cst.Integer) and place.value != "0")
