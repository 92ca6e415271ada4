"""
Where ``prepare`` is called and what it takes: once for each set of models and optimizers, in the code that holds them
by name, after everything it takes is built and loaded, before the first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.containers import members
from ..analysis.dataflow.own_iterators import own_iterator, stand_in
from ..analysis.dataflow.values import CallRecord, Klass, State, Unit, Unknown, origins
from ..analysis.devices.arrivals import arrivals
from ..analysis.devices.moved_batches import moved_batches, moves_tensors
from ..analysis.devices.use_before_prepare import Stands
from ..analysis.layouts.metrics import Evaluation
from ..analysis.syntax.walk import descendants
from ..analysis.training.schedules import horizon, tick_unit
from ..analysis.training.training import Training, held_optimizers, whole
from ..facts.accelerator import LoaderCopy, Prepare
from ..facts.module import Schedule
from ..facts.placement import Arrival
from ..facts.roles import Origin, Role
from ..findings import Finding, Severity
from .evaluation_findings import copied, of_one_share, unprepared
from .imported_tables import in_table
from .loader_copies import loader_copies
from .prepare_position import Held, given_on, place
from .prepared_names import as_argument, held_in, home_of
from .several_held import all_held, made_again, one_of_several


@dataclass(eq=False)
class PreparePlan:
    """The prepare calls of a program."""

    prepares: list[tuple[Unit, Prepare]] = field(default_factory=list)
    prepared: set[Origin] = field(default_factory=set)
    stands: dict[Origin, Stands] = field(default_factory=dict)
    findings: list[tuple[Unit, Finding]] = field(default_factory=list)
    schedules: list[tuple[Unit, Schedule]] = field(default_factory=list)
    arrivals: list[tuple[Unit, Arrival]] = field(default_factory=list)
    """Loops over what stays whole, whose batches nothing moves."""
    copies: list[tuple[Unit, LoaderCopy]] = field(default_factory=list)
    """Loaders of their own for evaluations that stay whole, beside a training that reads the same data."""
    copied: set[cst.CSTNode] = field(default_factory=set)
    """The loops that read them."""
    code: Code | None = None
    """The function (or module) in which the optimizers are held."""


def plan(
    state: State,
    reach: Reach,
    training: Training,
    evaluations: list[Evaluation],
    loaders: set[Origin] | None = None,
    of_one: frozenset[Origin] = frozenset(),
) -> PreparePlan:
    """
    Decide what is prepared where.

    Args:
        state: the solved program.
        reach: its call graph.
        training: what it trains.
        evaluations: its evaluations.
        loaders: those to prepare, where that is known already.
        of_one: schedulers that are as long as the batches of one process.
    """
    result = PreparePlan()
    wanted = _wanted(state, reach, training, evaluations, result, of_one)
    if loaders is not None:
        wanted = [o for o in wanted if o.role is not Role.LOADER]
        loops = (*training.train_loops, *training.eval_loops)
        iterated = dict.fromkeys(o for loop in loops for o in reach.loaders(loop))
        wanted += [o for o in iterated if o in loaders]
    done = _already(state).intersection(wanted)
    result.prepared.update(done)
    groups: dict[Code, list[Held]] = {}
    for origin in wanted:
        if origin in done:
            continue
        code, held = home_of(state, reach, training, origin)
        divided = _one_stays_whole(reach, evaluations, origin)
        looked_up = not divided and _looked_up_in_loops(reach, training, origin)
        lost = code is None or held is None or (looked_up and not in_table(held))
        if lost and not divided:
            _lost(reach, code, origin, result)
        elif held_too := all_held(state, reach, training, divided, code, held):
            assert code is not None
            groups.setdefault(code, []).extend(held_too)
        else:
            result.findings.append((reach.unit_of(origin.place, reach.units[0]), _which(origin)))
    _again(state, reach, training, groups)
    result.findings.extend(_unsharded(reach, [o for o in wanted if o not in done]))
    for code, things in groups.items():
        unit = reach.unit(code)
        calls, unplaced = place(state, reach, training, code, things)
        for call, held_by_it in calls:
            result.prepares.append((unit, call))
            result.prepared.update(held_by_it)
            for origin in held_by_it:
                result.stands.setdefault(origin, Stands(unit, call))
            result.code = result.code or code
        result.findings.extend((unit, _unplaceable(thing)) for thing in unplaced)
    late = {o for o in wanted if o.role is Role.SCHEDULER and o not in done and _asks_prepared(reach, o, result)}
    if late:
        return plan(state, reach, training, evaluations, loaders, of_one.union(late))
    return result


def _asks_prepared(reach: Reach, scheduler: Origin, planned: PreparePlan) -> bool:
    """Whether a scheduler is built with the lengths of loaders that are prepared by then: it is as long as the batches
    of this process, and is stepped once for each of them."""
    asked = [
        _is_asked_later(reach, planned, unit, length, loader)
        for unit, length in horizon(reach, scheduler)
        for loader in origins(reach.state.values.get(length.args[0].value), Role.LOADER)
        if loader in planned.prepared
    ]
    return bool(asked) and all(asked)


def _is_asked_later(reach: Reach, planned: PreparePlan, unit: Unit, length: cst.Call, loader: Origin) -> bool:
    """Whether the length of a loader is asked for after the loader is prepared, in each function that comes to both."""
    stands = planned.stands.get(loader)
    if stands is None:
        return True  # where it is made
    prepares = _ways(reach, stands.unit, stands.prepare.node)
    told: list[bool] = []
    for code, asks in _ways(reach, unit, length).items():
        made = prepares.get(code, [])
        if made and not any(ask is node for ask in asks for node in made):  # one call that comes to both says nothing
            order = reach.unit(code).names.order
            told += [order(ask) > order(node) for ask in asks for node in made]
            told += [not stands.follows(stands.unit, ask) for ask in asks if stands.prepare.node in made]
    return bool(told) and all(told)


def _ways(reach: Reach, unit: Unit, node: cst.CSTNode) -> dict[Code, list[cst.CSTNode]]:
    """What comes to a place in each function on the ways there: the place itself, and the calls that lead to it."""
    found: dict[Code, list[cst.CSTNode]] = {unit.names.function(node): [node]}
    pending = list(found)
    while pending:
        for site in reach.reached_sites(pending.pop()):
            code = reach.function_of(site.node)
            if code not in found:
                pending.append(code)
            found.setdefault(code, []).append(site.node)
    return found


def _again(state: State, reach: Reach, training: Training, groups: dict[Code, list[Held]]) -> None:
    """
    Let an optimizer's models be prepared with it also where other code prepares them.

    What a base class builds is one thing here for all of its subclasses: of ``self.model`` of each of several trainers
    nobody can tell which model it is, and one run makes an object of one of them. So is what a function builds for
    several that call it.
    """
    homes = {held.origin: code for code, things in groups.items() for held in things}
    for optimizer, code in list(homes.items()):
        for params in origins(state.related.get(optimizer), Role.PARAMETERS):
            model = whole(state, params.source) if params.source is not None else None
            home = homes.get(model) if model is not None else None
            if model is None or home is None or home is code:
                continue
            if _of_other_classes(reach, home, code):
                held = held_in(state, reach, training, code, model)
            else:
                there = [one for one in groups[home] if one.origin is model]
                held = made_again(state, reach, home, there, optimizer)
            if held is not None and all(held.name != other.name for other in groups[code]):
                groups[code].insert(0, held)


def _of_other_classes(reach: Reach, one: Code, other: Code) -> bool:
    """Whether no object has the methods of both: their classes are no bases of each other."""
    found: list[Klass] = []
    for code in (one, other):
        unit = reach.unit(code)
        around = (unit.classes.get(node) for node in unit.names.ancestors(code) if isinstance(node, cst.ClassDef))
        found += [klass for klass in list(around)[:1] if klass is not None]
    return len(found) == 2 and found[0] not in found[1].lineage() and found[1] not in found[0].lineage()


def _wanted(
    state: State,
    reach: Reach,
    training: Training,
    evaluations: list[Evaluation],
    result: PreparePlan,
    of_one: frozenset[Origin],
) -> list[Origin]:
    """Trained models, their optimizers, the loaders that are iterated, the schedulers stepped with the optimizer."""
    slots = (slot for record in training.steps for slot in (record.receiver, record.first))
    stepped = {optimizer for slot in slots for optimizer in held_optimizers(state, training, slot)}
    optimizers = [o for o in training.optimizers if o in stepped] or list(training.optimizers)
    for optimizer in optimizers:
        if not origins(state.related.get(optimizer), Role.PARAMETERS):
            unit = next(u for u in reach.units if optimizer.node in u.names.parents)
            result.findings.append((unit, _whose(optimizer)))
        result.findings.extend(_loose(state, reach, optimizer))
    idle = _models_of(state, (o for o in training.optimizers if o not in optimizers))
    models = [m for m in training.models if m not in idle or m in _models_of(state, optimizers)]
    loaders: dict[Origin, None] = {}
    for loop in training.train_loops:
        loaders.update(dict.fromkeys(reach.loaders(loop)))
    trained = set(loaders)
    by_script = _already(state)
    result.findings.extend(_stand_ins(reach, training) if not by_script else ())
    for evaluation in evaluations if not by_script else ():
        if evaluation.understood and (found := stand_in(reach, evaluation.loop)) is not None:
            why = "which no shard reaches" if found.known else "of which nothing is known"
            evaluation.leave(f"another call gives it {found.text}, {why}")
    _leave_whole(reach, evaluations, trained | by_script)
    moved = moved_batches(state, reach) if evaluations else frozenset()
    moving = bool(evaluations) and moves_tensors(state, reach)
    stays = {evaluation.loop for evaluation in evaluations if not evaluation.understood}
    for evaluation in evaluations:
        as_written = by_script.issuperset(evaluation.loaders) and trained.isdisjoint(evaluation.loaders)
        if evaluation.understood or as_written:  # what the script prepares is shared as its author wants
            loaders.update(dict.fromkeys(evaluation.loaders))
        elif all(o not in trained or one_of_several(reach, o) for o in evaluation.loaders):
            unit, loop = evaluation.unit, evaluation.loop
            coming = arrivals(state, unit, loop, evaluation.loaders, moved) if not by_script and not moving else []
            result.arrivals.extend((unit, one) for one in coming)
            if not evaluation.alone:
                comes = bool(coming) or moved.issuperset(evaluation.loaders)
                result.findings.append((evaluation.unit, unprepared(evaluation, comes)))
        elif not by_script and (copies := loader_copies(reach, evaluation, trained, stays)):
            result.copies.extend(copy for copy in copies if copy not in result.copies)
            result.copied.add(evaluation.loop)
            coming = [] if moving else arrivals(state, evaluation.unit, evaluation.loop, evaluation.loaders, moved)
            result.arrivals.extend((evaluation.unit, one) for one in coming)
            result.findings.append((evaluation.unit, copied(evaluation, copies)))
        elif not by_script:
            result.findings.append((evaluation.unit, of_one_share(evaluation)))
    schedulers = list(_schedulers(state, reach, training, result, of_one))
    return [*models, *optimizers, *loaders, *schedulers]


def _models_of(state: State, optimizers: Iterable[Origin]) -> set[Origin]:
    """The models whose parameters some optimizers hold."""
    held = (params for optimizer in optimizers for params in origins(state.related.get(optimizer), Role.PARAMETERS))
    return {whole(state, params.source) for params in held if params.source is not None}


def _unsharded(reach: Reach, wanted: list[Origin]) -> Iterator[tuple[Unit, Finding]]:
    """Loaders of a class of the script that makes its batches in a way that no shard reaches."""
    found = {iterator: reach.state.klass[o].node.name.value for o in wanted if (iterator := own_iterator(reach, o))}
    for iterator, klass in found.items():
        yield (
            iterator.unit,
            Finding(
                "prepare",
                iterator.node,
                f"{klass}.__iter__() takes its batches from no super().__iter__(): they cannot be divided among the "
                "processes, and each would read all rows",
                f"make a DataLoader in place of {klass}(...), with persistent_workers=True if its workers should live "
                "on from epoch to epoch; or let __iter__ iterate super().__iter__()",
                Severity.BLOCKED,
                case="own-loader",
            ),
        )


def _stand_ins(reach: Reach, training: Training) -> Iterator[tuple[Unit, Finding]]:
    """Trainings that one call gives a loader, and another an object of the script's own that gives batches."""
    for loop in training.train_loops:
        found = stand_in(reach, loop)
        if found is not None and found.known:
            unit = reach.unit_of(loop, reach.units[0])
            name = unit.names.module.code_for_node(found.name)
            yield (
                unit,
                Finding(
                    "prepare",
                    loop,
                    f"`{name}` is a DataLoader in one call and {found.text} in another, whose batches cannot be "
                    "divided among the processes: each would train on all of them",
                    f"make a DataLoader in place of {found.text}, or train with it in a script of its own",
                    Severity.BLOCKED,
                    case="own-loader",
                ),
            )


