"""What a call of something outside the program gives: by its name where a table has it, else by its arguments."""

from __future__ import annotations

import ast
from functools import partial

import libcst as cst

from ...facts.computed_modules import ANY, asked_modules
from ...facts.roles import SHARES, Origin, Role
from ...facts.spellings import OWN_NAMES
from ...facts.torch_api import process_calls, questions, surroundings
from ..syntax.nodes import positional
from . import ranks, registries
from .call_binding import EvaluatedCall, escape, relate, trailing
from .command_lines import offered
from .containers import element, members, merge
from .drawn_batches import drawn
from .modules import full
from .solver import Slot, Thing
from .spoken_names import named_methods
from .trails import Trace, Trail
from .values import External, Instance, Klass, Mapping, Sequence


def outside_call(call: EvaluatedCall, qualified: str) -> None:
    """Build the flow of a call of an outside name."""
    state, last = call.state, qualified.rpartition(".")[2]
    offered(call, qualified)
    _followed(call, qualified)
    if ranks.asked(call, qualified):
        return
    if qualified == "torch.distributed.init_process_group":
        ranks.joined(call)
    role = questions.constructed(qualified)
    table = qualified.rpartition(".")[0]
    if table.endswith(registries.TABLE):
        registries.listed(call, table, last)
    elif qualified == "inspect.getmembers":
        state.solver.watch(call.first(), lambda t: _members(call, t))
    elif qualified in ("importlib.import_module", "builtins.__import__"):
        _imported(call, qualified)
    elif process_calls.same_model(qualified):
        state.solver.flow(call.first(), call.result)
        if process_calls.is_wrapper(qualified):
            state.solver.add(call.result, state.wrapped(call.node))
    elif process_calls.spawns(qualified):
        ranks.spawned(call)
        return
    elif role is not None:
        verb = "constructed" if last[:1].isupper() else "given"
        with_role = call.make(role, f"{verb} by {qualified}", qualified)
        relate(call, with_role)
        set_parts(call, with_role, qualified)
    elif qualified == "collections.defaultdict":
        _with_default(call)
    elif qualified in _DICTS:
        _mapped(call)
    elif qualified in _LISTS and all(arg.keyword is not None for arg, _ in call.args):  # deque(maxlen=8)
        state.solver.add(call.result, state.sequence(call.node))
        if qualified == "builtins.set":
            state.solver.add(call.result, state.trace(call.node, Trail.SET))
    elif qualified.startswith("builtins."):
        _builtin(call, last)
    elif questions.passes(qualified):
        _passes(call)
    elif questions.places(qualified):
        state.solver.flow(call.first(), call.result)
    elif qualified.startswith("copy.") and questions.copies(qualified):
        state.solver.watch(call.first(), lambda t: _copied(call, t))
    elif last == "partial" and call.args:
        state.solver.flow(call.first(), call.result)
    elif qualified.startswith(("torch.", "einops.")) or questions.joins_tensors(qualified):
        call.give_tensors()
        if last in ("from_numpy", "tensor", "as_tensor"):
            return
        state.solver.add(call.result, state.unknown(call.node, qualified, call.result))
    else:
        call.give_host_values()
        made = state.unknown(call.node, qualified, call.result)
        state.solver.add(call.result, made)
        if len(call.args) == 1:  # it may give the items as attributes
            state.solver.watch(call.first(), lambda t: _as_attributes(call, made, t))
        if last[:1].isupper():  # what is constructed may keep what it is given by a name: ``SimpleNamespace(net=net)``
            for keyword, slot in ((arg.keyword, slot) for arg, slot in call.args):
                if keyword is not None:
                    state.solver.flow(slot, state.field(made, keyword.value))
        state.solver.watch(call.everything, lambda t: _handed_out(call, qualified, t))
        if questions.chooses(qualified):
            state.solver.watch(element(state, call.first()), lambda t: _chosen(call, last, t))
    call.watch_everything("escape", lambda t: escape(state, t, call.node))


def set_parts(call: EvaluatedCall, owner: Thing, qualified: str) -> None:
    """Let the attributes that the constructor of an outside class sets to layers hold them."""
    for name in questions.parts(qualified):
        part = call.state.part(owner, name, call.node, f"a part of {qualified}", qualified)
        call.state.solver.add(call.state.field(owner, name), part)


