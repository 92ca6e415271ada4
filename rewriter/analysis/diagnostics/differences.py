"""What the processes compute differently from one process by its nature: loss means of means, and numpy's noise."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.diagnostics import SameNoise, SameRows
from ...facts.reasons.losses import WeightedMean
from ...facts.roles import Origin, Role
from ...facts.torch_api import randomness
from ...facts.torch_api.kinds.training import Collate, Criterion, Loss
from ...facts.torch_api.loading import transfer
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.constant_values import constants_of
from ..dataflow.constants import Values
from ..dataflow.values import CallRecord, Function, State, Unit, origins
from ..effects.existing_guards import guarded
from ..layouts.engine.layout import ShardSize, held, varies
from ..layouts.loop_layouts import layouts_of
from ..layouts.loss_reductions import reduction_of
from ..syntax.nodes import dotted, keyword
from ..syntax.walk import descendants
from ..training.draws import compiled
from ..training.row_code import has_workers, loaders_of
from ..training.training import Training
from .own_streams import own_stream


def weighted(state: State, reach: Reach, training: Training) -> Iterator[tuple[Unit, Reason]]:
    """Losses that are normalised by something else than the number of rows."""
    seen: set[cst.CSTNode] = set()
    for record in training.backwards:
        for loss in _losses(state, record):
            made_by, names = divisors(state, reach, loss)
            if names and made_by is not None and made_by.node not in seen:
                made = state.calls.get(loss.node) if isinstance(loss.node, cst.Call) else None
                if made is not None and reduction_of(state, made.unit, made.node) == "sum":
                    continue  # a sum of weighted rows is the sum of what the processes add up
                seen.add(made_by.node)
                yield made_by.unit, WeightedMean(made_by.node, f"normalises this loss by its own {names[0]}")


def _losses(state: State, record: CallRecord) -> Iterator[Origin]:
    """The losses from which a backward pass starts, those included that the forward pass of a model returns."""
    for slot in (record.receiver, record.first):
        yield from origins(slot, Role.LOSS)
        for output in origins(slot, Role.OUTPUT):
            klass = state.klass.get(output.source) if output.source is not None else None
            forward = klass.method("forward") if klass is not None else None
            for returned in forward.unit.names.returns.get(forward.node, ()) if forward is not None else ():
                for node in descendants(returned.value) if returned.value is not None else ():
                    yield from origins(state.values.get(node), Role.LOSS) if isinstance(node, _GIVING) else ()


_GIVING = (cst.Name, cst.Call)


def divisors(state: State, reach: Reach, loss: Origin) -> tuple[CallRecord | None, list[str]]:
    """The call that says by what a loss divides, which makes it or its criterion, and its arguments that do."""
    maker = loss.source.node if loss.source is not None and loss.source.role is Role.CRITERION else loss.node
    made = state.calls.get(maker) if isinstance(maker, cst.Call) else None
    return made, _normalisers(state, reach, made, _kind(loss, made)) if made is not None else []


def _kind(loss: Origin, made: CallRecord) -> Loss | Criterion:
    """What the tables say of a loss; of one that they do not have, that its arguments have names."""
    if loss.source is not None and loss.source.role is Role.CRITERION:
        return transfer(loss.source.qualified, Criterion) or Criterion()
    return transfer(outside_name(made), Loss) or Loss()


def _normalisers(state: State, reach: Reach, record: CallRecord, kind: Loss | Criterion) -> list[str]:
    """By which of its arguments a loss may divide, beside the number of rows; those that it leaves out where the
    program says so, or has targets of that class."""
    asked = {"weight": kind.weight, "ignore_index": kind.ignored}
    found = {name: constants_of(state).argument(record.unit, record.node, name, at) for name, at in asked.items()}
    if (
        kind.ignored is not None
        and found["ignore_index"] in _NOTHING
        and (any(map(_leaves_out, reach.units)) or any(map(_is_left_out_by, state.calls.values())))
    ):
        return ["ignore_index (-100)"]
    return [name for name, values in found.items() if values not in _NOTHING]


def _leaves_out(unit: Unit) -> bool:
    """Whether a module has the number of the class that losses of torch leave out where they are not told another."""
    signs = (n for n in unit.names.parents if isinstance(n, cst.UnaryOperation) and isinstance(n.operator, cst.Minus))
    return any(isinstance(sign.expression, cst.Integer) and sign.expression.value == "100" for sign in signs)


def _is_left_out_by(record: CallRecord) -> bool:
    """Whether a call makes a collate function that gives targets of that class: a language model's, where it pads."""
    collate = transfer(outside_name(record), Collate)
    return collate is not None and collate.leaves_out


