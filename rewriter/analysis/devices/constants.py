"""
Devices that a module keeps for everybody: ``DEVICE`` of ``config.py``, ``device`` of ``engine.py``.

Such a constant stays where it is: ``"cuda"`` is the GPU that the accelerator gave the process, in whatever file it is
read, and a program that starts elsewhere finds it as before. If the constant names the CPU, the accelerator is created
for the CPU; a GPU that it names by number loses that number.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from ...facts.placement import Move, Placement
from ...facts.reasons import Reason
from ...facts.reasons.devices import EarlyTensor, NumberedGpu, UnreadTensor, UnusedNumber
from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import External, State, Unit, origins
from ..syntax.walk import children, descendants, nodes_in
from .device_flags import Flag, always_cpu
from .device_names import DeviceName, cpu_condition

_NUMBERED = re.compile(r"""^['"][a-z]+:\d+['"]$""")
_FILLED_IN = re.compile(r"^[a-z]*:(\{[^}]*\}|%[ds])?$")
"""A text to which a number is added, or that has one filled in: ``cuda:``, ``cuda:{}``, ``cuda:%d``."""
Read = tuple[Unit, cst.BaseExpression]


@dataclass(eq=False)
class Constant:
    """A variable at the top of a module that holds the device, and stays."""

    unit: Unit
    name: DeviceName
    reads: list[Read] = field(default_factory=list)
    """Every expression that reads it, in whatever module of the program."""

    @property
    def told(self) -> str:
        """What people call it: ``config.DEVICE``."""
        return f"{self.unit.place.name or self.unit.name}.{self.name.binding.name}"

    def may_be_cpu(self) -> bool:
        """Whether the CPU is among its values."""
        words = [w for value in self.name.values for w in _words(value)]
        return "cpu" in words or not words

    def always_cpu(self) -> bool:
        """Whether it says nothing but the CPU, in so many words."""
        values = self.name.values
        chosen = any(isinstance(n, (cst.IfExp, cst.BooleanOperation)) for value in values for n in descendants(value))
        return not chosen and all(_words(value) == ["cpu"] for value in values)

    def numbers(self) -> list[cst.BaseExpression]:
        """The parts of its definition that name one GPU by number, written out or computed."""
        return [node for value in self.name.values for node in gpus_by_number(value)]

    def open(self, settled: Container[cst.CSTNode] = ()) -> bool:
        """Whether its definition does not say which kinds of device it can be: ``torch.device(args.device)``.
        ``settled``: what reads another variable, of which that is said where it is defined."""
        return not all(_words(value) or value in settled for value in self.name.values)


