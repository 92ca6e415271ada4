"""
Whether a loss is the sum or the mean over a batch: a sum must be scaled up again when processes average.

Read off the expressions that make it: the outermost reduction decides. A sum that is divided by a number of the batch
(its size, a mask's sum) is a mean; divided by a constant it stays a sum.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.roles import SHARES, TENSORS, Origin, Role
from ...facts.torch_api import questions
from ...facts.torch_api.kinds.training import Criterion, Loss
from ...facts.torch_api.loading import transfer
from ..dataflow.callees import method_name, outside_names
from ..dataflow.constant_values import Given, constants_of
from ..dataflow.solver import Thing
from ..dataflow.values import CallRecord, Function, Instance, Klass, State, Unit, origins
from ..syntax.definitions import bindings_value, plain_values, seen_values, unshadowed
from ..syntax.nodes import positional
from ..syntax.scopes import Binding
from ..syntax.walk import descendants
from .loss_arguments import asked_reduction, built_with

_DEPTH = 8
_STEPS = 2
"""How many variables are followed to a count: `count = mask.sum()`, `n = max(count, 1)`."""
_COUNTING = frozenset(("sum", "count_nonzero"))
_COUPLING = frozenset("log log10 log2 log1p sqrt exp".split())


def reduction_of(state: State, unit: Unit, expression: cst.BaseExpression) -> str:
    """
    ``mean``, ``sum``, or ``mixed`` for what an expression gives; ``mean`` where nothing says otherwise.

    ``rows`` is a loss for each row, which nothing has reduced yet.
    """
    found = _ReductionReader(state).read(unit, expression, 0)
    if not found:
        return "mean"
    return found.pop() if len(found) == 1 else "mixed"


def divided_by_count(state: State, unit: Unit, expression: cst.BaseExpression) -> tuple[Unit, cst.CSTNode] | None:
    """Where a sum in a loss is divided by what is counted in the batch: ``(loss * mask).sum() / mask.sum()``."""
    reader = _ReductionReader(state)
    reader.read(unit, expression, 0)
    return next(iter(reader.counts), None)


def open_reduction(state: State, unit: Unit, expression: cst.BaseExpression) -> tuple[Unit, cst.CSTNode] | None:
    """The loss in an expression whose reduction is an option, or is computed; None if there is none."""
    reader = _ReductionReader(state)
    reader.read(unit, expression, 0)
    return next(iter(reader.open), None)


def reduces_rows(state: State, unit: Unit, expression: cst.BaseExpression) -> bool:
    """Whether an expression is certainly one number that the rows of a batch were reduced to."""
    return not {"rows"}.issuperset(_ReductionReader(state).read(unit, expression, 0))


def is_curved(state: State, unit: Unit, node: cst.CSTNode) -> bool:
    """``torch.sqrt(mse)``, ``mse ** 0.5``, ``total.log()`` of what the rows of the batch were reduced to."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Power):
        return isinstance(node.right, cst.Float) and reduces_rows(state, unit, node.left)
    if not isinstance(node, cst.Call) or method_name(node) not in ("log", "log2", "log10", "sqrt", "rsqrt"):
        return False
    operand = node.func.value if isinstance(node.func, cst.Attribute) else None
    operands = [*(arg.value for arg in node.args[:1]), *([operand] if operand is not None and not node.args else [])]
    operands += [value.right for value in operands if isinstance(value, cst.BinaryOperation)]
    return any(reduces_rows(state, unit, value) for value in operands)