def _one_stays_whole(reach: Reach, evaluations: list[Evaluation], origin: Origin) -> bool:
    """Whether an evaluation leaves one of several loaders whole that one place makes."""
    return one_of_several(reach, origin) and any(not e.understood and origin in e.loaders for e in evaluations)


def _looked_up_in_loops(reach: Reach, training: Training, origin: Origin) -> bool:
    """Whether one of several loaders is looked up where a loop iterates it: ``for x, y in loaders["val"]:``. Each is
    then prepared where it is made."""
    loops = (*training.train_loops, *training.eval_loops)
    sources = (loop.iter for loop in loops if isinstance(loop, cst.For) and origin in reach.loaders(loop))
    looked_up = any(isinstance(node, cst.Subscript) for source in sources for node in descendants(source))
    return looked_up and one_of_several(reach, origin)


def _which(loader: Origin) -> Finding:
    return Finding(
        "prepare",
        loader.node,
        "several loaders are made here, and one of them must stay whole (see the evaluation loop): it cannot be told "
        "which of them the training reads",
        "make each of them in a statement of its own",
        Severity.BLOCKED,
        case="several",
    )


def _leave_whole(reach: Reach, evaluations: list[Evaluation], trained: set[Origin]) -> None:
    """
    Leave the evaluations alone that share a loader with one that is left alone: it is not prepared for either.

    What all processes read whole must not be gathered, or every row would count once a process. ``trained``: loaders
    that the training iterates, which are prepared anyway; of several that one place makes, only those by their names.
    """
    trained = {origin for origin in trained if not one_of_several(reach, origin)}
    while True:
        whole = {o for e in evaluations if not e.understood for o in e.loaders} - trained
        sharing = [e for e in evaluations if e.understood and not whole.isdisjoint(e.loaders)]
        if not sharing:
            return
        for evaluation in sharing:
            evaluation.leave("another evaluation reads the same loader, and stays whole")


