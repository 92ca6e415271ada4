"""Losses as figures: which names hold one, and where the number read off it can be made that of all processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.reasons import Reason
from ...facts.reasons.losses import OwnClosure, OwnLossWeight
from ...facts.roles import TENSORS, Origin, Role
from ...facts.torch_api import questions, surroundings, tensor_parts
from ..dataflow.call_graph import reach_of
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import CallRecord, External, Function, Instance, Mapping, Sequence, State, Unit, origins
from ..syntax.definitions import unpacked_value, unshadowed
from ..syntax.nodes import FunctionNode
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from ..training.training import Training
from .constant_quotients import is_written_number
from .divergence import Equality
from .engine.layout import Layout, Partial, Shard, Unclear, held
from .loop_layouts import layouts_of
from .loss_reductions import reduces_rows, reduction_of
from .presence import asked_for_none
from .writes import Key, WrittenValue


def is_loss_name(state: State, training: Training, unit: Unit, name: cst.Name) -> bool:
    """Whether a name holds, where it is read, one number that the batch's rows were reduced to, and that is trained
    on."""
    roles = {origin.role for origin in _held_there(state, unit, name)}
    trained_on = Role.LOSS in roles or (Role.OUTPUT in roles and _is_backpropagated(training, unit, name))
    return trained_on and reduction_of(state, unit, name) != "rows"  # asked last: a walk through what gives the name


def _held_there(state: State, unit: Unit, name: cst.Name) -> list[Origin]:
    """The tensors that a name holds where it is read: what other loops give the variable is not among them."""
    seen = _seen(unit, name)
    values = [value for definition in seen if (value := assigned(unit, definition)) is not None]
    if not values or len(values) < len(seen):
        return origins(state.values.get(name), *TENSORS)
    return [o for value in values for o in origins(state.values.get(value), *TENSORS)]


def _seen(unit: Unit, name: cst.Name) -> tuple[cst.CSTNode, ...]:
    binding = unit.names.binding(name)
    return unshadowed(unit.names, binding, name) if binding is not None else ()


def is_tensor(state: State, unit: Unit, value: cst.BaseExpression) -> bool:
    """
    Whether what holds or computes a loss certainly is a tensor there: no number that was read off it, no container.

    What a function gives that hands on a number in some cases, or a dict, is none for certain.
    """
    return _is_tensor(state, unit, value, frozenset())


def _holds_tensor(state: State, unit: Unit, name: cst.Name, inside: frozenset[object]) -> bool:
    binding = unit.names.binding(name)
    if binding in inside:
        return True  # what it holds else decides
    seen = unshadowed(unit.names, binding, name) if binding is not None else ()
    anew = [d for d in seen if not isinstance(unit.names.parents.get(d), cst.AugAssign)]
    values = [assigned(unit, definition) for definition in anew]
    below = inside | {binding}
    # a number to which tensors are added is a tensor then: `loss += more`, `loss = loss + more`
    more = [assigned(unit, d) for d in seen if d not in anew]
    adds = any(v is not None and bool(origins(state.values.get(v), *TENSORS)) for v in more)
    adds = adds or any(isinstance(v, cst.BinaryOperation) and _reads(unit, v, binding) for v in values)
    return all(
        _is_tensor(state, unit, value, below) if value is not None else _is_no_number(state, name)
        for value in values
        if not adds or value is None or not is_plain_number(state, unit, value)
    )


def _reads(unit: Unit, value: cst.BaseExpression, binding: Binding | None) -> bool:
    return any(name in unit.names.within and unit.names.binding(name) is binding for name in nodes_in(value, cst.Name))


def _is_tensor(state: State, unit: Unit, value: cst.BaseExpression, inside: frozenset[object]) -> bool:
    """``inside``: the variables and functions that are looked at."""
    if isinstance(value, cst.Name):
        return _holds_tensor(state, unit, value, inside)
    if isinstance(value, cst.BinaryOperation):
        sides = (value.left, value.right)
        return any(origins(state.values.get(s), *TENSORS) and _is_tensor(state, unit, s, inside) for s in sides)
    if isinstance(value, cst.UnaryOperation):
        return _is_tensor(state, unit, value.expression, inside)
    functions = reach_of(state).called(value) if isinstance(value, cst.Call) else []
    if functions and inside.isdisjoint(functions):
        return all(_gives_tensor(state, function, inside | {function}) for function in functions)
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and not functions:
        base = value.func.value
        read = method_name(value)
        gives_numbers = read in questions.leaves_device() or tensor_parts.asks_how(read)
        if not gives_numbers and origins(state.values.get(base), *TENSORS):
            return _is_tensor(state, unit, base, inside)  # of `loss.view(rows, -1)` numbers are only arguments
    return not is_plain_number(state, unit, value) and _is_no_number(state, value)


def _holds_several(state: State, value: cst.BaseExpression) -> bool:
    slot = state.values.get(value)
    return slot is not None and any(isinstance(thing, (Mapping, Sequence)) for thing in slot.things)


def _is_no_number(state: State, value: cst.BaseExpression) -> bool:
    slot = state.values.get(value)
    things = slot.things if slot is not None else ()
    return not origins(slot, Role.LOCAL) and not any(isinstance(t, (Instance, Mapping, Sequence)) for t in things)


def is_plain_number(state: State, unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether a value certainly is a number of Python: ``0``, ``float("inf")``, ``-np.inf``."""
    while isinstance(value, cst.UnaryOperation):
        value = value.expression
    if isinstance(value, cst.Call):
        return value in state.calls and outside_name(state.calls[value]) in ("builtins.float", "builtins.int")
    slot = state.values.get(value)
    outside = [thing.qualified for thing in slot.things if isinstance(thing, External)] if slot is not None else []
    return any(map(surroundings.is_number, outside)) or is_written_number(state, unit, value)


