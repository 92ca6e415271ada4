"""Which variables hold what is prepared, and in which code: several of them where one place makes several things."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.containers import members
from ..analysis.dataflow.fixed_attributes import fixed_attribute
from ..analysis.dataflow.loader_wrappers import wraps
from ..analysis.dataflow.modules import imported as full_name
from ..analysis.dataflow.modules import slot_of
from ..analysis.dataflow.running_order import may_precede
from ..analysis.dataflow.values import Instance, State, Unit, origins
from ..analysis.syntax.definitions import is_target, unshadowed
from ..analysis.syntax.nodes import dotted, parameters
from ..analysis.syntax.scopes import Binding
from ..analysis.syntax.walk import descendants
from ..analysis.training.training import Training, whole
from ..facts.roles import Origin, Role
from ..facts.torch_api import process_calls
from .imported_tables import imported_entries
from .prepare_position import Held, as_kept, handed_on
from .shared_code import chooses_device, used_elsewhere


def home_of(state: State, reach: Reach, training: Training, origin: Origin) -> tuple[Code | None, Held | None]:
    """The code that prepares a thing, and the name that it has there: the code that builds the optimizer, where the
    thing is at hand there and used nowhere else; else the code in which it lives."""
    if origin.role is not Role.OPTIMIZER:
        trained = ((o, _held_beside_optimizer(state, reach, training, o, origin)) for o in training.optimizers)
        held_with = [(optimizer, one) for optimizer, one in trained if one is not None]
        beside = [one for optimizer, one in held_with if not _is_trained_before(reach, training, optimizer, held_with)]
        beside = beside or [one for _, one in held_with]
        if beside:
            made, name = next((one for one in beside if _is_given_there(state, reach, *one)), beside[0])
            return _of_object(state, reach, made, name) or (made, name)
    code: Code | None = None
    held: Held | None = None
    for around in _holders(state, reach, origin, training):
        found = held_in(state, reach, training, around, origin)
        if found is not None or code is None or origin.role is Role.LOADER:
            # further out it may be known in a container alone: ``{"net": (net, optimizer)}``
            code, held = around, found
    return _of_object(state, reach, code, held) or (code, held)


def _held_beside_optimizer(
    state: State, reach: Reach, training: Training, optimizer: Origin, origin: Origin
) -> tuple[Code, Held] | None:
    """The code that builds an optimizer, and the name that a thing has there, if it is used nowhere else."""
    code = _holder(state, reach, optimizer, training)
    if code is None or not _used_below(reach, training, code, origin):
        return None
    held = held_in(state, reach, training, code, origin)
    return (code, held) if held is not None else None


def _is_trained_before(
    reach: Reach, training: Training, optimizer: Origin, beside: list[tuple[Origin, tuple[Code, Held]]]
) -> bool:
    """Whether another optimizer of a model may step before one is built: the model would be prepared too late there."""
    unit = reach.unit_of(optimizer.node, reach.units[0])
    others = {other for other, _ in beside if other is not optimizer}
    steps = (step for step in training.steps if not others.isdisjoint(origins(step.receiver)))
    return any(may_precede(reach, step.node, unit, optimizer.node) for step in steps)


def _is_given_there(state: State, reach: Reach, code: Code, held: Held) -> bool:
    """
    Whether some code gives a variable the thing, and does not only find it there.

    A class that builds the model of its base class anew has both models in one attribute: each is prepared where it is
    built, with the optimizer that is built beside it.
    """
    unit = reach.unit(code)
    for definition in held.definitions:
        assign = next(unit.names.enclosing(definition, cst.Assign, cst.AnnAssign), None)
        value = assign.value if isinstance(assign, (cst.Assign, cst.AnnAssign)) else None
        if value is None or _holds(state, value, held.origin):
            return True
    return False


def _of_object(state: State, reach: Reach, code: Code | None, held: Held | None) -> tuple[Code, Held] | None:
    """
    What a constructor keeps, by its name in the code that makes the object: ``controller.model`` for ``self.model``.

    Of a model that builds its own optimizer: what is loaded or initialised after it is made comes before ``prepare``
    there. Else only of a constructor that files outside the program call as well, with a device that they choose: it
    stays as it is, and this program alone prepares what the object has.
    """
    if held is None or not isinstance(code, cst.FunctionDef) or code.name.value != "__init__":
        return None
    owner, _, attribute = held.name.partition(".")
    unit, given = reach.unit(code), parameters(code)
    sites = reach.sites(code)
    if not given or owner != given[0].name.value or "." in attribute or len(sites) != 1:
        return None
    above = reach.unit_of(sites[0], unit)
    if not origins(state.values.get(sites[0]), Role.MODEL):
        elsewhere = used_elsewhere(unit, code) is not None and chooses_device(state, unit, code)
        if not attribute or not elsewhere:
            return None
    assign = above.names.parents.get(as_kept(above, sites[0]))
    target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
    maker = above.names.function(sites[0])
    if not isinstance(target, cst.Name) or maker not in reach.reachable:
        return None
    keepers = (keeper for keeper, kept in state.fields() if held.origin in origins(kept))
    if held.origin.role is not Role.MODEL and any(isinstance(k, Instance) and k.node is not sites[0] for k in keepers):
        return None  # another object, too, would keep it as it was before
    return maker, Held(held.origin, f"{target.value}.{attribute}" if attribute else target.value, [target])


def _used_below(reach: Reach, training: Training, code: Code, origin: Origin) -> bool:
    """Whether every loop over a loader runs in some code or below it, and no other code hands it to such a loop."""
    below = reach.below(code)
    loops = [lp for lp in (*training.train_loops, *training.eval_loops) if origin in reach.loaders(lp)]
    looping = {next(u for u in reach.units if lp in u.names.parents).names.function(lp) for lp in loops}
    sites = (s for function in looping - {code} for s in reach.sites(function) if _is_given(reach.state, s, origin))
    return all(code in below for code in looping) and all(reach.function_of(site) in below for site in sites)


def _is_given(state: State, call: cst.Call, origin: Origin) -> bool:
    return any((slot := state.values.get(arg.value)) is not None and origin in slot.things for arg in call.args)


def _holds(state: State, value: cst.BaseExpression, origin: Origin) -> bool:
    """Whether a value, or a part of it, is a thing."""
    return any((slot := state.values.get(n)) is not None and origin in slot.things for n in descendants(value))


def _holder(state: State, reach: Reach, origin: Origin, training: Training) -> Code | None:
    """The code in which a thing lives: where it is made, or the caller to which a maker returns it."""
    return next(reversed(list(_holders(state, reach, origin, training))), None)


def _holders(state: State, reach: Reach, origin: Origin, training: Training) -> Iterator[Code]:
    """The code in which a thing is made, and the callers to which it is returned, from the inside out."""
    unit = next((u for u in reach.units if origin.place in u.names.parents), None)
    if unit is None:
        return
    code = unit.names.function(origin.place)
    for _ in range(8):
        if isinstance(code, cst.Module):
            yield _importer(state, reach, training, code, origin) or code
            return
        yield code
        returned = _returns(state, code, origin)
        sites = [site for site in reach.sites(code) if reach.function_of(site) in reach.reachable]
        if not returned or not sites:
            return
        callers = {reach.function_of(site) for site in sites}
        if len(callers) != 1 or trains(reach, training, code):
            return
        code = callers.pop()


def _importer(state: State, reach: Reach, training: Training, module: cst.Module, origin: Origin) -> Code | None:
    """The module that prepares what another one makes when it is imported: the one that imports it by its name, and
    where alone the training reads it by that."""
    if module is reach.units[0].names.module:
        return None  # the entry script itself: nobody imports it
    found = [unit for unit in reach.units if unit.names.module is not module and _imported(state, unit, origin)]
    found = [unit for unit in found if not _read_elsewhere(state, reach, training, unit, origin)]
    return found[0].names.module if len(found) == 1 else None


def _imported(state: State, unit: Unit, origin: Origin) -> list[Binding]:
    """The names of a module that are given a thing by imports alone."""
    held = (b for b in unit.names.scope.bindings.values() if origin in state.binding(b).things)
    return [b for b in held if b.definitions and all(isinstance(d, cst.ImportAlias) for d in b.definitions)]


def _read_elsewhere(state: State, reach: Reach, training: Training, unit: Unit, origin: Origin) -> bool:
    """Whether the training reads a thing by the global name of another module, which keeps the unprepared one."""
    for node in uses_in(state, reach, training, origin):
        root = node
        while isinstance(root, cst.Attribute):
            root = root.value
        owner = reach.unit_of(node, unit)
        binding = owner.names.binding(root) if isinstance(root, cst.Name) else None
        if binding is None or binding.scope is not owner.names.scope:
            continue
        module = root is not node and all(isinstance(d, cst.ImportAlias) for d in binding.definitions)
        if owner is not unit or module:
            return True
    return False


def _returns(state: State, code: Code, origin: Origin) -> bool:
    if isinstance(code, cst.Module):
        return False
    held = members(state, state.returns(code))
    state.solver.run()
    return origin in held.things


def trains(reach: Reach, training: Training, code: Code) -> bool:
    """Whether a step of an optimizer runs in some code or below it."""
    below = reach.below(code)
    return any(reach.function_of(record.node) in below for record in training.steps)


def held_in(state: State, reach: Reach, training: Training, code: Code, origin: Origin) -> Held | None:
    """The variable of some code that holds a thing: the one defined last before use, plain names first, save where the
    training reads the thing from the object alone."""
    unit = reach.unit(code)
    scope = unit.names.scopes[code]
    candidates: list[Held] = []
    declared = (scope.lookup(name) for name in scope.outer)  # ``global model`` in the function that makes it
    for binding in (*scope.bindings.values(), *(b for b in declared if b is not None)):
        if origin in state.binding(binding).things:
            definitions = [d for d in binding.definitions if not isinstance(d, (cst.FunctionDef, cst.ClassDef))]
            given = binding.scope is scope
            here = (d for d in definitions if unit.names.function(d) is code or (given and isinstance(d, cst.Param)))
            own = [d for d in here if _gives(state, unit, d, origin)]
            if len(own) > 1 and not any(_is_given(state, site, origin) for site in reach.sites(code)):
                # the variable is a parameter, and is given another thing later
                own = [d for d in own if not isinstance(d, cst.Param)] or own
            imported = any(isinstance(d, cst.ImportAlias) for d in own)
            if not own or any(_is_around(state, unit, d, origin) for d in definitions):
                continue
            if not (imported and _read_elsewhere(state, reach, training, unit, origin)):
                candidates.append(Held(origin, binding.name, own))
    attribute = _attribute_of(state, reach, code, origin)
    if attribute is not None:
        candidates.append(attribute)
    candidates.sort(key=lambda held: not _wraps(state, unit, held))
    plain = [c for c in candidates if "." not in c.name]
    if (
        attribute is not None
        and plain
        and _is_read_of_object(state, reach, training, unit, plain[0], scope.lookup(plain[0].name), attribute)
    ):
        return attribute
    if not candidates:
        candidates = imported_entries(reach, code, origin, iter(uses_in(state, reach, training, origin)))
    return plain[0] if plain else (candidates[0] if candidates else None)


def _is_read_of_object(
    state: State,
    reach: Reach,
    training: Training,
    unit: Unit,
    plain: Held,
    binding: Binding | None,
    attribute: Held,
) -> bool:
    """Whether the training reads a thing from the object that keeps it, and nothing uses the variable beside, or hands
    it on: what others call the thing, they do not get from here."""
    if _read_as(state, reach, training, plain.origin) == {attribute.name}:
        return True
    uses = uses_in(state, reach, training, plain.origin)
    of_object = [n for n in uses if isinstance(n, cst.Attribute) and dotted(n) == attribute.name]
    reads = binding.reads if binding is not None else ()
    handed = (unit.names.parents.get(read) for read in reads)
    calls = [unit.names.parents.get(arg) for arg in handed if isinstance(arg, cst.Arg)]
    on = any(isinstance(call, cst.Call) and reach.called(call) for call in calls)
    return bool(of_object) and binding is not None and uses.keys().isdisjoint(reads) and not on


def _read_as(state: State, reach: Reach, training: Training, origin: Origin) -> set[str]:
    """
    The names by which the training runs a model forward, steps an optimizer or iterates a loader.

    A model's own class runs parts of it, which say nothing of that.
    """
    found = uses_in(state, reach, training, origin)
    units = {node: next((u for u in reach.units if node in u.names.parents), None) for node in found}
    named = {n: u for n, u in units.items() if u is not None and isinstance(n, (cst.Name, cst.Attribute))}
    return {unit.names.module.code_for_node(node) for node, unit in named.items()}


def uses_in(state: State, reach: Reach, training: Training, origin: Origin) -> dict[cst.CSTNode, None]:
    """The expressions by which the training runs a model forward, steps an optimizer or iterates a loader."""
    found: dict[cst.CSTNode, None] = {}
    for call, model in training.forwards.items():
        if whole(state, model) == origin and origin in origins(state.values.get(call.func)):
            found[call.func] = None
    for record in (*training.steps, *training.ticks):
        if origin in origins(record.receiver) and isinstance(record.node.func, cst.Attribute):
            found[record.node.func.value] = None
    for loop in (*training.train_loops, *training.eval_loops):
        if origin in reach.loaders(loop) and isinstance(loop, (cst.For, cst.CompFor)):
            nodes = list(descendants(loop.iter))
            found.update({n: None for n in nodes if n in state.values and origin in state.values[n].things})
    return found


def _gives(state: State, unit: Unit, definition: cst.CSTNode, origin: Origin) -> bool:
    """Whether one of a variable's definitions is what puts the thing there (loop targets never are)."""
    if isinstance(definition, cst.Param):
        return True
    if isinstance(definition, cst.ImportAlias):  # `optim = optim.Adam(...)`: the import gives a module
        imported = slot_of(state, full_name(unit, definition))
        return imported is not None and origin in imported.things
    if not isinstance(definition, cst.Name):
        return False
    for around in unit.names.ancestors(definition):
        if isinstance(around, (cst.For, cst.CompFor)):
            return False
        if isinstance(around, (cst.Assign, cst.AnnAssign)):
            return origin in state.slot(definition).things and not _of_turn(unit, around.value)
        if isinstance(around, cst.BaseSmallStatement):
            return False
    return False