def _whose(optimizer: Origin) -> Finding:
    return Finding(
        "unknown-parameters",
        optimizer.node,
        "cannot tell which model's parameters this optimizer holds, so cannot tell which model to prepare: its "
        "gradients would not be averaged",
        "build it from model.parameters(), or name the model: --assume model=NAME",
        Severity.BLOCKED,
    )


_MADE = tuple(f"torch.{name}" for name in "nn.Parameter zeros ones full rand randn empty tensor eye from_numpy".split())


def _loose(state: State, reach: Reach, optimizer: Origin) -> Iterator[tuple[Unit, Finding]]:
    """Tensors made by hand that an optimizer holds: they belong to no model whose gradients are exchanged."""
    call = optimizer.node
    if not isinstance(call, cst.Call) or not call.args:
        return
    held = members(state, state.slot(call.args[0].value))
    state.solver.run()
    if any(isinstance(t, Unknown) and t.qualified.startswith(_MADE) for t in held.things):
        unit = next(u for u in reach.units if call in u.names.parents)
        yield (
            unit,
            Finding(
                "loose-parameters",
                call,
                "this optimizer holds a tensor that belongs to no module: its gradient would not be averaged, and its "
                "value would differ between processes",
                "make it a parameter of the model or of a separate module: self.name = nn.Parameter(...)",
                Severity.BLOCKED,
            ),
        )