_NOTHING: tuple[Values, ...] = (frozenset(), frozenset({None}))


def same_rows(state: State, unit: Unit, reach: Reach) -> Iterator[Reason]:
    """Data sets that choose rows, or something else for their rows, by Python's or NumPy's generator: all processes
    choose the same."""
    for klass in unit.classes.values():
        getter = klass.method("__getitem__")
        if getter is None or getter.unit is not unit:
            continue
        if own_stream(state, reach, klass, getter) is not None:
            continue
        for node in descendants(getter.node):
            record = state.calls.get(node) if isinstance(node, cst.Call) else None
            if record is None or not randomness.draws_alike(outside_name(record)):
                continue
            if constants_of(state).never(unit, record.node):
                continue
            chosen = chosen_from(unit, record.node)
            if chosen is None:
                continue
            container = "" if _holds_rows(unit, getter, chosen) else unit.names.module.code_for_node(chosen)
            loaders = list(loaders_of(state, klass))
            drawn = randomness.draws(outside_name(record))
            generator = drawn.generator if drawn is not None else ""
            seeds = (_seeds_workers(state, reach, loader, generator) for loader in loaders)
            seeding = next((seed for seed in seeds if seed is not None), None)
            if seeding is not None or not loaders or not all(has_workers(loader, state) for loader in loaders):
                spelled = _spelled(seeding) if seeding is not None else ""
                usual = bool(loaders) and all(has_workers(loader, state, usual=True) for loader in loaders)
                yield SameRows(node, klass.node.name.value, container, spelled, workers=usual)
            break


def _holds_rows(unit: Unit, getter: Function, container: cst.BaseExpression) -> bool:
    """Whether something has the rows of a data set: the data set itself, what ``__getitem__`` reads by its index, or
    whatever it chooses from where it does not use the index."""
    scope, params = unit.names.scopes[getter.node], getter.node.params.params
    index = scope.bindings.get(params[1].name.value) if len(params) > 1 else None
    if index is None or (isinstance(container, cst.Name) and container.value == params[0].name.value):
        return True
    given, size = {index}, 0
    while size < len(given):  # ``row = index // 2``
        size = len(given)
        reads = [read for binding in given for read in binding.reads]
        around = (assign for read in reads for assign in unit.names.enclosing(read, cst.Assign))
        targets = (t.target for assign in around if isinstance(assign, cst.Assign) for t in assign.targets)
        names = (unit.names.binding(target) for target in targets if isinstance(target, cst.Name))
        given.update(binding for binding in names if binding is not None)
    taken = [a for read in reads for a in unit.names.enclosing(read, cst.SubscriptElement, cst.Arg)]
    indexed = (unit.names.parents.get(a) for a in taken if isinstance(a, cst.SubscriptElement))
    return not taken or any(isinstance(s, cst.Subscript) and s.value.deep_equals(container) for s in indexed)


def _seeds_workers(state: State, reach: Reach, loader: CallRecord, generator: str) -> cst.Call | None:
    """The call by which a loader's `worker_init_fn` seeds a generator, Python's or NumPy's, alike on all processes."""
    given = keyword(loader.node, "worker_init_fn")
    held = state.values.get(given) if given is not None else None
    for thing in held.things if held is not None else ():
        run = list(reach.runs(thing.node.body, thing.unit)) if isinstance(thing, Function) else []
        if any(map(_differs, run)):
            continue
        for node in run:
            record = state.calls.get(node) if isinstance(node, cst.Call) else None
            if record is not None and randomness.seeds(outside_name(record)) == generator:
                return record.node
    return None


