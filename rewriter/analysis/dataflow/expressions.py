"""What an expression can evaluate to: edges from its parts to its value."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import partial

import libcst as cst

from ...facts.roles import SHARES, TENSORS, Origin, Role
from ...facts.spellings import DEVICE_WORDS
from ...facts.torch_api import questions, tensor_parts
from ..syntax.definitions import unshadowed
from ..syntax.nodes import dotted
from ..syntax.scopes import Binding
from ..syntax.walk import children
from . import modules, ranks, registries
from .call_binding import trailing
from .calls import call_of
from .containers import (
    at,
    at_position,
    bind_self,
    draws,
    element,
    elements,
    key_of,
    layers,
    members,
    named_layers,
    note_part,
    put_in,
)
from .solver import Slot, Thing
from .trails import OF_ITS_OWN, Trace, Trail, counts_rows_of
from .values import External, Inner, Instance, Klass, Mapping, Sequence, State, Unit, Unknown

_BUILTINS = frozenset(dir(builtins))
PARAMETERS = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")


def evaluate(state: State, unit: Unit, node: cst.BaseExpression) -> Slot:
    """The slot of an expression's value; its flow is built on the first visit."""
    if node in state.values:
        return state.values[node]
    slot = state.slot(node)
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        handler(state, unit, node, slot)
    else:
        _inside(state, unit, node)
    return slot


def _inside(state: State, unit: Unit, node: cst.CSTNode) -> None:
    """Evaluate all expressions below a node whose own value does not matter."""
    for child in children(node):
        if isinstance(child, cst.BaseExpression):
            evaluate(state, unit, child)
        else:
            _inside(state, unit, child)


def _name(state: State, unit: Unit, node: cst.Name, slot: Slot) -> None:
    scope = unit.names.within.get(node)
    binding = scope.lookup(node.value) if scope is not None else None
    if binding is not None:
        for held in _held_at(state, unit, binding, node):
            state.solver.flow(held, slot)
            if held is not state.binding(binding):
                state.solver.watch(held, partial(_saved, state, state.binding(binding), slot))
    elif node.value in _BUILTINS:
        state.solver.add(slot, state.external(f"builtins.{node.value}"))
    else:
        found = modules.starred(state, unit, node.value)
        if found is not None:
            state.solver.flow(found, slot)


def _held_at(state: State, unit: Unit, binding: Binding, read: cst.Name) -> list[Slot]:
    """What a variable holds where it is read: nothing that a later assignment of the same code has certainly
    replaced. Of one that other code sets as well, all that it ever holds."""
    names, code = unit.names, unit.names.function(read)
    several = len(binding.definitions) > 1 and binding.scope.node is code
    if several and all(names.function(definition) is code for definition in binding.definitions):
        seen = unshadowed(names, binding, read)
        if len(seen) < len(binding.definitions) and all(isinstance(definition, cst.Name) for definition in seen):
            return [state.slot(definition) for definition in seen]
    return [state.binding(binding)]


def _saved(state: State, ever: Slot, slot: Slot, thing: Thing) -> None:
    """What comes out of a file is such a thing as the variable holds on other paths: the model that was saved."""
    if isinstance(thing, Origin) and thing.role is Role.CHECKPOINT:
        state.solver.flow(ever, slot)


def outside(state: State, qualified: str, slot: Slot) -> None:
    """Let a slot hold what a full name means: a variable of the program's modules, else something outside."""
    found = modules.slot_of(state, qualified)
    if found is not None:
        state.solver.flow(found, slot)
    else:
        state.solver.add(slot, state.external(qualified))


def _attribute(state: State, unit: Unit, node: cst.Attribute, slot: Slot) -> None:
    name = node.attr.value
    parent = unit.names.parents.get(node)
    called = isinstance(parent, cst.Call) and parent.func is node
    listed = isinstance(parent, cst.Element) or (isinstance(parent, cst.Arg) and not called)

    def arrive(thing: Thing) -> None:
        if isinstance(thing, External):
            if not thing.is_none:
                outside(state, f"{thing.qualified}.{name}", slot)
        elif listed and isinstance(thing, Origin) and thing.role is Role.MODEL:
            _parameter(state, node, thing, name, slot)
        elif called:
            state.solver.add(slot, state.bound(thing, name))
            if isinstance(thing, (Origin, Instance, Unknown, Klass)):
                _held(state, thing, name, slot)
            elif isinstance(thing, Mapping):
                attribute(state, node, thing, name, slot)
        else:
            attribute(state, node, thing, name, slot)

    state.solver.watch(evaluate(state, unit, node.value), arrive)