def _is_backpropagated(training: Training, unit: Unit, name: cst.Name) -> bool:
    """Whether a backward pass of the module starts from what a name holds where it is read, by the same variable."""
    binding, seen = unit.names.binding(name), _seen(unit, name)
    for record in training.backwards:
        receiver = record.node.func.value if isinstance(record.node.func, cst.Attribute) else None
        if record.unit is unit and isinstance(receiver, cst.Name) and unit.names.binding(receiver) is binding:
            if not _made_of(unit, receiver).isdisjoint(seen):
                return True
    return False


def _made_of(unit: Unit, name: cst.Name) -> set[cst.CSTNode]:
    """The definitions of a variable from which its value comes where a name reads it: ``loss = loss / 4``."""
    binding = unit.names.binding(name)
    found, pending = set[cst.CSTNode](), [name]
    while pending:
        for definition in set(_seen(unit, pending.pop())) - found:
            found.add(definition)
            value = assigned(unit, definition)
            names = nodes_in(value, cst.Name) if value is not None else ()
            pending += [n for n in names if unit.names.binding(n) is binding]
    return found


def _gives_tensor(state: State, function: FunctionNode, inside: frozenset[object]) -> bool:
    unit = reach_of(state).unit(function)
    if isinstance(function, cst.Lambda):
        return _is_tensor(state, unit, function.body, inside)
    given = [returned.value for returned in unit.names.returns.get(function, ())]
    return bool(given) and all(value is not None and _is_tensor(state, unit, value, inside) for value in given)


def reduced(name: cst.Name, reduction: str, because: str) -> Gather:
    """The mean (or sum) over the processes of a loss, where it is read."""
    return Gather(name, (name.value,), because, form=Form.REDUCE, reduction=reduction)


def _in_brackets(unit: Unit, node: cst.NamedExpr) -> str:
    code = unit.names.module.code_for_node(node)
    return code if node.lpar else f"({code})"