def _as_attributes(call: EvaluatedCall, made: Thing, given: Thing) -> None:
    """What is made of a dict alone has its items as attributes, where they are read: ``EasyDict({"net": net})``."""
    for key, slot in list(given.entries.items()) if isinstance(given, Mapping) else ():
        if isinstance(key, str):
            call.state.solver.flow(slot, call.state.field(made, key))


def _chosen(call: EvaluatedCall, name: str, thing: Thing) -> None:
    """An object of the program that is drawn from several: ``random.choice(clients)``; or a list with such."""
    if isinstance(thing, Instance):
        several = call.state.sequence(call.node, "chosen")
        call.state.solver.add(several.rest, thing)
        call.state.solver.add(call.result, thing if name == "choice" and len(call.args) == 1 else several)


def _imported(call: EvaluatedCall, qualified: str) -> None:
    """``import_module("pkg.mod")``: the module of that name, or each of several that it may ask for. Of the modules of
    a computed name, those that lack what is read of the module are left out."""
    state, read = call.state, _read_of(call)
    for name in (full(call.unit, word) for word in _asked(call)):
        if ANY not in name:
            name = name.partition(".")[0] if qualified == "builtins.__import__" else name
            state.solver.add(call.result, state.external(name))
        for member in state.layout.families.get(name, ()):
            unit = state.units.get(member)
            if unit is not None and read.issubset(unit.names.scope.bindings):
                state.solver.add(call.result, state.external(member))


def _asked(call: EvaluatedCall) -> tuple[str, ...]:
    """The names of modules that a call may ask for."""
    module = call.unit.names.module

    def every() -> dict[str, tuple[str, ...]]:
        try:
            nodes = list(ast.walk(ast.parse(module.code)))
        except (SyntaxError, ValueError):  # LibCST reads more than this Python
            nodes = []
        return {ast.unparse(asked.call): asked.names for asked in asked_modules(nodes)}

    text = module.code_for_node(call.node)  # what brackets around it join over lines needs brackets of its own
    found = call.state.once((_asked, call.unit.name), every)
    return found.get(ast.unparse(ast.parse(f"({text.strip()})", mode="eval").body), ())


def _read_of(call: EvaluatedCall) -> set[str]:
    """The attributes that are read of what a call is assigned to."""
    names = call.unit.names
    target = names.parents.get(call.node)
    name = target.targets[0].target if isinstance(target, cst.Assign) else None
    binding = names.binding(name) if isinstance(name, cst.Name) else None
    parents = [names.parents.get(read) for read in binding.reads] if binding is not None else []
    return {parent.attr.value for parent in parents if isinstance(parent, cst.Attribute)} - {"__dict__", "__file__"}


def _followed(call: EvaluatedCall, qualified: str) -> None:
    """What has no role, and is followed: open files, and names that differ from process to process."""
    solver, state = call.state.solver, call.state
    if qualified in ("builtins.open", "io.open", "codecs.open", "gzip.open"):
        solver.add(call.result, state.trace(call.node, Trail.FILE))
    elif surroundings.stamps(qualified):
        solver.add(call.result, state.trace(call.node, Trail.STAMP))
    elif surroundings.lists(qualified):
        solver.add(call.result, state.trace(call.node, Trail.LISTING))
    if surroundings.keeps_path(qualified):
        solver.flow(call.everything, call.result, trailing)
    elif qualified == "builtins.len":
        solver.add(call.result, state.trace(call.node, Trail.LENGTH))
        solver.watch(call.first(), lambda t: _marked(call, t, Trail.LISTING, Trail.STAMP))
    if qualified == "builtins.int":
        solver.watch(call.first(), lambda t: _marked(call, t, Trail.ENTRY, Trail.NUMBER))
    elif qualified in ("builtins.max", "builtins.len"):
        for slot in (call.everything, members(state, call.first())):
            solver.watch(slot, lambda t: _marked(call, t, Trail.NUMBER, Trail.STAMP))