def _held(state: State, thing: Thing, name: str, slot: Slot) -> None:
    """Let a slot hold what an attribute of a thing, or of its class, was given; a copy of a model has copies of its
    layers."""
    state.solver.flow(state.field(thing, name), slot)
    klass = state.class_of(thing)
    if klass is not None:
        state.solver.flow(state.field(klass, name), slot)
    elif isinstance(thing, Origin) and name not in questions.of_modules() and not hasattr(dict, name):
        named_layers(state, thing, name, slot)
    if isinstance(thing, Origin) and thing.role is Role.MODEL and thing.source is not None:
        state.solver.flow(state.field(thing.source, name), slot)


def _parameter(state: State, node: cst.Attribute, model: Origin, name: str, slot: Slot) -> None:
    """Let a list (or a call) hold a parameter of a model as such: ``[model.scale, model.head.bias]``."""
    found = state.origin(Role.PARAMETERS, node, "a parameter of a model", "", model)
    if model not in state.klass and name.startswith(("weight", "bias")):
        state.solver.add(slot, found)
    seen = Slot()
    attribute(state, node, model, name, seen)

    def made(thing: Thing) -> Thing:
        return found if isinstance(thing, Unknown) and thing.qualified in PARAMETERS else thing

    state.solver.flow(seen, slot, made)


def attribute(state: State, node: cst.CSTNode, thing: Thing, name: str, slot: Slot) -> None:
    """Let a slot hold what reading an attribute of a thing gives."""
    solver = state.solver
    if isinstance(thing, Inner) and name in ("weight", "bias"):
        solver.add(slot, state.origin(Role.PARAMETERS, node, "a parameter of a module of a model", "", thing.model))
    if isinstance(thing, Trace) and thing.trail not in (Trail.FILE, *OF_ITS_OWN):
        solver.add(slot, thing)
    if isinstance(thing, Unknown) and name == "local_rank":  # an option that launchers of old gave to scripts
        solver.add(slot, ranks.place(state, node, ranks.LOCAL_RANK))
    if isinstance(thing, Origin):
        if name == "device":
            because = "the accelerator's device" if thing.role is Role.ACCELERATOR else "the device of something else"
            solver.add(slot, state.origin(Role.DEVICE, node, because, "follows"))
        elif thing.role in TENSORS:
            solver.add(slot, state.local(thing) if name == "shape" or tensor_parts.describes(name) else thing)
        elif thing.role is Role.LOCAL or (thing.role is Role.MODEL and name == "module"):
            solver.add(slot, thing)
        elif thing.role is Role.DEVICE and thing.qualified == "follows" and name == "type":
            solver.add(slot, thing)  # a name of the same device
        elif thing.role is Role.LOADER and name == "dataset":
            solver.add(slot, state.origin(Role.DATASET, thing.node, "the data set of a loader"))
    if isinstance(thing, (Origin, Instance, Unknown)):
        _held(state, thing, name, slot)
        klass = state.class_of(thing)
        if klass is not None:
            method = klass.method(name)
            if method is not None and method.decorated("property", "cached_property"):
                bind_self(state, thing, method)
            elif method is not None:
                solver.add(slot, state.bound(thing, name))
    elif isinstance(thing, Mapping) and not hasattr(dict, name):  # kept in an object that gives its items as attributes
        solver.flow(state.entry(thing, name), slot)
        solver.flow(thing.rest, slot)
    elif isinstance(thing, Klass):
        _held(state, thing, name, slot)
        method = thing.method(name)
        if method is not None:
            solver.add(slot, method)


def _call(state: State, unit: Unit, node: cst.Call, slot: Slot) -> None:
    call_of(state, unit, node, slot, evaluate)


def _tuple(state: State, unit: Unit, node: cst.Tuple | cst.List | cst.Set, slot: Slot) -> None:
    sequence = state.sequence(node)
    starred = False
    for entry in node.elements:
        value = evaluate(state, unit, entry.value)
        starred = starred or isinstance(entry, cst.StarredElement)
        if starred:
            state.solver.flow(element(state, value) if isinstance(entry, cst.StarredElement) else value, sequence.rest)
        else:
            sequence.items.append(value)
    state.solver.add(slot, sequence)
    if isinstance(node, cst.Set):
        state.solver.add(slot, state.trace(node, Trail.SET))