def _differs(node: cst.CSTNode) -> bool:
    """Whether something differs between processes: what torch seeds a worker with, or what the generators are in that
    it has seeded by then; or the number of the process."""
    word = node.attr.value if isinstance(node, cst.Attribute) else node.value if isinstance(node, cst.Name) else ""
    return (
        word in ("initial_seed", "get_worker_info", "get_state", "getstate")
        or "rank" in word
        or word.endswith("process_index")
    )


def _spelled(call: cst.Call) -> str:
    return dotted(call.func)


def chosen_from(unit: Unit, draw: cst.Call) -> cst.BaseExpression | None:
    """What a drawn number is an index of, by itself or by the name that it gets; None where it is no index."""
    places: list[cst.CSTNode] = [draw]
    assign = next(unit.names.enclosing(draw, cst.Assign), None)
    target = assign.targets[0].target if isinstance(assign, cst.Assign) else None
    binding = unit.names.binding(target) if isinstance(target, cst.Name) else None
    places += binding.reads if binding is not None else ()
    for place in places:
        for element in unit.names.ancestors(place):
            subscript = unit.names.parents.get(element) if isinstance(element, cst.SubscriptElement) else None
            if isinstance(subscript, cst.Subscript):
                return subscript.value
    return None


def same_noise(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Reason]:
    """Draws of numpy's generator in a training step: alike on all processes."""
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None or unit.names.function(call) not in reach.reachable or guarded(state, unit, call):
            continue
        drawn = randomness.draws(outside_name(record))
        if (
            drawn is not None
            and drawn.generator == "numpy"
            and (drawn.size is None or _draws_several(call, drawn.size) or _is_repeated(reach, unit, call))
            and any(loop in training.train_loops for loop in reach.batch_loops(call, unit))
            and not compiled(state, unit, call)
            and not _has_own_bounds(state, unit, call)
        ):
            yield SameNoise(call)


def _draws_several(call: cst.Call, position: int) -> bool:
    """Whether a draw is asked for more than one number: that of ``np.random.rand(1)`` is for the whole batch."""
    size = keyword(call, "size", position)
    return size is not None and not (isinstance(size, cst.Integer) and size.value == "1")


def _is_repeated(reach: Reach, unit: Unit, call: cst.CSTNode, seen: frozenset[cst.CSTNode] = frozenset()) -> bool:
    """Whether a call may run several times for one batch, as for each of its rows: in a loop below that over batches,
    seen through the callers of its function."""
    around = [loop for loop in reach.loops(call, unit) if not _goes_along_columns(unit, loop)]
    if around:
        return not reach.state.loaders.get(around[0])
    sites = reach.sites(unit.names.function(call))
    units = reach.state.calls
    return any(s not in seen and _is_repeated(reach, units[s].unit, s, seen | {s}) for s in sites)


def _goes_along_columns(unit: Unit, loop: cst.CSTNode) -> bool:
    """Whether the number that a loop counts is an index of columns, ``target[:, step]``, and of no rows: what is drawn
    in a turn is for the whole batch."""
    counter = loop.target if isinstance(loop, (cst.For, cst.CompFor)) else None
    binding = unit.names.binding(counter) if isinstance(counter, cst.Name) else None
    firsts: list[cst.BaseSlice] = []
    for read in binding.reads if binding is not None else ():
        element = next(unit.names.enclosing(read, cst.SubscriptElement), None)
        around = unit.names.parents.get(element) if element is not None else None
        if isinstance(around, cst.Subscript):
            firsts.append(around.slice[0].slice)
    return bool(firsts) and all(isinstance(f, cst.Slice) and f.lower is f.upper is None for f in firsts)


def _has_own_bounds(state: State, unit: Unit, call: cst.Call) -> bool:
    """Whether a draw is given what each process computes from its own rows: then its numbers differ. As many rows all
    of them have."""
    around = layouts_of(state).around(unit, call)
    given = [part for layouts in around for arg in call.args for part in held(layouts.container(arg.value))]
    return any(varies(layout) and not isinstance(layout, ShardSize) for layout in given)