def _of_turn(unit: Unit, value: cst.BaseExpression | None) -> bool:
    """Whether a value is what a loop goes through, or a part of it."""
    while isinstance(value, (cst.Subscript, cst.Attribute)):
        value = value.value
    binding = unit.names.binding(value) if isinstance(value, cst.Name) else None
    definitions = binding.definitions if binding is not None else ()
    kinds = (cst.For, cst.CompFor, cst.Assign, cst.AugAssign, cst.AnnAssign, cst.NamedExpr, cst.With)
    around = (next(unit.names.enclosing(d, *kinds), None) for d in definitions)
    return any(
        isinstance(one, (cst.For, cst.CompFor)) and d in set(descendants(one.target))
        for one, d in zip(around, definitions, strict=True)
    )


def _is_around(state: State, unit: Unit, definition: cst.CSTNode, loader: Origin) -> bool:
    """Whether a variable is given something around a loader, which cannot be prepared: ``t = tqdm(loader)``."""
    target = unit.names.parents.get(definition)
    assign = unit.names.parents.get(target) if isinstance(target, cst.AssignTarget) else None
    return loader.role is Role.LOADER and isinstance(assign, cst.Assign) and wraps(state, unit, assign.value, loader)


def held_last(state: State, unit: Unit, expression: cst.BaseExpression, role: Role) -> set[Origin]:
    """What the variables in an expression hold there: nothing that a later assignment has replaced."""
    found: set[Origin] = set()
    for node in descendants(expression):
        held = set(origins(state.values.get(node), role))
        binding = unit.names.binding(node) if isinstance(node, cst.Name) and held else None
        definitions = unshadowed(unit.names, binding, node) if binding is not None else ()
        if definitions and all(isinstance(d, cst.Name) for d in definitions):
            held &= {origin for d in definitions for origin in origins(state.slot(d), role)}
        found |= held
    return found