def _dict(state: State, unit: Unit, node: cst.Dict, slot: Slot) -> None:
    mapping = state.mapping(node)
    for entry in node.elements:
        value = evaluate(state, unit, entry.value)
        if isinstance(entry, cst.DictElement):
            evaluate(state, unit, entry.key)
            key = key_of(entry.key)
            state.solver.flow(value, state.entry(mapping, key))
        else:
            state.solver.flow(members(state, value), mapping.rest)
    state.solver.add(slot, mapping)


def _comprehension(state: State, unit: Unit, node: cst.BaseComp, slot: Slot) -> None:
    clause: cst.CompFor | None = node.for_in
    while clause is not None:
        bind_loop(state, unit, clause, clause.iter, clause.target)
        for test in clause.ifs:
            evaluate(state, unit, test.test)
        clause = clause.inner_for_in
    if isinstance(node, cst.DictComp):
        evaluate(state, unit, node.key)
        mapping = state.mapping(node)
        state.solver.flow(evaluate(state, unit, node.value), mapping.rest)
        state.solver.add(slot, mapping)
    elif isinstance(node, (cst.ListComp, cst.SetComp, cst.GeneratorExp)):
        sequence = state.sequence(node)
        state.solver.flow(evaluate(state, unit, node.elt), sequence.rest)
        state.solver.add(slot, sequence)
        if isinstance(node, cst.SetComp):
            state.solver.add(slot, state.trace(node, Trail.SET))


def bind_loop(
    state: State, unit: Unit, loop: cst.CSTNode, iterable: cst.BaseExpression, target: cst.BaseExpression
) -> None:
    """Let the target of a loop (or a comprehension's clause) hold the elements of what is iterated."""
    source = evaluate(state, unit, iterable)
    opened: set[Thing] = set()
    """What a loop rebinds may wrap itself (``loader = tqdm(loader)``): it is opened once."""

    def arrive(thing: Thing) -> None:
        if isinstance(thing, Origin) and thing.role is Role.LOADER:
            state.loaders.setdefault(loop, {})[thing] = None
        elif isinstance(thing, Unknown):
            state.used(thing, "iterated")
        elif isinstance(thing, Instance) and thing not in opened:
            opened.add(thing)
            method = thing.klass.method("__iter__")
            if method is not None:  # an object of the program's own around a loader
                state.solver.watch(state.returns(method.node), arrive)
        elif isinstance(thing, Sequence) and thing not in opened:
            opened.add(thing)
            for wrapped in thing.wraps:
                state.solver.watch(wrapped, arrive)

    state.solver.watch(source, arrive)
    assign(state, unit, target, element(state, source))


def assign(state: State, unit: Unit, target: cst.CSTNode, value: Slot) -> None:
    """Let an assignment's target hold a value."""
    if isinstance(target, cst.Name):
        scope = unit.names.within[target]
        binding = scope.lookup(target.value)
        if binding is not None:
            state.solver.flow(value, state.binding(binding))
            state.solver.flow(value, state.slot(target))
    elif isinstance(target, (cst.Tuple, cst.List)):
        for position, entry in enumerate(target.elements):
            starred = isinstance(entry, cst.StarredElement)
            assign(state, unit, entry.value, element(state, value) if starred else at(state, value, position))
    elif isinstance(target, cst.Attribute):
        _assign_attribute(state, unit, target, value)
    elif isinstance(target, cst.Subscript):
        _assign_item(state, unit, target, value)


def _assign_attribute(state: State, unit: Unit, target: cst.Attribute, value: Slot) -> None:
    name = target.attr.value

    def arrive(thing: Thing) -> None:
        if isinstance(thing, (Origin, Instance, Unknown, Klass)):
            state.solver.flow(value, state.field(thing, name))
        elif isinstance(thing, Mapping):
            state.solver.flow(value, state.entry(thing, name))
        if isinstance(thing, Origin) and thing.role is Role.MODEL:
            state.solver.watch(value, lambda part: note_part(state, thing, part))

    state.solver.watch(evaluate(state, unit, target.value), arrive)
    state.solver.flow(value, state.slot(target))