class _ReductionReader:
    """Reads reductions off expressions, through variables and functions of the program."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.constants = constants_of(state)
        self.frames: list[tuple[Function, CallRecord, bool]] = []
        """The functions that are being read, how they are called, and whether their first parameter is the object."""

        self.kept: set[cst.BaseExpression] = set()
        """What attributes are given that are being read."""
        self.counts: list[tuple[Unit, cst.CSTNode]] = []
        """The counts of a batch that sums were divided by: `mask.sum()`."""
        self.open: list[tuple[Unit, cst.CSTNode]] = []
        """The losses whose reduction is not known."""

    def read(self, unit: Unit, node: cst.BaseExpression, depth: int) -> set[str]:
        """The reductions of the terms of a tensor expression."""
        if depth > _DEPTH:
            return set()
        if isinstance(node, cst.BinaryOperation):
            return self._arithmetic(unit, node, depth)
        if isinstance(node, (cst.List, cst.Tuple)):
            return self._members(unit, node, depth)
        if isinstance(node, cst.UnaryOperation):
            return self.read(unit, node.expression, depth + 1)
        if isinstance(node, cst.IfExp):
            holds = self.constants.holds(unit, node.test, self._constants())
            if holds is not None:
                return self.read(unit, node.body if holds else node.orelse, depth + 1)
            return self.read(unit, node.body, depth + 1) | self.read(unit, node.orelse, depth + 1)
        if isinstance(node, cst.Call):
            return self._call(unit, node, depth)
        if isinstance(node, cst.Name):
            binding = unit.names.binding(node)
            if binding is None:
                return set()
            seen = unshadowed(unit.names, binding, node)
            divisors = list(filter(None, (_divisor(unit, definition) for definition in seen)))
            values = [v for v in bindings_value(unit.names, binding, seen) if v is not node and v not in divisors]
            if not values and self.frames:
                return self._handed(binding, depth)
            parts = dict(filter(None, (_unpacked(unit, definition) for definition in seen)))
            words = {
                word
                for value in values
                for word in (
                    self._call(unit, value, depth + 1, parts[value])
                    if isinstance(value, cst.Call) and value in parts
                    else self.read(unit, value, depth + 1)
                )
            }
            for divisor in divisors:
                words = self._divided(unit, words, divisor)
            return words
        if isinstance(node, cst.Attribute):
            return self._kept(node, depth)
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Call):
            index = node.slice[0].slice
            if isinstance(index, cst.Index) and isinstance(index.value, cst.Integer):
                return self._call(unit, node.value, depth + 1, index.value.evaluated_value)
        return set()

    def _kept(self, node: cst.Attribute, depth: int) -> set[str]:
        """What methods of the program's classes keep in an attribute of their object: `self.loss = x.sum()`."""
        held = self.state.values.get(node.value)
        words: set[str] = set()
        for thing in held.things if held is not None else ():
            klass = thing.klass if isinstance(thing, Instance) else self.state.klass.get(thing)
            for unit, value in _attribute_values(klass, node.attr.value) if klass is not None else ():
                if value is not node and value not in self.kept:
                    self.kept.add(value)
                    frames, self.frames = self.frames, []
                    words |= self.read(unit, value, depth + 1)
                    self.frames = frames
                    self.kept.discard(value)
        return words

    def _arithmetic(self, unit: Unit, node: cst.BinaryOperation, depth: int) -> set[str]:
        left, right = self.read(unit, node.left, depth + 1), self.read(unit, node.right, depth + 1)
        if isinstance(node.operator, (cst.Divide, cst.FloorDivide)):
            return self._divided(unit, left, node.right)
        if isinstance(node.operator, cst.Multiply) and "sum" in left | right:
            other = node.right if "sum" in left else node.left
            if self._is_weight(unit, other, depth):
                return {"mean"}
        return left | right

    def _divided(self, unit: Unit, words: set[str], divisor: cst.BaseExpression) -> set[str]:
        """A sum that is divided by a number of the batch is a mean; divided by a constant it stays a sum."""
        if "sum" not in words:
            return words
        if _is_count(unit, divisor):
            self.counts.append((unit, divisor))
        elif not self._is_of_batch(divisor):
            return words
        return {"mean"}

    def _is_of_batch(self, divisor: cst.BaseExpression) -> bool:
        """The number of rows, or another that is computed from the batch."""
        return bool(origins(self.state.values.get(divisor), *SHARES)) or _is_length(divisor)

    def _is_weight(self, unit: Unit, node: cst.BaseExpression, depth: int) -> bool:
        """``1 / len(x)``, and a variable that holds it: what makes a mean of a sum."""
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
            return self._is_of_batch(node.right)
        values = seen_values(unit.names, node) if isinstance(node, cst.Name) and depth < _DEPTH else []
        return bool(values) and all(self._is_weight(unit, value, _DEPTH) for value in values)

    def _call(self, unit: Unit, node: cst.Call, depth: int, place: int | None = None) -> set[str]:
        """The reductions of what a call gives; ``place``: of one of the values that it gives."""
        record = self.state.calls.get(node)
        if record is None:
            return set()
        for thing in record.callees:
            if isinstance(thing, Function):
                return self._returned(thing, depth, record, place=place)
            if isinstance(thing, Origin) and thing.role is Role.CRITERION:
                return {self._built_with(thing)}
            forward = forward_of(self.state, thing)
            if forward is not None:
                return self._returned(forward, depth, record, bound=True, place=place)
        last = node.func.attr.value if isinstance(node.func, cst.Attribute) else getattr(node.func, "value", "")
        plain = not [a for a in node.args if a.keyword is not None or not _is_tensor_argument(self.state, a)]
        if last in ("sum", "mean") and plain:
            if self._is_python_sum(record):
                return {word for arg in node.args for word in self._members(unit, arg.value, depth)}
            operand = (
                node.func.value if isinstance(node.func, cst.Attribute) and origins(record.receiver, *TENSORS) else None
            )
            if isinstance(node.func, cst.Attribute) and operand is None and node.args:
                operand = node.args[0].value
            number = self.read(unit, operand, depth + 1) if operand is not None else set()
            if number and "rows" not in number:
                return number  # one number already: its sum is itself
            return {last} if self._reduces_batch(record) else set()
        if last in ("stack", "cat", "hstack") and node.args:
            return self._members(unit, node.args[0].value, depth)
        if last in ("dot", "vdot", "inner") and self._reduces_batch(record):
            return {"sum"}
        if last in questions.loss_functions():
            return {self._asked_for(node)}
        if last in _COUPLING:  # no sum over the rows any more: near to it is the mean over the processes
            parts = [arg.value for arg in node.args[:1]]
            if isinstance(node.func, cst.Attribute) and origins(record.receiver, *TENSORS):
                parts.append(node.func.value)
            return {"mean"} if any(self.read(unit, part, depth + 1) for part in parts) else set()
        if isinstance(node.func, cst.Attribute) and last in (
            "to",
            "item",
            "detach",
            "cpu",
            "float",
            "double",
            "squeeze",
            "view",
            "reshape",
            "mul",
        ):
            return self.read(unit, node.func.value, depth + 1)
        return set()

    def _asked_for(self, node: cst.Call) -> str:
        """The reduction that a loss function is asked for."""
        record = self.state.calls[node]
        names = [*outside_names(record), f"torch.nn.functional.{method_name(node)}"]
        kind = next((k for name in names if isinstance(k := transfer(name, Loss), Loss)), Loss())
        given = self._constants()
        asked = asked_reduction(lambda name, at: self.constants.argument(record.unit, node, name, at, given), kind)
        return self._word(record.unit, node, asked)

    def _built_with(self, module: Origin) -> str:
        """The reduction that a loss module is built with, or is set to later."""
        asked = built_with(self.state, module, transfer(module.qualified, Criterion) or Criterion())
        made = self.state.calls.get(module.node) if isinstance(module.node, cst.Call) else None
        return self._word(made.unit if made is not None else None, module.node, asked)

    def _word(self, unit: Unit | None, node: cst.CSTNode, reduction: str) -> str:
        """A reduction in our words. One that is not known is taken for the mean."""
        if not reduction and unit is not None:
            self.open.append((unit, node))
        return {"sum": "sum", "none": "rows"}.get(reduction, "mean")

    def _constants(self) -> Given:
        """What the call that is followed gives to the parameters of its function."""
        function, record, _ = self.frames[-1] if self.frames else (None, None, False)
        return self.constants.handed(function.node, record) if function is not None and record is not None else {}

    def _reduces_batch(self, record: CallRecord) -> bool:
        """Whether what is summed up comes from the batch; a penalty on the weights does not."""
        return bool(origins(record.receiver, *TENSORS) or origins(record.first, *TENSORS))

    def _is_python_sum(self, record: CallRecord) -> bool:
        return isinstance(record.node.func, cst.Name) and record.node.func.value == "sum"

    def _members(self, unit: Unit, node: cst.BaseExpression, depth: int) -> set[str]:
        if isinstance(node, (cst.List, cst.Tuple)):
            return {word for element in node.elements for word in self.read(unit, element.value, depth + 1)}
        if isinstance(node, (cst.GeneratorExp, cst.ListComp)):
            return self.read(unit, node.elt, depth + 1)
        return set()

    def _handed(self, binding: Binding, depth: int) -> set[str]:
        """What a parameter of the function that is read holds, by the call that is followed."""
        function, record, bound = self.frames[-1]
        names = positional(function.node)
        place = next((i for i, p in enumerate(names) if p in binding.definitions), None)
        if place is None or any(arg.star for arg in record.node.args):
            return set()
        plain = [arg.value for arg in record.node.args if arg.keyword is None]
        named = [a.value for a in record.node.args if a.keyword is not None and a.keyword.value == binding.name]
        place -= bound
        value = plain[place] if 0 <= place < len(plain) else next(iter(named), None)
        if value is None:
            return set()
        frame = self.frames.pop()
        try:
            return self.read(record.unit, value, depth + 1)
        finally:
            self.frames.append(frame)

    def _returned(
        self, function: Function, depth: int, record: CallRecord, bound: bool = False, place: int | None = None
    ) -> set[str]:
        self.frames.append((function, record, bound))
        try:
            return self._results(function, depth, place)
        finally:
            self.frames.pop()

    def _results(self, function: Function, depth: int, place: int | None) -> set[str]:
        body = function.node.body
        if isinstance(body, cst.BaseExpression):
            return self.read(function.unit, body, depth + 1)
        site = self.frames[-1][1]
        returns = function.unit.names.returns.get(function.node, ())
        given = (r.value for r in returns if not self.constants.passes_by(function.unit, r, site))
        values = [w for v in given if v is not None and (w := _at(v, place)) is not None]
        return {word for value in values for word in self.read(function.unit, value, depth + 1)}


