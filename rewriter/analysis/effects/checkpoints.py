"""Checkpoints: what is saved and loaded, by whom, and where the plain model is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise

import libcst as cst

from ...facts.checkpoints import Load, Save, StateDict
from ...facts.effects import Effect, EffectKind
from ...facts.reasons import Reason
from ...facts.reasons.effects import StateOfOne
from ...facts.roles import Origin, Role
from ...facts.torch_api.surroundings import shows_model
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.containers import members
from ..dataflow.values import CallRecord, State, Unit, origins
from ..devices.after_prepare import ends_later
from ..devices.use_before_prepare import Stands
from ..layouts.loop_step import bound_by
from ..syntax.definitions import in_other_branch
from ..syntax.leaving import HANDLERS, ends
from ..syntax.scopes import Binding, ScopeKind
from ..syntax.walk import descendants, nodes_in
from ..training.row_code import for_rows
from ..training.training import Training
from .existing_guards import guarded
from .handles import asks_existence
from .memory import into_memory


def saves(state: State, unit: Unit, reach: Reach, prepared: set[Origin]) -> Iterator[Save]:
    """The ``torch.save`` calls of a module that the script reaches; not those that loaders run for each row."""
    for record in _saved(state, unit, reach):
        call = record.node
        if not call.args or guarded(state, unit, call) or unit.names.function(call) in for_rows(state, reach):
            continue
        held = origins(state.values.get(call.args[0].value), Role.MODEL)
        yield Save(call, any(o in prepared for o in held), "every process would write the file")


def as_write(unit: Unit, save: Save) -> Effect | None:
    """A ``torch.save`` as a statement that is guarded in place; None if it is not a separate statement."""
    line = unit.names.statement(save.call)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    alone = isinstance(line.body[0], cst.Expr) and line.body[0].value is save.call
    return Effect(line, EffectKind.WRITE, save.because) if alone else None


def state_dicts(state: State, unit: Unit, reach: Reach, prepared: set[Origin]) -> Iterator[StateDict]:
    """
    Calls of ``model.state_dict()`` on prepared models whose result ends up in a ``torch.save``.

    Not those that only the main process reaches: ``get_state_dict`` would wait there for the others.
    """
    saved = state.once(_saved_states, lambda: _saved_states(state, reach))
    for node in dict.fromkeys(origin.node for origin in saved if origin.source in prepared):
        if isinstance(node, cst.Call) and node in unit.names.parents and isinstance(node.func, cst.Attribute):
            if node.func.attr.value == "state_dict" and not guarded(state, unit, node):
                yield StateDict(node, node.func.value)


def after_exception(unit: Unit, node: cst.CSTNode) -> cst.CSTNode | None:
    """The handler, or the ``finally``, around a node: each process comes there by itself, or does not, and nobody can
    wait there for the others."""
    return next(unit.names.enclosing(node, *HANDLERS), None)


def of_this_process(unit: Unit, taken: StateDict) -> Reason:
    """The finding for the state of a model that is taken in such a place."""
    place, module = after_exception(unit, taken.call), unit.names.module
    assert place is not None
    kind = getattr(place, "type", None)
    words = "finally" if isinstance(place, cst.Finally) else "except"
    words += f" {module.code_for_node(kind)}" if kind is not None else ""
    return StateOfOne(taken.call, words, module.code_for_node(taken.call))


def _saved_states(state: State, reach: Reach) -> list[Origin]:
    """The states of models that the program saves."""
    found: list[Origin] = []
    for unit in reach.units:
        for record in _saved(state, unit, reach):
            if record.node.args:
                held = members(state, state.slot(record.node.args[0].value))
                state.solver.run()
                states = origins(held, Role.STATE)
                found += [o for o in states if o.source is not None and o.source.role is Role.MODEL]
    return found


def plain_models(
    state: State, unit: Unit, reach: Reach, stands: Mapping[Origin, Stands], saved: set[cst.Call]
) -> Iterator[cst.BaseExpression]:
    """
    Where a prepared model is read or loaded by its plain names, or exported: the model itself is wanted.

    ``stands``: where each prepared model is prepared; before that it is the plain one.
    """
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None or unit.names.function(call) not in reach.reachable or call in saved:
            continue
        wanted: cst.BaseExpression | None = None
        if method_name(call) in ("state_dict", "load_state_dict", "save_pretrained"):
            wanted = call.func.value if isinstance(call.func, cst.Attribute) else None
        elif exports(record) or shows_model(outside_name(record)):
            wanted = call.args[0].value if call.args and not call.args[0].star else None
        if isinstance(wanted, cst.Call):
            continue  # unwrapped already, or made on the way
        held = origins(state.values.get(wanted), Role.MODEL) if wanted is not None else []
        if wanted is not None and any(o in stands and not in_front(stands[o], unit, reach, call) for o in held):
            yield wanted


def _leading(reach: Reach, code: Code, home: Code) -> list[cst.Call]:
    """The calls in some code that come to other code."""
    own = (node for node in reach.own(code) if isinstance(node, cst.Call))
    return [site for site in own if any(home in reach.below(one) for one in reach.called(site))]


def in_front(stands: Stands, unit: Unit, reach: Reach, call: cst.CSTNode, seen: frozenset[Code] = frozenset()) -> bool:
    """Whether a call runs only before a ``prepare``, through whatever function it is reached, or that is."""
    code, home = unit.names.function(call), stands.unit.names.function(stands.prepare.node)
    if code in seen or code is home:
        return stands.follows(unit, call)
    if leading := reach.state.once((_leading, code, home), lambda: _leading(reach, code, home)):
        return all(ends_later(reach, site, call) for site in leading)  # its arguments come first
    sites = reach.sites(code)
    below = seen | {code}
    return bool(sites) and all(in_front(stands, reach.unit(reach.function_of(s)), reach, s, below) for s in sites)


_EXPORTS = frozenset("torch.onnx.export torch.jit.script torch.jit.trace torch.export.export pickle.dump".split())


def exports(record: CallRecord) -> bool:
    """Whether a call makes a program of a model, or a file of it as an object: its first argument."""
    return outside_name(record) in _EXPORTS or method_name(record.node) == "add_graph"


def loads(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Load]:
    """The ``torch.load`` calls of a module that the script reaches."""
    written = state.once(_saved_paths, lambda: _saved_paths(state, reach))
    for record in _reached(state, unit, reach, "torch.load"):
        call = record.node
        names = {arg.keyword.value for arg in call.args if arg.keyword is not None}
        starred = any(arg.star for arg in call.args)
        needs_map = "map_location" not in names and len([a for a in call.args if a.keyword is None]) < 2 and not starred
        path = _path(unit, call, 0)
        may_be = path is not None and any(_may_be_same(path, other) for other in written)
        may_be = may_be and not into_memory(state, unit, reach, call)
        may_be = may_be and unit.names.function(call) not in for_rows(state, reach)
        statement = _before_questions(unit, call) if may_be else None
        if statement is not None and before_training(unit, reach, training, call):
            statement = None  # an earlier run wrote it
        if statement is not None and (waits(unit, statement) or guarded(state, unit, call)):
            statement = None
        if needs_map or statement is not None:
            data = _is_data(state, unit, reach, call)
            because = "each process would load to the device of the process that saved it"
            copied = not data and _is_copied(reach, unit, call)
            yield Load(call, needs_map, statement, because, data, copied, path in written)


def _before_questions(unit: Unit, call: cst.Call) -> cst.CSTNode:
    """The statement of a load, or that which asks whether the file is there, around it or to leave the code before it:
    its answers differ while one writes, and a process that leaves waits for nobody."""
    names, statement = unit.names, unit.names.statement(call)
    for around in names.enclosing(call, cst.If):
        if any(asks_existence(part) for part in descendants(around.test)):
            statement = names.statement(around)
    path = _path(unit, call, 0)
    blocks = [statement, *names.enclosing(statement, cst.If, cst.Else, cst.For, cst.While, cst.With, cst.Try)]
    for below in blocks:
        block = getattr(names.parents.get(below), "body", None)
        before = list(block)[: list(block).index(below)] if isinstance(block, (list, tuple)) and below in block else []
        statement = next((one for one in before if _leaves_without(unit, one, path)), statement)
    return statement


def _leaves_without(unit: Unit, node: cst.CSTNode, path: str | None) -> bool:
    """``if not os.path.exists(path): continue``, and ``if not path.is_file(): return``."""
    if not isinstance(node, cst.If) or not ends(node.body, lambda _: False):
        return False
    asked = (part for part in nodes_in(node.test, cst.Call) if asks_existence(part))
    subjects = (part.args[0].value if part.args else getattr(part.func, "value", None) for part in asked)
    return path is not None and path in [unit.names.module.code_for_node(one) for one in subjects if one is not None]


def _saved_paths(state: State, reach: Reach) -> list[str]:
    """The texts of the paths to which the program saves."""
    paths = (_path(unit, record.node, 1) for unit in reach.units for record in _saved(state, unit, reach))
    return [path for path in paths if path is not None]


_OF_DICT = frozenset("items keys values get pop copy".split())


def _is_copied(reach: Reach, unit: Unit, node: cst.CSTNode, seen: frozenset[Binding] = frozenset()) -> bool:
    """Whether a value only comes to ``load_state_dict``, which copies it, wherever it is: under names, in parts."""
    parents = unit.names.parents
    parent, above = parents[node], partial(_is_copied, reach, unit, seen=seen)
    if isinstance(parent, cst.Arg):
        call = parents[parent]
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value == "isinstance":
            return True
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
            return False
        if method_name(call) == "load_state_dict" and call.args[0] is parent:
            return not reach.called(call)  # a method of the script's own may keep it
        taker = call.func.value
        return method_name(call) == "update" and isinstance(taker, cst.Name) and _all_copied(reach, unit, taker, seen)
    if isinstance(parent, cst.Attribute) and parent.value is node and parent.attr.value in (*_OF_DICT, "update"):
        call = parents[parent]
        called = isinstance(call, cst.Call) and call.func is parent
        return called and (parent.attr.value == "update" or above(call))
    if isinstance(parent, cst.Subscript) and parent.value is node:
        return above(parent)
    if isinstance(parent, cst.CompFor) and parent.iter is node:
        return isinstance(parents[parent], cst.DictComp) and above(parents[parent])
    if isinstance(parent, cst.ComparisonTarget):
        return isinstance(parent.operator, (cst.In, cst.NotIn))
    if isinstance(parent, cst.Assign) and parent.value is node:
        target = parent.targets[0].target
        return len(parent.targets) == 1 and isinstance(target, cst.Name) and _all_copied(reach, unit, target, seen)
    return isinstance(parent, cst.Expr)


def _all_copied(reach: Reach, unit: Unit, name: cst.Name, seen: frozenset[Binding]) -> bool:
    """Whether all that reads a variable hands it on to ``load_state_dict``."""
    binding = unit.names.binding(name)
    if binding is None or binding.scope.kind is not ScopeKind.FUNCTION:
        return False
    return binding in seen or all(_is_copied(reach, unit, read, seen | {binding}) for read in binding.reads)


def _is_data(state: State, unit: Unit, reach: Reach, call: cst.Call) -> bool:
    """Whether a file holds data: a class of data sets loads it, or what was loaded is made a data set or a loader."""
    for klass in unit.names.ancestors(call):
        bases = klass.bases if isinstance(klass, cst.ClassDef) else ()
        if any(unit.names.module.code_for_node(base.value).endswith("Dataset") for base in bases):
            return True
    assign = unit.names.parents.get(call)
    targets = assign.targets if isinstance(assign, cst.Assign) else ()
    named = {b for t in targets for b in bound_by(unit, t.target)}
    for other in reach.units:
        for taker in other.names.calls:
            record = state.calls.get(taker)
            kept = origins(state.values.get(taker), Role.DATASET, Role.LOADER)
            if record is None or not (kept or outside_name(record).startswith("torch.utils.data.")):
                continue
            for arg in taker.args:
                held = members(state, state.slot(arg.value))
                state.solver.run()
                read = {other.names.binding(n) for n in nodes_in(arg, cst.Name)}
                if any(o.node is call for o in origins(held, Role.CHECKPOINT)) or not named.isdisjoint(read):
                    return True
    return False


def _may_be_same(one: str, other: str) -> bool:
    """Whether the source texts of two paths may mean one file: yes, unless both are constants, and different."""
    return one == other or not (one[-1:] in "'\"" and other[-1:] in "'\"" and one[:1] in "'\"" and other[:1] in "'\"")


def before_training(
    unit: Unit, reach: Reach, training: Training, call: cst.CSTNode, seen: frozenset[Code] = frozenset()
) -> bool:
    """Whether a node comes before all code that trains, or runs instead of it, in no loop that trains as well, however
    it is reached."""
    code, order = unit.names.function(call), unit.names.order
    here = reach.state.once(_trainings, lambda: _trainings(reach, training)).get(code)
    if here:
        again = set(unit.names.enclosing(call, cst.For, cst.While))
        return all(
            (order(call) < order(n) or in_other_branch(unit.names, call, n))
            and again.isdisjoint(unit.names.enclosing(n, cst.For, cst.While))
            for n in here
        )
    sites = [site for site in reach.sites(code) if reach.function_of(site) in reach.reachable]
    if code in seen or not sites:
        return False
    return all(before_training(reach.unit(reach.function_of(s)), reach, training, s, seen | {code}) for s in sites)


def _trainings(reach: Reach, training: Training) -> dict[Code, list[cst.CSTNode]]:
    """For each function what trains in its own code: loops, steps, and calls of what comes to one."""
    nodes = [*training.train_loops, *(record.node for record in training.steps)]
    places = ((unit, node) for unit in reach.units for node in nodes if node in unit.names.parents)
    found: dict[Code, list[cst.CSTNode]] = {}
    for unit, node in places:
        found.setdefault(unit.names.function(node), []).append(node)
    working = set(found)
    for code in reach.reachable:
        for site in reach.sites(code) if not working.isdisjoint(reach.below(code)) else ():
            found.setdefault(reach.function_of(site), []).append(site)
    return found


def waits(unit: Unit, statement: cst.CSTNode) -> bool:
    """Whether the statement before one waits for everyone already."""
    body = getattr(unit.names.parents.get(statement), "body", ())
    before = next((one for one, other in pairwise(body) if other is statement), None)
    return before is not None and any(method_name(node) == "wait_for_everyone" for node in nodes_in(before, cst.Call))


def _path(unit: Unit, call: cst.Call, position: int) -> str | None:
    """The text of the path argument of a save or a load, as a sign of which file it is."""
    plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
    named = [arg.value for arg in call.args if arg.keyword is not None and arg.keyword.value == "f"]
    value = plain[position] if len(plain) > position else (named[0] if named else None)
    return unit.names.module.code_for_node(value) if value is not None else None


def _saved(state: State, unit: Unit, reach: Reach) -> list[CallRecord]:
    """The calls that save to a file; what is saved to memory each process keeps for itself."""
    records = _reached(state, unit, reach, "torch.save")
    return state.once((_saved, unit.name), lambda: [r for r in records if not into_memory(state, unit, reach, r.node)])


def _reached(state: State, unit: Unit, reach: Reach, qualified: str) -> Iterator[CallRecord]:
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is not None and outside_name(record) == qualified and unit.names.function(call) in reach.reachable:
            yield record