def _assign_item(state: State, unit: Unit, target: cst.Subscript, value: Slot) -> None:
    key = key_of(_index(target))

    def arrive(thing: Thing) -> None:
        if isinstance(thing, Mapping):
            state.solver.flow(value, state.entry(thing, key))
        elif isinstance(thing, Sequence):
            state.solver.flow(value, thing.rest)
        elif isinstance(thing, Origin):
            put_in(state, thing, value)

    state.solver.watch(evaluate(state, unit, target.value), arrive)
    for part in target.slice:
        _inside(state, unit, part)


def _index(node: cst.Subscript) -> cst.BaseExpression | None:
    """The one index of a subscript; None for a slice or several."""
    first = node.slice[0].slice
    return first.value if len(node.slice) == 1 and isinstance(first, cst.Index) else None


def _subscript(state: State, unit: Unit, node: cst.Subscript, slot: Slot) -> None:
    for part in node.slice:
        _inside(state, unit, part)
    index = _index(node)
    if counts_rows_of(node) is not None:
        state.solver.add(slot, state.trace(node, Trail.LENGTH))

    def arrive(thing: Thing) -> None:
        if isinstance(thing, Origin):
            if thing.role in SHARES or thing.role in (Role.CHECKPOINT, Role.STATE, Role.PARAMETERS):
                state.solver.add(slot, thing)
            elif index is not None:
                layers(state, thing, slot)
                named_layers(state, thing, key_of(index), slot)
            elif isinstance(node.slice[0].slice, cst.Slice):  # some of its layers
                some = state.sequence(node, "layers")
                layers(state, thing, some.rest)
                state.solver.add(slot, some)
        elif isinstance(thing, Trace):
            state.solver.add(slot, thing)
        elif isinstance(thing, Sequence) and isinstance(index, cst.Integer):
            at_position(state, thing, index.evaluated_value, slot)
        elif isinstance(thing, Mapping) and index is not None and (key := key_of(index)) is not None:
            state.solver.flow(state.entry(thing, key), slot)
            state.solver.flow(thing.rest, slot)
        elif isinstance(thing, Mapping):
            state.solver.flow(thing.values, slot)
        elif isinstance(thing, Sequence) and index is None:
            state.solver.add(slot, thing)  # some of its elements
        elif isinstance(thing, Sequence):
            elements(state, thing, slot)
        elif isinstance(thing, Unknown):
            state.solver.flow(state.field(thing, "[]"), slot)
            if draws(thing):
                state.solver.add(slot, thing)
        elif isinstance(thing, External) and thing.qualified == "sys.modules" and dotted(index) == "__name__":
            state.solver.add(slot, state.external(unit.name))
        elif isinstance(thing, External) and thing.qualified.endswith(registries.TABLE):
            registries.looked_up(state, unit, thing.qualified.removesuffix(registries.TABLE), key_of(index), slot)
        elif isinstance(thing, External):
            ranks.item(state, node, thing, key_of(index), slot)

    base = evaluate(state, unit, node.value)
    state.solver.watch(base, arrive)


def _string(state: State, unit: Unit, node: cst.SimpleString, slot: Slot) -> None:
    text = node.evaluated_value
    if isinstance(text, str) and text.partition(":")[0] in DEVICE_WORDS:
        state.solver.add(slot, state.origin(Role.DEVICE, node, f"the device name {text!r}", "str"))


def _branches(state: State, unit: Unit, node: cst.IfExp, slot: Slot) -> None:
    evaluate(state, unit, node.test)
    state.solver.flow(evaluate(state, unit, node.body), slot)
    state.solver.flow(evaluate(state, unit, node.orelse), slot)


def _either(state: State, unit: Unit, node: cst.BooleanOperation, slot: Slot) -> None:
    state.solver.flow(evaluate(state, unit, node.left), slot)
    state.solver.flow(evaluate(state, unit, node.right), slot)


def _shares(thing: Thing) -> Thing | None:
    return thing if isinstance(thing, Origin) and thing.role in SHARES else None


def _listed(thing: Thing) -> Thing | None:
    """Let lists pass, and parameters: ``list(a.parameters()) + list(b.parameters())``."""
    parameters = isinstance(thing, Origin) and thing.role is Role.PARAMETERS
    return thing if isinstance(thing, Sequence) or parameters else None