def _attribute_values(klass: Klass, name: str) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    """What the methods of a class, and of those that it is built upon, give an attribute of their object."""
    for node in klass.unit.names.every(cst.Assign):
        if not isinstance(node, cst.Assign):
            continue
        for target in (target.target for target in node.targets):
            own = isinstance(target, cst.Attribute) and target.attr.value == name and isinstance(target.value, cst.Name)
            if own and klass.node in klass.unit.names.ancestors(node):
                yield klass.unit, node.value
    for base in klass.bases:
        yield from _attribute_values(base, name)


def _unpacked(unit: Unit, definition: cst.CSTNode) -> tuple[cst.BaseExpression, int] | None:
    """For a name of ``a, b = call(...)``, the call and the name's place in what it gives."""
    element = unit.names.parents.get(definition)
    target = unit.names.parents.get(element) if isinstance(element, cst.Element) else None
    above = unit.names.parents.get(target) if isinstance(target, (cst.Tuple, cst.List)) else None
    assign = unit.names.parents.get(above) if isinstance(above, cst.AssignTarget) else None
    if not isinstance(assign, cst.Assign) or not isinstance(target, (cst.Tuple, cst.List)):
        return None
    if any(isinstance(e, cst.StarredElement) for e in target.elements):
        return None
    return assign.value, next(i for i, e in enumerate(target.elements) if e is element)


