"""
Mixed precision by hand: autocast regions and a gradient scaler, understood as one setting or left as they are.

Left as they are they stay right: autocast is local, and a scaler works on gradients that are equal everywhere. They
become the accelerator's only where that changes nothing: every forward pass of a trained model stands in a region, all
regions say the same, and each use of the scaler is one of its five.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from ..facts.roles import Origin, Role
from .reach import Code, Reach
from .syntax import FunctionNode, parameters
from .things import CallRecord, State, Unit, Unknown, origins
from .training import Training, method_name, outside_name, whole

AUTOCASTS = frozenset(
    "torch.autocast torch.amp.autocast torch.amp.autocast_mode.autocast torch.cuda.amp.autocast "
    "torch.cuda.amp.autocast_mode.autocast torch.cpu.amp.autocast".split()
)
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}


@dataclass(eq=False)
class Region:
    """One autocast region: its call, what it asks for, and its switch."""

    record: CallRecord
    mode: str
    """``bf16``, ``fp16``, or the empty string where the script leaves it to torch."""
    switch: cst.BaseExpression | None


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


@dataclass(eq=False)
class Precision:
    """The script's mixed precision as one setting of the accelerator."""

    value: str
    """Source text for ``mixed_precision=``."""
    names: frozenset[str]
    """Names that this text reads."""
    regions: list[Region]
    scalers: dict[Unit, ScalerUse] = field(default_factory=dict)


def precision_of(state: State, reach: Reach, training: Training, code: Code | None) -> Precision | None:
    """The precision setting of a program; None where there is none, or it is better left as it is."""
    regions = _regions(state, reach)
    if not regions or code is None:
        return None
    scaler = _Scaler(state, reach)
    modes = {region.mode or ("fp16" if scaler.origins else "") for region in regions}
    if len(modes) != 1 or not modes <= {"bf16", "fp16"} or not _covers(state, reach, training, regions):
        return None
    mode = modes.pop()
    if scaler.origins and (mode != "fp16" or not scaler.understood()):
        return None
    if not scaler.origins and mode == "fp16":
        return None  # fp16 without a scaler: the accelerator's fp16 scales, which the script does not
    switches = [region.switch for region in regions] + scaler.switches()
    switch = _one_switch(state, reach, code, switches)
    if switch is None:
        return None
    text, names = switch
    value = f'"{mode}" if {text} else "no"' if text else f'"{mode}"'
    return Precision(value, names, regions, scaler.uses)


def _regions(state: State, reach: Reach) -> list[Region]:
    found = []
    for record in state.calls.values():
        if outside_name(record) in AUTOCASTS and reach.function_of(record.node) in reach.reachable:
            found.append(Region(record, _mode(record), _argument(record.node, "enabled")))
    return found


def _mode(record: CallRecord) -> str:
    value = _argument(record.node, "dtype")
    if value is None:
        return "fp16" if ".cuda." in outside_name(record) else ""
    return _TYPES.get(value.attr.value, "?") if isinstance(value, cst.Attribute) else "?"


def _argument(call: cst.Call, name: str) -> cst.BaseExpression | None:
    places = {"dtype": 1, "enabled": 2} if len(call.args) > 0 else {}
    for position, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            return arg.value
        if arg.keyword is None and places.get(name) == position and not arg.star:
            return arg.value
    return None


def _covers(state: State, reach: Reach, training: Training, regions: list[Region]) -> bool:
    """Whether every region is a plain ``with``, and every forward of a trained model stands in one."""
    blocks = set()
    for region in regions:
        names = region.record.unit.names
        item = names.parents.get(region.record.node)
        around = names.parents.get(item) if isinstance(item, cst.WithItem) else None
        if not isinstance(around, cst.With) or (isinstance(item, cst.WithItem) and item.asname is not None):
            return False
        blocks.add(around)
    for call, model in training.forwards.items():
        names = state.calls[call].unit.names
        inside = any(isinstance(a, cst.ClassDef) for a in names.ancestors(call))
        if whole(state, model) in training.models and not inside:
            if blocks.isdisjoint(names.ancestors(call)):
                return False
    return True


def _one_switch(
    state: State, reach: Reach, code: Code, switches: list[cst.BaseExpression | None]
) -> tuple[str, frozenset[str]] | None:
    """The one condition that switches mixed precision on, as text for the accelerator's home; None if they differ."""
    texts = set()
    names: set[str] = set()
    unit = reach.unit(code)
    for switch in switches:
        if switch is None or (isinstance(switch, cst.Name) and switch.value == "True"):
            texts.add("")
            continue
        read = same_at(state, reach, code, switch)
        if not read:
            return None
        names.update(read)
        texts.add(unit.names.module.code_for_node(switch))
    return (texts.pop(), frozenset(names)) if len(texts) == 1 else None


