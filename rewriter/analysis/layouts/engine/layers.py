"""The layouts of what a layer of torch gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from ....facts.roles import Origin, Role
from ....facts.torch_api.kinds import training
from ....facts.torch_api.loading import row
from ...dataflow.constant_values import constants_of
from ...dataflow.values import State, origins
from ...syntax.nodes import keyword
from .arguments import Arguments
from .axes import moved, pattern
from .layout import (
    LABELLED,
    PADDED,
    REPLICATED,
    Layout,
    Made,
    Partial,
    Replicated,
    Several,
    Shard,
    ShardRow,
    Unclear,
    Whole,
    held,
    join_all,
    settled,
)
from .pointwise import pointwise
from .shapes import integer, position

_RECURRENT = frozenset("LSTM GRU RNN".split())

_LISTS = frozenset({"ModuleList", "ModuleDict", "Sequential"})
"""What holds layers: which of them is called is not known."""


def through_module(
    kind: training.ModelClass, qualified: str, made: cst.CSTNode, batch: int | None, given: Arguments
) -> Layout:
    """
    The layout of what a layer gives.

    Args:
        kind: the row of its class.
        qualified: the full name of its class.
        made: the call that constructs it.
        batch: of a layer over sequences the dimension of the rows, see `batch_dimension`.
        given: the arguments of the call that runs it.
    """
    operand = settled(given.operand(), given.node)
    everything = [settled(join_all(held(layout)), given.node) for layout in given.layouts()]
    bad = next((one for one in everything if isinstance(one, Unclear)), None)
    if bad is not None and not kind.own_loss:
        return bad
    if not any(isinstance(one, (Shard, ShardRow, Whole, Partial, Unclear)) for one in everything):
        return REPLICATED
    if kind.gives == "fields":
        return _fields(kind, everything, given)
    last = qualified.rpartition(".")[2]
    if isinstance(operand, Whole) and all(isinstance(one, (Whole, Replicated)) for one in everything):
        return Several((operand, operand)) if kind.gives == "output and state" else operand
    if isinstance(operand, ShardRow) and all(isinstance(one, (ShardRow, Replicated)) for one in everything):
        return Several((operand, operand)) if kind.gives == "output and state" else operand
    if not isinstance(operand, Shard):
        return Unclear("a layer is given something else than rows", given.node)
    if kind.rows == "unknown":
        return Unclear(f"what {qualified} does to the rows of a batch is not known", given.node)
    if kind.rows == "named":
        return _named(made, operand, given)
    if kind.rows == "sequence":
        return _sequence(kind, last, batch, operand, everything, given)
    if len(everything) > 1:
        together = pointwise(everything, given.node)
        if isinstance(together, Unclear):
            return together
    dim = _dimension_of_layer(kind, made, operand)
    if dim is None or (kind.rows == "first" and operand.dim != 0):
        layer = f"a layer of the {last}" if last in _LISTS else last
        return Unclear(f"{layer} works along the dimension in which the rows are", given.node)
    if last == "Embedding":
        least = max(operand.least, operand.dim + 1) + 1
        return replace(operand, rank=operand.rank + 1 if operand.rank is not None else None, least=least)
    if last == "Flatten":
        start = integer(keyword(made, "start_dim", 0)) if isinstance(made, cst.Call) else None
        return operand if start != 0 else replace(operand, dim=0, rank=None, least=0, merged=operand.dim > 0)
    if kind.gives == "output and state":
        return Several((operand, operand))
    return operand


def _fields(kind: training.ModelClass, everything: Sequence[Layout], given: Arguments) -> Layout:
    """What a model of transformers gives: ``model(**batch).logits``."""
    rows = next((one for one in everything if isinstance(one, Unclear)), None) or pointwise(everything, given.node)
    masked = len(given.plain) > 1 or not {"attention_mask", "**"}.isdisjoint(given.named)
    uneven = rows.uneven if isinstance(rows, Shard) and not (masked and rows.uneven == PADDED) else ""
    own: Layout = Unclear("how this model averages its own loss over the rows is not known", given.node)
    if kind.own_loss:
        own = Partial("mean", LABELLED if kind.own_loss == "labels" else uneven)
    if not isinstance(rows, Shard) or rows.dim:
        if not isinstance(rows, Unclear):
            rows = Unclear("a model is given something else than rows in the first dimension", given.node)
        return Several((own, rows, rows, rows), _FIELDS) if kind.own_loss else rows
    kept = Shard(0, merged=rows.merged, uneven=uneven, chosen=rows.chosen)
    return Several((own, kept, kept, kept), _FIELDS)


_FIELDS = ("loss", "logits", "last_hidden_state", "pooler_output")


def _named(made: cst.CSTNode, rows: Shard, given: Arguments) -> Layout:
    """``Rearrange("b h w c -> b c h w")``, ``Reduce("b h w c -> b c", "mean")``."""
    asked = keyword(made, "pattern", 0) if isinstance(made, cst.Call) else None
    if not isinstance(made, cst.Call) or (found := pattern(asked)) is None:
        return Unclear("the names of its dimensions are not written out", given.node)
    sizes = [arg.keyword.value for arg in made.args if arg.keyword is not None]
    how = keyword(made, "reduction", 1)
    operation = how.evaluated_value if isinstance(how, cst.SimpleString) else None
    return moved(rows, *found, sizes, operation if isinstance(operation, str) else None, given.node)


def _dimension_of_layer(kind: training.ModelClass, made: cst.CSTNode, rows: Shard) -> int | None:
    """The dimension of the rows, where a layer leaves it alone."""
    last = rows.dim >= rows.least - 1 if rows.rank is None else rows.dim == rows.rank - 1
    if kind.rows == "all but the last" and last and (rows.dim or rows.rank):
        return None
    if kind.rows == "along":
        asked = keyword(made, "dim", 0) if isinstance(made, cst.Call) else None
        number = integer(asked)
        if number is None:
            return rows.dim if asked is None and rows.rank == 2 and rows.dim == 0 else None
        return None if position(rows, number) == rows.dim else rows.dim
    return rows.dim


def batch_dimension(state: State, module: Origin, kind: training.ModelClass) -> int | None:
    """
    The dimension of the rows of a layer over sequences: the second, unless it is built with ``batch_first=True``, or
    repeats a layer that is.

    Returns:
        None if that is not known.
    """
    made = module.node
    record = state.calls.get(made) if isinstance(made, cst.Call) else None
    if record is None:
        return None
    if kind.repeats:
        layer = keyword(record.node, "encoder_layer", 0) or keyword(record.node, "decoder_layer")
        repeated = origins(state.values.get(layer), Role.MODEL) if layer is not None else []
        found = {_of_layer(state, one) for one in repeated}
        return found.pop() if len(found) == 1 else None
    first = constants_of(state).argument(record.unit, record.node, "batch_first", kind.batch_first)
    if first is None or len(first) > 1:
        return None
    return 0 if True in first else 1


def _of_layer(state: State, layer: Origin) -> int | None:
    """The dimension of the rows of a layer that another one repeats."""
    found = row(layer.qualified) if layer.qualified and layer not in state.klass else None
    kind = found.transfer if found is not None else None
    return batch_dimension(state, layer, kind) if isinstance(kind, training.ModelClass) else None


def _sequence(
    kind: training.ModelClass,
    last: str,
    batch: int | None,
    rows: Shard,
    everything: Sequence[Layout],
    given: Arguments,
) -> Layout:
    """A layer over sequences."""
    if batch is None:
        return Unclear("whether the batch comes first is not written out", given.node)
    if rows.dim != batch:
        moved = rows.dim > 0  # by the script, and not by a loader that gives steps first
        return Unclear(
            f"{last} reads the dimension of the rows as that of the steps of a sequence", given.node, joint=moved
        )
    whole = next((one for one in everything if isinstance(one, Whole)), None)
    if whole is not None:
        return Unclear("a state that is made for the whole batch meets this process's rows", given.node, whole)
    if last in _RECURRENT:
        states = [join_all(held(layout)) for layout in given.layouts()[1:]]
        for state in states:
            if isinstance(state, Made) and len(state.sizes) == 3 and state.node is not None:
                whole = Whole(state.node, state.sizes[1], 1)
                return Unclear("a state that is made for the whole batch meets this process's rows", given.node, whole)
            if isinstance(state, Replicated) and not state.neutral:
                return Unclear(
                    "whether the state of this layer has the rows of this process cannot be told", given.node
                )
            if isinstance(state, Shard) and state.dim != 1:
                return Unclear("the state of this layer has its rows in another dimension", given.node)
        rows = replace(rows, rank=3)
        state = replace(rows, dim=1, long=False)
        return Several((rows, Several((state, state)) if last == "LSTM" else state))
    rows = replace(rows, rank=3)
    return Several((rows, rows)) if kind.gives == "output and state" else rows