def _marked(call: EvaluatedCall, thing: Thing, given: Trail, found: Trail) -> None:
    """What follows from the entries of a folder: how many they are, their numbers, the highest."""
    if isinstance(thing, Trace) and thing.trail is given:
        call.state.solver.add(call.result, call.state.trace(call.node, found))


def _copied(call: EvaluatedCall, thing: Thing) -> None:
    """A copy of a model is another model; a copy of what this call has made already is what it has made."""
    if isinstance(thing, Origin) and thing.role is Role.MODEL and (earlier := _made_by(call, thing)) is not None:
        call.state.solver.add(call.result, earlier)
    elif isinstance(thing, Origin) and thing.role is Role.MODEL:
        made = call.make(Role.MODEL, "a copy of a model", thing.qualified, thing)
        if thing in call.state.klass:
            call.state.klass[made] = call.state.klass[thing]
        call.state.solver.flow(call.state.kinds(thing), call.state.kinds(made))
    else:
        call.state.solver.add(call.result, thing)


def _made_by(call: EvaluatedCall, model: Origin) -> Origin | None:
    """The copy that a call has made, if a model is that copy or was copied from it."""
    copied: Origin | None = model
    while copied is not None and copied.node is not call.node:
        copied = copied.source
    return copied


def _handed_out(call: EvaluatedCall, qualified: str, thing: Thing) -> None:
    """An outside class built from parameters is an optimizer, one built from an optimizer a scheduler; a wrapped
    loader stays a loader."""
    if not isinstance(thing, Origin):
        return
    capital = qualified.rpartition(".")[2][:1].isupper()
    if thing.role is Role.PARAMETERS and capital and not questions.averages_weights(qualified):
        relate(call, call.make(Role.OPTIMIZER, f"built from parameters by {qualified}", qualified))
    elif thing.role is Role.OPTIMIZER and (capital or "schedule" in qualified.lower()):
        relate(call, call.make(Role.SCHEDULER, f"built from an optimizer by {qualified}", qualified))
    elif thing.role is Role.LOADER:
        call.state.solver.add(call.result, thing)


_LISTS = frozenset("builtins.list builtins.set collections.deque".split())
_DICTS = frozenset("builtins.dict collections.OrderedDict".split())


def _mapped(call: EvaluatedCall) -> None:
    """``dict(other, key=value)``."""
    mapping = call.state.mapping(call.node)
    for arg, slot in call.args:
        if arg.keyword is not None:
            call.state.solver.flow(slot, call.state.entry(mapping, arg.keyword.value))
        else:
            call.state.solver.watch(slot, lambda thing: merge(call.state, mapping, thing))
    call.state.solver.add(call.result, mapping)
    _passes(call)


def _with_default(call: EvaluatedCall) -> None:
    """``defaultdict(list)``: what is found under a key that is not there yet is a list."""
    state = call.state
    mapping = state.mapping(call.node)

    def arrive(thing: Thing) -> None:
        name = thing.qualified if isinstance(thing, External) else ""
        if name in _LISTS:
            state.solver.add(mapping.rest, state.sequence(call.node, "default"))
            if name == "builtins.set":
                state.solver.add(mapping.rest, state.trace(call.node, Trail.SET))
        elif name in _DICTS:
            state.solver.add(mapping.rest, state.mapping(call.node.func))

    state.solver.watch(call.first(), arrive)
    state.solver.add(call.result, mapping)


def _passes(call: EvaluatedCall) -> None:
    state = call.state
    for _, slot in call.args:
        state.solver.flow(slot, call.result, _iterable)
        state.solver.flow(members(state, slot), call.result, _unpacked)


def _unpacked(thing: Thing) -> Thing | None:
    """What is found in containers, however deep; rows stay where they are, beside the numbers of ``enumerate``."""
    return None if isinstance(thing, Origin) and thing.role in SHARES else _iterable(thing)


def _iterable(thing: Thing) -> Thing | None:
    if isinstance(thing, (Sequence, Mapping)):
        return thing
    kept = (Role.LOADER, Role.MODEL, Role.PARAMETERS, *SHARES)
    return thing if isinstance(thing, Origin) and thing.role in kept else None