def _schedulers(
    state: State, reach: Reach, training: Training, result: PreparePlan, of_one: frozenset[Origin]
) -> Iterator[Origin]:
    """Those that are stepped with the optimizer; of a script that prepares by itself, only those that it prepares."""
    by_script = _already(state)
    below = _stepped_by_others(reach, training)
    nested = {s for r in training.ticks if r.node in below for s in origins(r.receiver, Role.SCHEDULER)}
    for record in training.ticks:
        if record.node in below:
            continue  # as often as the scheduler steps that steps it
        for scheduler in origins(record.receiver, Role.SCHEDULER):
            unit = "own batch" if scheduler in of_one else tick_unit(reach, training, record, scheduler)
            if scheduler in nested and unit == "optimizer step":
                result.findings.append((record.unit, _stepped_twice(record)))
                continue
            name = record.unit.names.module.code_for_node(record.node.func).rpartition(".")[0]
            prepared = unit == "optimizer step" and (not by_script or scheduler in by_script)
            result.schedules.append((record.unit, Schedule(record.node, name, unit, prepared)))
            if prepared:
                yield scheduler


def _stepped_by_others(reach: Reach, training: Training) -> set[cst.CSTNode]:
    """The steps of schedulers that a step of another scheduler makes: ``self.after.step()`` of a warm-up."""
    ticks = {record.node for record in training.ticks}
    found: set[cst.CSTNode] = set()
    for record in training.ticks:
        found.update(ticks.intersection(reach.runs(record.node, record.unit)) - {record.node})
    return found