def same_at(state: State, reach: Reach, code: Code, expression: cst.BaseExpression) -> frozenset[str] | None:
    """The names that a constant, a name or an attribute of one reads, if they mean the same in some code."""
    if isinstance(expression, cst.Integer):
        return frozenset()
    root = expression
    while isinstance(root, cst.Attribute):
        root = root.value
    binding = reach.unit(code).names.scopes[code].lookup(root.value) if isinstance(root, cst.Name) else None
    return frozenset({binding.name}) if binding is not None and _same(state, root, binding) else None


def _same(state: State, root: cst.BaseExpression, binding: object) -> bool:
    """Whether a name means the same thing where it is used and at the accelerator's home."""
    here = state.values.get(root)
    there = state.binding(binding)  # type: ignore[arg-type]
    things = {t for t in here.things if isinstance(t, (Unknown, Origin))} if here is not None else set()
    unknown = here is not None and not here.things and not there.things
    return unknown or (bool(things) and things <= set(there.things))


class _Scaler:
    """The gradient scalers of a program, and whether each use of them is one that the accelerator takes over."""

    def __init__(self, state: State, reach: Reach) -> None:
        self.state, self.reach = state, reach
        self.origins: dict[Origin, None] = {}
        for record in state.calls.values():
            for origin in origins(record.result, Role.SCALER):
                if origin.node is record.node:
                    self.origins[origin] = None
        self.uses: dict[Unit, ScalerUse] = {}

    def switches(self) -> list[cst.BaseExpression | None]:
        """The conditions under which the scalers scale."""
        calls = (origin.node for origin in self.origins)
        return [_argument_of_scaler(call) for call in calls if isinstance(call, cst.Call)]

    def understood(self) -> bool:
        """Collect what becomes of every use; False where one is not known."""
        return len(self.origins) == 1 and all(self._of_unit(unit) for unit in self.reach.units)

    def _of_unit(self, unit: Unit) -> bool:
        use = self.uses.setdefault(unit, ScalerUse())
        for node, slot in list(self.state.values.items()):
            if isinstance(node, cst.Name) and node in unit.names.parents and origins(slot, Role.SCALER):
                if not self._name(unit, node, use):
                    return False
        for function in unit.names.functions:
            use.parameters.extend(p for p in parameters(function) if self._holds(unit, function, p))
        return True

    def _holds(self, unit: Unit, function: FunctionNode, param: cst.Param) -> bool:
        binding = unit.names.scopes[function].bindings[param.name.value]
        return bool(origins(self.state.binding(binding), Role.SCALER))

    def _name(self, unit: Unit, node: cst.Name, use: ScalerUse) -> bool:
        """Sort one appearance of a name that holds the scaler."""
        names = unit.names
        parent = names.parents[node]
        statement = names.statement(node)
        if isinstance(parent, cst.AssignTarget):
            assign = names.parents[parent]
            plain = isinstance(assign, cst.Assign) and len(assign.targets) == 1 and isinstance(assign.value, cst.Call)
            use.removed.append(statement)
            return plain and any(origin.node is assign.value for origin in self.origins)  # type: ignore[attr-defined]
        if isinstance(parent, cst.Arg):
            call = names.parents[parent]
            known = isinstance(call, cst.Call) and bool(self.reach.called(call)) and not parent.star
            use.arguments.append(parent)
            return known
        above = names.parents.get(parent)
        if not isinstance(parent, cst.Attribute) or not isinstance(above, cst.Call) or above.func is not parent:
            return False
        return self._method(unit, above, statement, use)

    def _method(self, unit: Unit, call: cst.Call, statement: cst.CSTNode, use: ScalerUse) -> bool:
        name = method_name(call)
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        alone = isinstance(small, cst.Expr) and small.value is call and len(statement.body) == 1  # type: ignore[attr-defined]
        if name in ("unscale_", "update"):
            use.removed.append(statement)
            return alone
        if name == "step" and len(call.args) == 1:
            use.steps.append(call)
            return alone
        if name == "scale" and len(call.args) == 1:
            use.scales.append(call)
            above = unit.names.parents.get(call)
            return isinstance(above, cst.Attribute) and above.attr.value == "backward"
        return False


def _argument_of_scaler(call: cst.Call) -> cst.BaseExpression | None:
    return next((a.value for a in call.args if a.keyword is not None and a.keyword.value == "enabled"), None)