def _wraps(state: State, unit: Unit, held: Held) -> bool:
    """Whether the name was given the model in its wrapper: that is the one that the script trains."""
    values = (next(unit.names.enclosing(definition, cst.Assign), None) for definition in held.definitions)
    calls = (n for v in values if isinstance(v, cst.Assign) for n in descendants(v.value) if n in state.calls)
    return any(isinstance(n, cst.Call) and process_calls.is_wrapper(outside_name(state.calls[n])) for n in calls)


def _attribute_of(state: State, reach: Reach, code: Code, origin: Origin) -> Held | None:
    """
    The attribute by which some code knows a thing: one that it gives the thing itself, else one that it reads.

    What is only read is in its object since the calls that were given the thing, or gave it; without any, since before
    the code runs. What comes to the code in
    the arguments of such a call is not looked for: it is prepared there, before any object has it.
    """
    unit = reach.unit(code)
    attributes = state.once((_attributes, unit.name), lambda: _attributes(state, unit))
    known = [node for node in attributes.get(code, ()) if origin in state.values[node].things]
    given: list[cst.CSTNode] = [node for node in known if is_target(unit.names, node)]
    if any(_is_around(state, unit, node, origin) for node in given):
        return None
    if given:
        same = [node for node in given if node.deep_equals(given[0])]
        return Held(origin, unit.names.module.code_for_node(given[0]), same)
    known = [node for node in known if not fixed_attribute(state, node)]  # what prepare gives could not be put there
    if not known or (origin.role is Role.LOADER and as_argument(reach, code, origin)) or handed_on(reach, unit, origin):
        return None
    first = min(unit.names.order(node) for node in known)
    calls = (call for call in reach.own(code) if isinstance(call, cst.Call) and unit.names.end(call) < first)
    handing: list[cst.CSTNode] = [call for call in calls if _passes_on(state, call, origin)]
    return Held(origin, unit.names.module.code_for_node(known[0]), handing)


