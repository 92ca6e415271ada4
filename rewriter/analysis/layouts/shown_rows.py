"""Files that show rows of a batch as they are: those of the main process alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.effects import Effect, EffectKind
from ...facts.reasons import Reason
from ...facts.reasons.batches import ShownRows
from ...facts.roles import SHARES, TENSORS, Role
from ...facts.torch_api import surroundings
from ..dataflow.callees import made_names, method_name, outside_names
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value, unshadowed
from ..syntax.scopes import Binding
from ..syntax.walk import nodes_in
from .divergence import Equality


def one_share(state: State, unit: Unit, equality: Equality, effects: Iterable[Effect]) -> Iterator[Reason]:
    """Tensors of a batch that go into a file as they are: the file shows what the main process has of it."""
    for effect in effects:
        if effect.kind is not EffectKind.WRITE or effect.forward is not None:
            continue
        if any(n.value in ("onnx", "jit") for n in nodes_in(effect.node, cst.Name)):
            continue  # a batch to trace the model with
        names = equality.local_names(unit, effect.node)
        shown = [n for n in names if _is_shard(state, n) and _holds_rows(unit, equality, n)]
        if shown and not any(_is_number(unit, name) for name in shown):
            name = shown[0].value
            yield ShownRows(effect.node, name, filled=False, sample=_is_sample(state, unit, equality, effect.node))
            return
        filled = next((found for n in names if (found := _filled_with_rows(state, unit, equality, n))), None)
        if filled is not None:
            yield ShownRows(effect.node, filled, filled=True)
            return


def _is_sample(state: State, unit: Unit, equality: Equality, node: cst.CSTNode) -> bool:
    """Whether a step of the training writes a picture of its batch: for somebody to look at how it goes on."""
    loops = equality.reach.batch_loops(node, unit)
    trained = bool(loops) and all(loop in equality.training.train_loops for loop in loops)
    calls = (state.calls[call] for call in nodes_in(node, cst.Call) if call in state.calls)
    names = [name for record in calls for name in (*outside_names(record), *made_names(record))]
    return trained and any(map(surroundings.writes_picture, names))


def _is_shard(state: State, name: cst.Name) -> bool:
    """Whether a name holds rows of a batch, or what a model gave for some."""
    return any(o.role is not Role.LOSS for o in origins(state.values.get(name), *TENSORS))


def _holds_rows(unit: Unit, equality: Equality, name: cst.Name) -> bool:
    """Whether rows of a shard are in a name still, and not only in what was certainly replaced before it is read."""
    pending, seen = [name], set[cst.Name]()
    while pending:
        read = pending.pop()
        binding = unit.names.binding(read)
        if read in seen or binding is None or not equality.is_local(unit, read):
            continue
        seen.add(read)
        definitions = unshadowed(unit.names, binding, read)
        values = bindings_value(unit.names, binding, definitions)
        if len(values) < len(definitions):
            return True  # a loop, or a caller, gives it
        for value in values:
            behind = equality.local_names(unit, value)
            if not behind and equality.is_local(unit, value):
                return True  # it is drawn here
            pending += behind
    return False


def _filled_with_rows(state: State, unit: Unit, equality: Equality, name: cst.Name) -> str | None:
    """
    The container from which a table or a plot was made, and that is filled with values read off the rows of a batch.

    ``table[n]["x"] = out[k].item()``, and then ``frame = DataFrame(table)``. A list of losses is none.
    """
    pending, seen = [name], set[Binding]()
    while pending:
        read = pending.pop(0)
        binding = unit.names.binding(read)
        if binding is None or binding in seen:
            continue
        seen.add(binding)
        for value in _put_in(unit, equality, binding):
            found = origins(state.values.get(value), *SHARES)
            tensors = [o.source if o.role is Role.LOCAL and o.source is not None else o for o in found]
            if any(o.role is not Role.LOSS for o in tensors) and equality.is_local(unit, value):
                return read.value
        values = bindings_value(unit.names, binding)
        pending += [part for value in values for part in nodes_in(value, cst.Name)]
    return None


def _put_in(unit: Unit, equality: Equality, holder: Binding) -> Iterator[cst.BaseExpression]:
    """What a loop over the shards assigns to the entries of a variable."""
    for read in holder.reads:
        place: cst.CSTNode = read
        while isinstance(above := unit.names.parents.get(place), cst.Subscript) and above.value is place:
            place = above
        assign = unit.names.parents.get(above) if isinstance(above, cst.AssignTarget) else None
        around = unit.names.ancestors(read)
        if place is not read and isinstance(assign, cst.Assign) and not equality.shared.isdisjoint(around):
            yield assign.value


def _is_number(unit: Unit, name: cst.Name) -> bool:
    """Whether only a number is read off a tensor."""
    chain = [a for a in unit.names.ancestors(name) if isinstance(a, (cst.Attribute, cst.Call))][:4]
    words = {a.attr.value for a in chain if isinstance(a, cst.Attribute)} | {
        method_name(a) for a in chain if isinstance(a, cst.Call)
    }
    return not words.isdisjoint(("item", "size", "shape", "float", "len", "int"))