def gpus_by_number(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """The outermost expressions below a node that give the name of one GPU."""
    if isinstance(node, cst.SimpleString) and _NUMBERED.match(node.value):
        yield node
    elif isinstance(node, (cst.FormattedString, cst.ConcatenatedString, cst.BinaryOperation)) or (
        isinstance(node, cst.Call) and method_name(node) == "format"
    ):
        if any(map(_FILLED_IN.match, _texts(node))):
            yield node
    else:
        for child in children(node):
            yield from gpus_by_number(child)


def constants(state: State, reach: Reach, devices: list[tuple[Unit, DeviceName]]) -> list[Constant]:
    """The device variables at the top of modules, and who reads each."""
    found = [Constant(unit, name) for unit, name in devices if name.binding.scope.node is unit.names.module]
    by_origin: dict[Origin, list[Constant]] = {}
    for constant in found:
        for origin in origins(state.binding(constant.name.binding)):
            by_origin.setdefault(origin, []).append(constant)
    for node, slot in list(state.values.items()) if by_origin else ():
        if not isinstance(node, (cst.Name, cst.Attribute)):
            continue
        held = [by_origin.get(origin, []) for origin in origins(slot)]
        unit = next((u for u in reach.units if node in u.names.parents), None) if held and all(held) else None
        for constant in held[0] if unit is not None else ():
            if unit is not None and _reads(state, unit, node, constant):
                constant.reads.append((unit, node))
    return found


def _reads(state: State, unit: Unit, node: cst.Name | cst.Attribute, constant: Constant) -> bool:
    """Whether an expression that holds what a constant does is the constant itself."""
    if isinstance(node, cst.Attribute):
        base = state.values.get(node.value)
        return base is not None and any(isinstance(t, External) for t in base.things)
    binding = unit.names.binding(node)
    if binding is constant.name.binding:
        return node not in binding.definitions
    return binding is None or all(isinstance(d, cst.ImportAlias) for d in binding.definitions)


def lent(constant: Constant) -> bool:
    """Whether other files read a variable."""
    shared = constant.unit.place.shared
    name = constant.name.binding.name
    return name in shared or "*" in shared or any(unit is not constant.unit for unit, _ in constant.reads)


class Constants:
    """The constants that a program keeps, and what still reads them when the moves are gone."""

    def __init__(
        self,
        state: State,
        kept: Sequence[Constant] = (),
        reach: Reach | None = None,
        placements: Iterable[Placement] = (),
        gone: Container[cst.CSTNode] = (),
    ) -> None:
        self.state, self.all, self.reach = state, kept, reach
        self.bindings = {constant.name.binding for constant in kept}
        self.reads = {node for constant in kept for _, node in constant.reads}
        moves = (p.node for p in placements if isinstance(p.node, cst.Call))
        aims = {n for call in moves for arg in call.args for n in descendants(arg)}
        aimed = {origin for aim in aims for origin in origins(state.values.get(aim), Role.DEVICE)}
        self.kept = [
            c
            for c in kept
            if any(node in aims for _, node in c.reads)
            or not aimed.isdisjoint(origins(state.binding(c.name.binding), Role.DEVICE))
        ]
        """Those to which the script moves something, by their names or by others: an object keeps ``device=DEVICE``."""
        self.left = {c: [read for read in c.reads if read[1] not in gone] for c in self.kept}

    def followed(self, placement: Placement) -> bool:
        """Whether a move goes to a constant, and so can stay as it is."""
        call = placement.node
        aimed = isinstance(call, cst.Call) and any(arg.value in self.reads for arg in call.args)
        return placement.move is Move.RETARGET and aimed

    def flag(self, unit: Unit) -> Flag | None:
        """
        The condition under which the constants say the CPU, as a module spells it; None where it does not matter.

        It matters where a constant is still read, and where its author had a reason of his own: a flag.
        """
        for constant in self.kept:
            if constant.always_cpu():
                return always_cpu(unit)
            spelled = next((n for u, n in constant.reads if u is unit), None)
            reason = cpu_condition(self.state, constant.unit, constant.name) is not None
            if (reason or self.left[constant]) and spelled is not None and constant.may_be_cpu():
                text = unit.names.module.code_for_node(spelled)
                return Flag(unit, f'{text}{"" if constant.name.word else ".type"} == "cpu"', spelled)
        return None

    def numbered(self, unit: Unit) -> list[cst.BaseExpression]:
        """The names of GPUs in a module that lose their number, because something still reads them."""
        return [node for c in self.kept if c.unit is unit and self.left[c] for node in c.numbers()]

    def findings(self, unit: Unit, home: Unit | None) -> Iterator[Reason]:
        """What the constants leave open in a module."""
        for constant in self.kept:
            if constant.unit is unit and self.left[constant]:
                for node in constant.numbers():
                    if not isinstance(node, cst.SimpleString):
                        yield UnusedNumber(node)
                if constant.open({node for other in self.kept for _, node in other.reads}):
                    yield NumberedGpu(constant.name.values[0], constant.told)
            for owner, node in self.left[constant]:
                made = _made_at_import(self.state, owner, node) if owner is unit and owner is not home else None
                if made is not None:
                    idle = self.reach is not None and not _read_by_program(self.reach, owner, made)
                    yield UnreadTensor(made) if idle else EarlyTensor(made, constant.told)


def _made_at_import(state: State, unit: Unit, read: cst.CSTNode) -> cst.Call | None:
    """The call by which a module makes a tensor on the device while it is imported."""
    arg = unit.names.parents.get(read)
    call = unit.names.parents.get(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(arg, cst.Arg) or not isinstance(call, cst.Call) or call not in state.calls:
        return None
    named = arg.keyword is not None and arg.keyword.value == "device"
    if unit.names.function(call) is not unit.names.module or not (named or method_name(call) == "to"):
        return None
    return None if origins(state.values.get(call), Role.MODEL, Role.CRITERION) else call


def _read_by_program(reach: Reach, unit: Unit, made: cst.Call) -> bool:
    """Whether code that the program runs reads the variable in which a module keeps a tensor, in whatever file."""
    assign = next(unit.names.enclosing(made, cst.Assign), None)
    target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
    if not isinstance(target, cst.Name):
        return True
    for other in reach.units:
        for node in other.names.every(cst.Name, cst.Attribute):
            word = node.attr.value if isinstance(node, cst.Attribute) else getattr(node, "value", "")
            if word == target.value and node is not target and other.names.function(node) in reach.reachable:
                if not isinstance(other.names.parents.get(node), cst.ImportAlias):
                    return True
    return False


def _texts(node: cst.CSTNode) -> list[str]:
    """The pieces of text in an expression."""
    texts = [n.evaluated_value for n in nodes_in(node, cst.SimpleString)]
    texts += [n.value for n in nodes_in(node, cst.FormattedStringText)]
    return [t for t in texts if isinstance(t, str)]


def _words(node: cst.CSTNode) -> list[str]:
    """The kinds of device that an expression names."""
    return [text.partition(":")[0] for text in _texts(node)]