def _attributes(state: State, unit: Unit) -> dict[Code, list[cst.Attribute]]:
    """The attributes that the functions of a module know, methods that they call apart."""
    found: dict[Code, list[cst.Attribute]] = {}
    for node in state.evaluated(unit):
        if isinstance(node, cst.Attribute) and not isinstance(unit.names.parents[node], cst.Call):
            found.setdefault(unit.names.function(node), []).append(node)
    return found


def as_argument(reach: Reach, code: Code, origin: Origin) -> cst.Call | None:
    """The call by which a thing comes to some code, where it is an argument of another: ``Trainer(net, loader_of(x))``;
    None if it is no argument, or if several calls give the thing."""
    values, names = reach.state.values, reach.unit(code).names
    calls = (node for node in reach.own(code) if isinstance(node, cst.Call))
    giving = [call for call in calls if origin in origins(values.get(call), origin.role)]
    first = [call for call in giving if not any(call in names.ancestors(other) for other in giving)]
    return first[0] if len(first) == 1 and isinstance(names.parents.get(first[0]), cst.Arg) else None


def _passes_on(state: State, call: cst.Call, origin: Origin) -> bool:
    """Whether a call gives a thing, or is given it."""
    return origin in origins(state.values.get(call), origin.role) or _is_given(state, call, origin)
