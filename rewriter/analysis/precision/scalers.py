"""The gradient scaler of a script: every place where it appears, and what becomes of each."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..syntax.nodes import FunctionNode, is_none, parameters
from .switches import Switch


@dataclass(eq=False)
class ScalerUse:
    """What becomes of the uses of a gradient scaler in one module."""

    removed: list[cst.CSTNode] = field(default_factory=list)
    """Statements that go: its construction, ``unscale_``, ``update``."""
    steps: list[cst.Call] = field(default_factory=list)
    """``scaler.step(optimizer)``: becomes ``optimizer.step()``."""
    scales: list[cst.Call] = field(default_factory=list)
    """``scaler.scale(loss)``: becomes the loss."""
    parameters: list[cst.Param] = field(default_factory=list)
    arguments: list[cst.Arg] = field(default_factory=list)


class Scaler:
    """The gradient scalers of a program, and whether each use of them is one that the accelerator takes over."""

    def __init__(self, state: State, reach: Reach) -> None:
        self.state, self.reach = state, reach
        self.origins: dict[Origin, None] = {}
        for record in state.calls.values():
            for origin in origins(record.result, Role.SCALER):
                if origin.node is record.node:
                    self.origins[origin] = None
        self.uses: dict[Unit, ScalerUse] = {}
        self.methods: dict[cst.Call, Unit] = {}
        """The calls of its five methods."""
        self.tests: dict[cst.BaseExpression, Unit] = {}
        """Where it is asked whether there is one."""
        self.because = ""
        """Why it stays, where it does."""

    def understood(self) -> bool:
        """Collect what becomes of every use; False where one is not known."""
        if len(self.origins) != 1:
            self.because = "there are several"
        elif any(_settings(origin.node) for origin in self.origins):
            self.because = "it has its own settings"
        else:
            for unit in self.reach.units:
                self._of_unit(unit)
        return not self.because

    def unit(self) -> Unit:
        """The module in which it is made."""
        node = next(iter(self.origins)).node
        return next(unit for unit in self.reach.units if node in unit.names.parents)

    def conditions(self) -> Iterator[Switch]:
        """What must hold for it to be made, and to scale."""
        for origin in self.origins:
            node, unit = origin.node, self.unit()
            if isinstance(node, cst.Call):
                for arg in node.args:
                    if arg.keyword is not None and arg.keyword.value == "enabled":
                        yield Switch(unit, arg.value)
            parent = unit.names.parents.get(node)
            if isinstance(parent, cst.IfExp):
                yield Switch(unit, parent.test, parent.body is node)
            block = unit.names.block(node)
            around = unit.names.parents.get(block)
            if isinstance(around, cst.If):
                yield Switch(unit, around.test)
            elif isinstance(around, cst.Else) and isinstance(above := unit.names.parents.get(around), cst.If):
                yield Switch(unit, above.test, False)

    def test_of(self, node: cst.BaseExpression) -> bool | None:
        """Whether a condition holds when there is a scaler; None where it asks something else."""
        if node in self.tests:
            return True
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            inner = self.test_of(node.expression)
            return None if inner is None else not inner
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1 and node.left in self.tests:
            target = node.comparisons[0]
            if is_none(target.comparator):
                return isinstance(target.operator, (cst.IsNot, cst.NotEqual))
        return None

    def asked_only_by(self, gone: Set[cst.CSTNode]) -> bool:
        """Whether nothing asks whether there is one but expressions that go."""
        for node, unit in self.tests.items():
            if gone.isdisjoint({node, *unit.names.ancestors(node)}):
                self.because = "the script asks whether there is one"
        return not self.because

    def steps(self) -> bool:
        """Whether it steps an optimizer anywhere."""
        return any(method_name(call) == "step" for call in self.methods)

    @cached_property
    def _holding(self) -> list[cst.Name | cst.Attribute | cst.Subscript]:
        """The names and attributes of the program that hold a scaler."""
        kinds = (cst.Name, cst.Attribute, cst.Subscript)
        values = self.state.values.items()
        return [node for node, slot in values if isinstance(node, kinds) and origins(slot, Role.SCALER)]

    def _of_unit(self, unit: Unit) -> None:
        use = self.uses.setdefault(unit, ScalerUse())
        for node in self._appearances(unit):
            because = self._place(unit, node, use)
            if because and not self.because:
                self.because = because
        for function in unit.names.functions:
            use.parameters.extend(p for p in parameters(function) if self._holds(unit, function, p))

    def _appearances(self, unit: Unit) -> list[cst.BaseExpression]:
        """The names and attributes of a module that hold the scaler."""
        found: dict[cst.BaseExpression, None] = dict.fromkeys(
            node for node in self._holding if node in unit.names.parents
        )
        kept = {node.attr.value for node in found if isinstance(node, cst.Attribute)}
        for call in (origin.node for origin in self.origins):
            assign = next((a for a in unit.names.ancestors(call) if isinstance(a, cst.Assign)), None)
            for target in assign.targets if assign is not None else ():
                if isinstance(target.target, cst.Attribute):
                    kept.add(target.target.attr.value)
        if kept:  # also where it is not known whose attribute it is
            found.update((node, None) for node in unit.names.every(cst.Attribute) if node.attr.value in kept)
        return list(found)

    def _holds(self, unit: Unit, function: FunctionNode, param: cst.Param) -> bool:
        binding = unit.names.scopes[function].bindings[param.name.value]
        return bool(origins(self.state.binding(binding), Role.SCALER))

    def _place(self, unit: Unit, node: cst.BaseExpression, use: ScalerUse) -> str:
        """Sort one appearance of the scaler; why it is none that is known, otherwise."""
        names = unit.names
        parent = names.parents[node]
        statement = names.statement(node)
        if isinstance(parent, cst.AssignTarget):
            assign = names.parents[parent]
            plain = isinstance(assign, cst.Assign) and len(assign.targets) == 1 and self._made(assign.value)
            use.removed.append(statement)
            return "" if plain and _alone(statement) else "it is created in a way that is not known"
        if isinstance(parent, cst.Arg):
            call = names.parents[parent]
            known = isinstance(call, cst.Call) and bool(self.reach.called(call)) and not parent.star
            use.arguments.append(parent)
            return "" if known else "it is passed to code that is not known"
        if isinstance(parent, (cst.If, cst.IfExp, cst.Comparison, cst.UnaryOperation)):
            self.tests[node] = unit
            return ""
        above = names.parents.get(parent)
        if not isinstance(parent, cst.Attribute) or not isinstance(above, cst.Call) or above.func is not parent:
            return "it is used in a way that is not known"
        return self._method(unit, above, statement, use)

    def _made(self, value: cst.BaseExpression) -> bool:
        """Whether a value is the scaler's construction, under a condition or not, or the None beside it."""
        if isinstance(value, cst.IfExp):
            return self._made(value.body) and self._made(value.orelse)
        none = is_none(value)
        return none or any(origin.node is value for origin in self.origins)

    def _method(self, unit: Unit, call: cst.Call, statement: cst.CSTNode, use: ScalerUse) -> str:
        name = method_name(call)
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        alone = isinstance(small, cst.Expr) and small.value is call and _alone(statement)
        self.methods[call] = unit
        if name in ("unscale_", "update") and alone:
            use.removed.append(statement)
            return ""
        if name == "step" and len(call.args) == 1 and alone:
            use.steps.append(call)
            return ""
        above = unit.names.parents.get(call)
        if name == "scale" and len(call.args) == 1 and isinstance(above, cst.Attribute):
            use.scales.append(call)
            return "" if above.attr.value == "backward" else "the scaled loss is used for more than a backward pass"
        return f"the script uses its {name}()"


def _alone(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1


def _settings(call: cst.CSTNode) -> bool:
    """Whether a scaler is made with more than a device and a switch."""
    if not isinstance(call, cst.Call):
        return True
    for arg in call.args:
        keyword = arg.keyword.value if arg.keyword is not None else ""
        device = not keyword and isinstance(arg.value, (cst.SimpleString, cst.Attribute)) and arg is call.args[0]
        if arg.star or not (keyword in ("enabled", "device") or device):
            return True
    return False