def _stepped_twice(record: CallRecord) -> Finding:
    name = cst.Module([]).code_for_node(record.node.func).rpartition(".")[0]
    return Finding(
        "scheduler",
        record.node,
        f"`{name}` is stepped here, and by another scheduler too: prepared for the steps here, it would step N times "
        "in each of those of the other",
        "step it in one place",
        Severity.BLOCKED,
        case="twice",
    )


def _already(state: State) -> set[Origin]:
    """What the script hands to an accelerator's prepare by itself."""
    found: set[Origin] = set()
    for record in state.calls.values():
        func = record.node.func
        if isinstance(func, cst.Attribute) and func.attr.value.startswith("prepare"):
            if origins(record.receiver, Role.ACCELERATOR):
                for arg in record.node.args:
                    found.update(origins(state.values.get(arg.value)))
    return found


def _unplaceable(held: Held) -> Finding:
    name = held.name
    cause = f"`{name}` is used before the other objects of its prepare(...) call exist"
    remedy = f"build those objects earlier, or prepare it by hand: {name} = accelerator.prepare({name})"
    if held.origin.role is Role.LOADER:
        cause = f"what keeps `{name}` for the training (an object, a dictionary) also reads it before the training: "
        cause += "prepared, the loader would give it the rows of one process alone"
        remedy = f"before the training, read another loader of the same data set: `{name}` is then left to the training"
    return Finding("prepare", held.origin.node, cause, remedy, Severity.BLOCKED, case="used-before")


def _lost(reach: Reach, code: Code | None, origin: Origin, result: PreparePlan) -> None:
    """What no variable holds is prepared by the expression that gives it: to an object, or to a loop."""
    unit, place = reach.unit_of(origin.place, reach.units[0]), origin.place
    handed = origin.role in (Role.MODEL, Role.OPTIMIZER) and given_on(reach, unit, origin)
    if origin.role is Role.LOADER and code is not None and (argument := as_argument(reach, code, origin)) is not None:
        unit, place, handed = reach.unit(code), argument, True
    if (origin.role is Role.LOADER or handed) and isinstance(place, cst.Call):
        loops = (a for a in unit.names.ancestors(place) if isinstance(a, (cst.For, cst.CompFor)))
        looped = any(node is place for loop in loops for node in descendants(loop.iter))
        held = "is iterated where it is created" if looped else "is in no variable where the model is prepared"
        because = f"{{}} {'is handed on where it is created' if handed else held}"
        call = Prepare(unit.names.statement(place), (), because, wraps=place)
        result.prepares.append((unit, call))
        result.prepared.add(origin)
        if origin.role is Role.MODEL:
            result.stands.setdefault(origin, Stands(unit, call))
        return
    result.findings.append(
        (
            unit,
            Finding(
                "prepare",
                origin.place,
                f"no variable here holds this {origin.role.value}, so it cannot be prepared",
                "assign it to a variable in the function that builds the optimizer",
                Severity.BLOCKED,
                case="no-variable",
            ),
        )
    )