def _sets(thing: Thing) -> Thing | None:
    """Let sets pass: ``words | more``, ``words - rare``."""
    return thing if isinstance(thing, Trace) and thing.trail is Trail.SET else None


def _arithmetic(state: State, unit: Unit, node: cst.BinaryOperation, slot: Slot) -> None:
    ranks.computed(state, node, evaluate(state, unit, node.left), evaluate(state, unit, node.right), slot)
    for side in (node.left, node.right):
        value = evaluate(state, unit, side)
        state.solver.flow(value, slot, _shares)
        state.solver.flow(value, slot, _listed)
        if not isinstance(node.operator, cst.Subtract):  # the difference of two times is no name
            state.solver.flow(value, slot, trailing)
        if side is node.left or not isinstance(node.operator, cst.Subtract):
            state.solver.flow(value, slot, _sets)


def _formatted(state: State, unit: Unit, node: cst.FormattedString, slot: Slot) -> None:
    for part in node.parts:
        if isinstance(part, cst.FormattedStringText) and part is node.parts[0]:
            if part.value.endswith(":") and part.value[:-1] in DEVICE_WORDS:
                state.solver.add(slot, state.origin(Role.DEVICE, node, "the name of a device", "str"))
        elif isinstance(part, cst.FormattedStringExpression):
            state.solver.flow(evaluate(state, unit, part.expression), slot, trailing)
            _inside(state, unit, part)


def _joined(state: State, unit: Unit, node: cst.ConcatenatedString, slot: Slot) -> None:
    for side in (node.left, node.right):
        state.solver.flow(evaluate(state, unit, side), slot, trailing)


def _comparison(state: State, unit: Unit, node: cst.Comparison, slot: Slot) -> None:
    sides = [evaluate(state, unit, side) for side in (node.left, *(t.comparator for t in node.comparisons))]
    for side in sides:
        state.solver.flow(side, slot, _shares)
    ranks.compared(state, node, sides, slot)


def _unary(state: State, unit: Unit, node: cst.UnaryOperation, slot: Slot) -> None:
    state.solver.flow(evaluate(state, unit, node.expression), slot, _shares)


def _walrus(state: State, unit: Unit, node: cst.NamedExpr, slot: Slot) -> None:
    value = evaluate(state, unit, node.value)
    assign(state, unit, node.target, value)
    state.solver.flow(value, slot)


def _lambda(state: State, unit: Unit, node: cst.Lambda, slot: Slot) -> None:
    state.solver.add(slot, unit.function(node))
    state.solver.flow(evaluate(state, unit, node.body), state.returns(node))


def _yield(state: State, unit: Unit, node: cst.Yield, slot: Slot) -> None:
    function = unit.names.function(node)
    given = state.sequence(function, "generator")
    if isinstance(node.value, cst.From):
        source = evaluate(state, unit, node.value.item)
        state.solver.flow(element(state, source), given.rest)
        given.wraps.append(source)
    elif node.value is not None:
        state.solver.flow(evaluate(state, unit, node.value), given.rest)
        loops = unit.names.enclosing(node, cst.For)
        given.wraps.extend(evaluate(state, unit, loop.iter) for loop in loops if isinstance(loop, cst.For))
    state.solver.add(state.returns(function), given)


def _awaited(state: State, unit: Unit, node: cst.Await, slot: Slot) -> None:
    state.solver.flow(evaluate(state, unit, node.expression), slot)


_HANDLERS: dict[type[cst.CSTNode], Callable[..., None]] = {
    cst.Name: _name,
    cst.Attribute: _attribute,
    cst.Call: _call,
    cst.Tuple: _tuple,
    cst.List: _tuple,
    cst.Set: _tuple,
    cst.Dict: _dict,
    cst.ListComp: _comprehension,
    cst.SetComp: _comprehension,
    cst.GeneratorExp: _comprehension,
    cst.DictComp: _comprehension,
    cst.Subscript: _subscript,
    cst.SimpleString: _string,
    cst.FormattedString: _formatted,
    cst.ConcatenatedString: _joined,
    cst.IfExp: _branches,
    cst.BooleanOperation: _either,
    cst.BinaryOperation: _arithmetic,
    cst.Comparison: _comparison,
    cst.UnaryOperation: _unary,
    cst.NamedExpr: _walrus,
    cst.Lambda: _lambda,
    cst.Yield: _yield,
    cst.Await: _awaited,
}