def _divisor(unit: Unit, definition: cst.CSTNode) -> cst.BaseExpression | None:
    """By what ``loss /= number`` divides, for the ``loss`` in it."""
    change = unit.names.parents.get(definition)
    return change.value if isinstance(change, cst.AugAssign) and isinstance(change.operator, cst.DivideAssign) else None


def _is_count(unit: Unit, node: cst.BaseExpression, depth: int = 0) -> bool:
    """``mask.sum()``, ``positive.data.sum().clamp(min=1)`` and a variable that holds it: as many as a batch has."""
    calls = [part.func for part in descendants(node) if isinstance(part, cst.Call)]
    if any(isinstance(func, cst.Attribute) and func.attr.value in _COUNTING for func in calls):
        return True
    names = [part for part in descendants(node) if isinstance(part, cst.Name)] if depth < _STEPS else []
    return any(_is_count(unit, value, depth + 1) for name in names for value in plain_values(unit.names, name))


def _at(value: cst.BaseExpression, place: int | None) -> cst.BaseExpression | None:
    """What is at one position of a function's result; nothing for several values that are not unpacked."""
    if not isinstance(value, (cst.Tuple, cst.List)):
        return value
    if place is None or place >= len(value.elements) or any(isinstance(e, cst.StarredElement) for e in value.elements):
        return None
    return value.elements[place].value


def forward_of(state: State, thing: Thing) -> Function | None:
    """The ``forward`` of a module of the program's own class: a loss, or a model that computes its loss."""
    klass = state.klass.get(thing) if isinstance(thing, Origin) else None
    return klass.method("forward") if klass is not None else None


def _is_tensor_argument(state: State, arg: cst.Arg) -> bool:
    """Whether an argument of ``sum`` or ``mean`` is the tensor itself, not a dimension."""
    return not isinstance(arg.value, (cst.Integer, cst.Tuple, cst.UnaryOperation))


def _is_length(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "len"