def _rows(call: EvaluatedCall, name: str, numbers: list[Slot], wraps: list[Slot]) -> None:
    """The rows of ``enumerate`` and ``zip``: a number perhaps, and an element of each of some things."""
    state = call.state
    outer, row = state.sequence(call.node, name), state.sequence(call.node, "row")
    if not row.items:
        row.items.extend(numbers)
        row.items.extend(element(state, slot) for slot in wraps)
        outer.wraps.extend(wraps)
    state.solver.add(outer.rest, row)
    state.solver.add(call.result, outer)


def _builtin(call: EvaluatedCall, name: str) -> None:
    state = call.state
    plain = [slot for arg, slot in call.args if arg.keyword is None]
    if name == "enumerate":
        _rows(call, name, [Slot()], plain[:1])
    elif name == "zip":
        _rows(call, name, [], plain)
    elif name in ("list", "tuple", "iter", "reversed", "sorted", "set", "frozenset", "filter"):
        _passes(call)
        if name in ("set", "frozenset"):
            state.solver.add(call.result, state.trace(call.node, Trail.SET))
    elif name == "next":
        state.solver.flow(element(state, call.first()), call.result)
        drawn(call)
    elif name in ("map",) and len(call.args) > 1:
        given = state.sequence(call.node, "map")
        state.solver.flow(element(state, call.args[1][1]), given.rest)
        state.solver.add(call.result, given)
    elif name == "getattr" and len(call.args) > 1:
        named = call.node.args[1].value
        word = str(named.evaluated_value) if isinstance(named, cst.SimpleString) else None
        words = [word] if word is not None else registries.allowed(call.unit, call.node, named) or [None]
        if word is not None or not registries.inside(call):
            for one in words:
                state.solver.watch(call.first(), partial(_searched, call, name=one))
    elif name == "vars" and call.args:
        state.solver.watch(call.first(), lambda t: _table(call, t))
    elif name in OWN_NAMES and not call.args:
        state.solver.add(call.result, state.external(call.unit.name + registries.TABLE))
    elif name == "eval" and call.args and not isinstance(call.node.args[0].value, cst.SimpleString):
        registries.own(state, call.unit, call.result)
    elif name == "super":
        _bases(call)
    elif name in ("getattr", "setattr", "hasattr", "isinstance", "type", "print"):
        return
    elif name == "sum":
        state.solver.flow(call.everything, call.result, lambda t: t if isinstance(t, Origin) else None)
    elif questions.host_builtin(f"builtins.{name}"):
        if name == "int":
            state.solver.flow(call.first(), call.result, ranks.number)
        call.give_host_values()


def _bases(call: EvaluatedCall) -> None:
    """``super()``: the object of the method around it, seen from the bases of the method's class."""
    names, state = call.unit.names, call.state
    method = names.function(call.node)
    scope = names.within.get(method)
    if not isinstance(method, cst.FunctionDef) or scope is None or not isinstance(scope.node, cst.ClassDef):
        return
    klass, places = call.unit.classes.get(scope.node), positional(method)
    if klass is not None and places:
        binding = names.scopes[method].bindings[places[0].name.value]
        found = klass
        state.solver.flow(
            state.binding(binding),
            call.result,
            lambda t: state.above(t, found) if isinstance(t, (Origin, Instance, Klass)) else None,
        )


def _table(call: EvaluatedCall, thing: Thing) -> None:
    """``vars(models)``."""
    if isinstance(thing, External):
        call.state.solver.add(call.result, call.state.external(thing.qualified + registries.TABLE))


def _members(call: EvaluatedCall, thing: Thing) -> None:
    """``inspect.getmembers(models)``."""
    if isinstance(thing, External):
        registries.listed(call, thing.qualified, "items")


def _searched(call: EvaluatedCall, thing: Thing, *, name: str | None) -> None:
    """``getattr(torch.optim, args.name)``, ``getattr(callback, event)``."""
    state = call.state
    if isinstance(thing, External):
        registries.looked_up(state, call.unit, thing.qualified, name, call.result)
    klass = state.class_of(thing)
    if klass is not None:
        for word in [name] if name is not None else named_methods(state, call.unit, call.node.args[1].value, klass):
            state.solver.add(call.result, state.bound(thing, word))
            state.solver.flow(state.field(thing, word), call.result)