class Reducer:
    """Finds, for a value of one process's own, the losses to reduce so that it is equal on all processes."""

    def __init__(self, state: State, training: Training, equality: Equality) -> None:
        self.state, self.training, self.equality = state, training, equality
        self._conditions: list[cst.CSTNode] = []
        """The conditions that are being made equal: what runs under one then runs on all processes or on none."""

    def whole(
        self, unit: Unit, value: cst.CSTNode, because: str, *, given: Iterable[Binding] = ()
    ) -> list[Gather] | None:
        """The reductions that make a value equal everywhere; None where something else than losses is in it. ``given``:
        variables that are equal once the value is."""
        found: dict[cst.CSTNode, Gather] = {}
        return list(found.values()) if self._collect(unit, value, because, found, set(given)) else None

    def _collect(
        self, unit: Unit, value: cst.CSTNode, because: str, found: dict[cst.CSTNode, Gather], seen: set[Key]
    ) -> bool:
        if self._hidden(unit, value):
            return False
        inside: set[cst.CSTNode] = set()
        for name in self.equality.local_names(unit, value):
            if name in inside:
                continue
            figure = self._figure(unit, value, name)
            if figure is not None:
                of, reduction = figure
                inside.update(descendants(of))
                found[of] = Gather(of, (unit.names.one_line(of),), because, Form.REDUCE, reduction=reduction)
                continue
            if is_loss_name(self.state, self.training, unit, name) and is_tensor(self.state, unit, name):
                reduction = reduction_of(self.state, unit, name)
                if reduction == "mixed" or self._has_rows(unit, name):
                    return False
                if not self._comes_everywhere(unit, name, because, found, seen):
                    return False
                node = unit.names.parents[name]
                if isinstance(node, cst.NamedExpr) and node.target is name:  # while (loss := loss / 2) > limit
                    inside.update(descendants(node))
                    found[node] = Gather(node, (_in_brackets(unit, node),), because, Form.REDUCE, reduction=reduction)
                else:
                    found[name] = reduced(name, reduction, because)
                continue
            binding = unit.names.binding(name)
            if binding is None or not binding.definitions:
                return False
            if binding in seen:
                continue
            seen.add(binding)
            values = [assigned(unit, definition) for definition in binding.definitions]
            own = any(value is not None and self.equality.is_local(unit, value) for value in values)
            if not own and any(value is not None and _holds_several(self.state, value) for value in values):
                return False  # a list that is filled with what is one's own
            for behind in values:
                if behind is None or not self._collect(unit, behind, because, found, seen):
                    return False
        places = [(key, writes) for key, writes in self.equality.local_places(unit, value) if key not in seen]
        seen.update(key for key, _ in places)
        return all(self._collect_given(unit, writes, because, found, seen) for _, writes in places)

    def _collect_given(
        self,
        unit: Unit,
        writes: Iterable[WrittenValue],
        because: str,
        found: dict[cst.CSTNode, Gather],
        seen: set[Key],
    ) -> bool:
        """What makes an attribute, or an object, equal everywhere: the losses that it is given, in the same module."""
        for write in writes:
            plain = write.unit is unit and write.loop is None and isinstance(write.value, cst.CSTNode)
            if not plain or not self._collect(unit, write.node, because, found, seen):
                return False
        return True

    def _comes_everywhere(
        self, unit: Unit, node: cst.CSTNode, because: str, found: dict[cst.CSTNode, Gather], seen: set[Key]
    ) -> bool:
        """Whether a node runs on all processes or on none, once the conditions around it are made equal: the least loss
        so far is kept under a comparison with itself."""
        for test in self._own_tests(unit, node):
            if test in self._conditions:
                continue
            self._conditions.append(test)
            try:
                if not self._collect(unit, test, because, found, seen):
                    return False
            finally:
                self._conditions.pop()
        return True

    def _figure(self, unit: Unit, value: cst.CSTNode, name: cst.Name) -> tuple[cst.BaseExpression, str] | None:
        """The mean or sum that a value takes of the rows of a name, ``(out.argmax(1) == y).float().mean()``, where that
        is a tensor, and how the rows of all processes give it."""
        if not any(map(_is_of_rows, held(layouts_of(self.state).value(unit, name)))):
            return None
        outside = set(unit.names.ancestors(value))
        around: list[cst.CSTNode] = [name, *(node for node, _ in unit.names.outwards(name) if node not in outside)]
        for node in around:
            if isinstance(node, cst.BaseExpression):
                ops = {_reduced_by(one) for one in held(layouts_of(self.state).value(unit, node))}
                if len(ops) == 1 and (op := ops.pop()) and is_tensor(self.state, unit, node):
                    return (node, op) if self._everywhere(unit, node) else None
        return None

    def _has_rows(self, unit: Unit, name: cst.Name) -> bool:
        """Whether a name certainly has an entry for each row."""
        layouts = held(layouts_of(self.state).value(unit, name))
        return any(_is_of_rows(one) and not (isinstance(one, Shard) and one.assumed) for one in layouts)

    def is_mean(self, unit: Unit, name: cst.Name) -> bool:
        """Whether a variable is a mean of the rows of this process, where all processes come by."""
        mean = reduction_of(self.state, unit, name) == "mean" and reduces_rows(self.state, unit, name)
        return mean and is_tensor(self.state, unit, name) and self._everywhere(unit, name)

    def _hidden(self, unit: Unit, value: cst.CSTNode) -> bool:
        """Whether a call gives what is one process's own and was not handed to it, ``score = validate(data_set)``; or
        each process asks by itself whether there is a value, ``loss is None``: what is not there cannot be reduced."""
        if any(asked_for_none(node) is not None and self.equality.is_local(unit, node) for node in descendants(value)):
            return True
        calls = nodes_in(value, cst.Call)
        return any(self.equality.is_local(unit, c) and not self.equality.local_names(unit, c) for c in calls)

    def _everywhere(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether a node runs on all processes or on none."""
        return not self._own_tests(unit, node)

    def _own_tests(self, unit: Unit, node: cst.CSTNode) -> list[cst.BaseExpression]:
        """The conditions around a node that may be true on some of the processes only."""
        around = [t.test for t in unit.names.enclosing(node, cst.If, cst.While) if isinstance(t, (cst.If, cst.While))]
        return [test for test in around if self.equality.is_local(unit, test) and node not in set(descendants(test))]


def _is_of_rows(layout: Layout) -> bool:
    """Whether a value has an entry for each row."""
    return isinstance(layout, Shard) or (isinstance(layout, Unclear) and layout.compared)


def _reduced_by(layout: Layout) -> str:
    """How the figures of all processes give that of all rows, exactly or nearly: "mean" or "sum"; else ""."""
    if isinstance(layout, Partial):
        return layout.op if layout.host is False else ""
    return layout.near if isinstance(layout, Unclear) and layout.near in ("mean", "sum") else ""


def assigned(unit: Unit, definition: cst.CSTNode) -> cst.BaseExpression | None:
    """What an assignment gives to a name; None for parameters, loop targets and what a call gives to several."""
    parent = unit.names.parents.get(definition)
    if isinstance(parent, (cst.AugAssign, cst.NamedExpr)):
        return parent.value
    above = unit.names.parents.get(parent) if isinstance(parent, cst.AssignTarget) else None
    if isinstance(parent, cst.Element):  # ``best, last = 9.0, 0.0``
        return unpacked_value(unit.names, definition)
    return above.value if isinstance(above, cst.Assign) else None


def weights(state: State, reducer: Reducer, record: CallRecord, operand: cst.CSTNode) -> Iterator[Gather | Reason]:
    """
    Numbers of one process's own that are in a loss: ``(loss * loss.item()).backward()``, a weight that each step moves
    on by ``k = k + rate * gap.item()``.
    """
    unit = record.unit
    seen: set[cst.CSTNode] = set()
    pending: list[cst.CSTNode] = [operand]
    while pending:
        whole = pending.pop()
        for name in nodes_in(whole, cst.Name):
            binding = unit.names.binding(name)
            if binding is None or not origins(state.binding(binding)):
                continue
            definitions = [d for d in unshadowed(unit.names, binding, name) if d not in seen]
            seen.update(definitions)
            values = [v for d in definitions if (v := assigned(unit, d)) is not None]
            if name is whole:  # a number under the same name, a figure that is reported, has no backward pass
                values = [v for v in values if not (o := origins(state.values.get(v))) or _has_tensor(o)]
            if origins(state.binding(binding), *TENSORS):
                pending.extend(values)
            elif any(reducer.equality.is_local(unit, value) and _numbers(value) for value in values):
                yield from _weight(reducer, unit, name, values)


def _has_tensor(held: Iterable[Origin]) -> bool:
    return any(origin.role in TENSORS for origin in held)


def _numbers(value: cst.BaseExpression) -> set[cst.Name]:
    """The tensors whose numbers are in an expression."""
    return {base for n in nodes_in(value, cst.Call) if (base := read_off(n)) is not None}


def _weight(
    reducer: Reducer, unit: Unit, name: cst.Name, values: Iterable[cst.BaseExpression]
) -> Iterator[Gather | Reason]:
    because = "the loss is weighted with {}, and each process holds only its shard"
    binding = unit.names.binding(name)
    for value in values:
        means = [base for base in _numbers(value) if reducer.is_mean(unit, base)]
        rest = [n for n in reducer.equality.local_names(unit, value) if unit.names.binding(n) is not binding]
        if rest and set(rest) <= set(means):
            yield from (reduced(base, "mean", because) for base in rest)
            continue
        found = reducer.whole(unit, value, because) if rest else []
        if found is None:
            yield OwnLossWeight(value, name.value)
        else:
            yield from found


def printed(reducer: Reducer, unit: Unit, call: cst.CSTNode, because: str) -> Iterator[Gather]:
    """
    The losses in a print, to be made those of all processes; none where something else in it cannot be.

    In an f-string no other text can be written, before Python 3.12, and so only sums are: their reduction needs none.
    """
    for gather in reducer.whole(unit, call, because) or ():
        texts = isinstance(next(unit.names.enclosing(gather.node, cst.FormattedString), None), cst.FormattedString)
        if not texts:
            yield gather
        elif gather.reduction == "sum":
            yield gather._replace(reduction="")


def closures(state: State, unit: Unit, training: Training) -> Iterator[Gather | Reason]:
    """What the closures of an optimizer return that decides by it how far it goes: LBFGS, with or without a search."""
    for record in training.steps:
        held = origins(record.receiver, Role.OPTIMIZER)
        if record.first is None or not any(o.qualified.endswith("LBFGS") for o in held):
            continue
        for function in (t for t in record.first.things if isinstance(t, Function) and t.unit is unit):
            for value in (r.value for r in unit.names.returns.get(function.node, ()) if r.value is not None):
                name = value if isinstance(value, cst.Name) else read_off(value)
                if name is not None and is_loss_name(state, training, unit, name) and is_tensor(state, unit, name):
                    because = "the optimizer chooses its step from {}, and each process holds only its shard"
                    yield reduced(name, reduction_of(state, unit, name), because)
                elif not _is_reduced(state, value):
                    yield OwnClosure(value)


def _is_reduced(state: State, value: cst.BaseExpression) -> bool:
    calls = (n for n in nodes_in(value, cst.Call) if n in state.calls)
    return any(origins(state.calls[call].receiver, Role.ACCELERATOR) for call in calls)


def read_off(value: cst.BaseExpression) -> cst.Name | None:
    """The tensor whose number an expression is, and nothing more: ``loss.item()``, ``float(loss.detach())``."""
    if not isinstance(value, cst.Call):
        return None
    base: cst.CSTNode | None = None
    if isinstance(value.func, cst.Attribute) and value.func.attr.value == "item":
        base = value.func.value
    elif isinstance(value.func, cst.Name) and value.func.value == "float" and len(value.args) == 1:
        base = value.args[0].value
    while base is not None and not isinstance(base, cst.Name):
        inner = base.func if isinstance(base, cst.Call) and not base.args else base
        plain = isinstance(inner, cst.Attribute) and inner.attr.value in ("detach", "data", "cpu", "float")
        base = inner.value if plain and isinstance(inner, cst.Attribute) else None
    return base
