"""Flags that choose the device without ever naming one: ``if args.cuda:`` around every move."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.placement import Placement
from ...facts.reasons import Reason
from ...facts.reasons.devices import CpuChoice, CpuChoices, PartOnCpu
from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.constant_values import constants_of
from ..dataflow.object_fields import fields_of
from ..dataflow.values import External, Instance, State, Unit, origins
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from .availability import asked_of, refused

SPEAKS = re.compile("cuda|gpu|cpu|device", re.IGNORECASE)


class Flag(NamedTuple):
    """A condition under which the script wanted the CPU."""

    unit: Unit
    text: str
    test: cst.BaseExpression
    behind: cst.CSTNode | None = None
    """It is known only after this statement."""
    gives: str = ""
    """For a device that is kept, the statement by which it gets the accelerator's."""
    reads: tuple[cst.CSTNode, ...] = ()
    """What reads the kept device then."""
    kept: bool = False
    """It is such a device itself."""
    settled: bool = True
    """The condition is known wherever its names are; else it can only be reported."""
    constructor: cst.FunctionDef | None = None
    """The condition is on the parameters of this constructor."""
    elsewhere: tuple[tuple[Unit, str], ...] = ()
    """The same condition, as other modules say it."""
    given: tuple[tuple[Unit, str, Binding], ...] = ()
    """The same condition as those say it who call the function, with the variable that they read."""
    told: tuple[tuple[Unit, Reason], ...] = ()
    """What must be said of the kept device."""

    def said(self, unit: Unit) -> str | None:
        """The condition as a module says it; None where none of its code asks it."""
        return self.text if self.unit is unit else dict(self.elsewhere).get(unit)


def cpu_flag(
    state: State, reach: Reach, placements: list[tuple[Unit, Placement]]
) -> tuple[Flag | None, list[tuple[Unit, Reason]]]:
    """The one condition under which all moves of a program are left out, or a finding where there are several."""
    found: dict[str, Flag] = {}
    for unit, test in [*_around_moves(placements), *_of_types(state, reach)]:
        text = refused(state, unit, test)
        said = f"{text} {unit.names.module.code_for_node(test)} {asked_of(state, unit, test)}"
        if text is not None and SPEAKS.search(said) and not _asks_tensor(reach, test):
            alike = _at_the_callers(reach, unit, test)
            if alike == "":
                continue
            callers = alike or text
            given = tuple(_givers(reach, unit, test)) if alike is not None else ()
            same, here = found.get(callers), Flag(unit, text, test, given=given)
            if same is None:
                found[callers] = here
            elif same.text != callers == text:  # a parameter is known in one function
                found[callers] = here._replace(elsewhere=((same.unit, same.text), *same.elsewhere))
            elif same.said(unit) is None:
                found[callers] = same._replace(elsewhere=(*same.elsewhere, (unit, text)))
    if len(found) < 2:
        return next(iter(found.values()), None), []
    flag = next(iter(found.values()))
    return None, [
        (
            flag.unit,
            CpuChoices(flag.test, tuple(found)),
        )
    ]


def unread(state: State, flag: Flag) -> Reason | None:
    """
    What is said of a condition that the place where the accelerator is created cannot read.

    One that asks the script's device follows from that device, which becomes the accelerator's; one that a constant
    decides for the GPU never chooses the CPU.
    """
    if not flag.kept and any(origins(state.values.get(node), Role.DEVICE) for node in descendants(flag.test)):
        return None
    code = flag.unit.names.module.code_for_node(flag.test)
    if flag.text == "True":
        return PartOnCpu(flag.test, code)
    if flag.text == f"not {code}" and constants_of(state).holds(flag.unit, flag.test):
        return None  # it is written out that the CPU is not used
    return CpuChoice(flag.test, code)


def _at_the_callers(
    reach: Reach, unit: Unit, test: cst.BaseExpression, seen: frozenset[Binding | cst.CSTNode] = frozenset()
) -> str | None:
    """What the condition is for those who call the function: for ``use_cuda`` or ``args.cuda``, a parameter or part of
    one, what all of them give, and get from their own callers. Empty where that is whether a device is there."""
    kept = _as_given(reach, test)
    if kept is not None and kept[2] not in seen:
        return _asked_above(reach, *kept[:2], seen | {kept[2]})
    binding = _root_of(unit, test)
    if binding is None or binding in seen or not all(isinstance(d, cst.Param) for d in binding.definitions):
        return None
    asked = ((caller, _with_root(test, value)) for caller, value in reach.given(binding))
    texts = {_asked_above(reach, u, each, seen | {binding}) for u, each in asked}
    return texts.pop() if len(texts) == 1 else None


def _asked_above(reach: Reach, unit: Unit, test: cst.BaseExpression, seen: frozenset[Binding | cst.CSTNode]) -> str:
    """What a condition is for the callers, else what it is here."""
    above = _at_the_callers(reach, unit, test, seen)
    return above if above is not None else refused(reach.state, unit, test) or ""


def _givers(
    reach: Reach, unit: Unit, test: cst.BaseExpression, seen: frozenset[Binding] = frozenset()
) -> Iterator[tuple[Unit, str, Binding]]:
    """What a condition on a parameter is for the callers of its function, and for theirs."""
    binding = _root_of(unit, test)
    if binding is None or binding in seen or not all(isinstance(d, cst.Param) for d in binding.definitions):
        return
    for caller, value in reach.given(binding):
        asked = _with_root(test, value)
        text, root = refused(reach.state, caller, asked), _root_of(caller, asked)
        if text is not None and root is not None:
            yield caller, text, root
            yield from _givers(reach, caller, asked, seen | {binding})


def _root_of(unit: Unit, test: cst.BaseExpression) -> Binding | None:
    """The variable of ``use_cuda`` or ``args.cuda``."""
    while isinstance(test, cst.Attribute):
        test = test.value
    return unit.names.binding(test) if isinstance(test, cst.Name) else None


def _as_given(reach: Reach, test: cst.BaseExpression) -> tuple[Unit, cst.BaseExpression, cst.CSTNode] | None:
    """``self.gpu`` as the constructor was given it, ``options.gpu``, and what was kept; None where it is set in several
    ways, or never."""
    node = test
    parts: list[cst.Name] = []
    while isinstance(node, cst.Attribute):
        held = reach.state.values.get(node.value)
        objects = [thing for thing in held.things if isinstance(thing, Instance)] if held is not None else []
        written = [fields_of(reach.state).writes(thing, node.attr.value) for thing in objects]
        write = written[0][0] if written and all(len(one) == 1 for one in written) else None
        if write is not None and isinstance(write[1], (cst.Name, cst.Attribute)):
            value = write[1]
            for attr in reversed(parts):
                value = cst.Attribute(value, attr)
            return write[0], value, write[1]
        parts.append(node.attr)
        node = node.value
    return None


def _with_root(node: cst.BaseExpression, root: cst.BaseExpression) -> cst.BaseExpression:
    """``args.cuda`` with another object in the place of the first."""
    return cst.Attribute(_with_root(node.value, root), node.attr) if isinstance(node, cst.Attribute) else root


def _asks_tensor(reach: Reach, test: cst.BaseExpression) -> bool:
    """Whether a condition asks where a tensor or a model is: ``if x.is_cuda:``, or by a function of the script. That
    follows from the choice."""
    asked = list(nodes_in(test, cst.Attribute))
    follows = (origin.qualified == "follows" for node in asked for origin in origins(reach.state.values.get(node)))
    if _reads_place(test) or any(follows):
        return True
    called = {f for node in nodes_in(test, cst.Call) for f in reach.called(node)}
    given = [each.value for f in called for each in reach.unit(f).names.returns.get(f, ())]
    return bool(given) and all(value is not None and _reads_place(value) for value in given)


def _reads_place(node: cst.CSTNode) -> bool:
    return any(part.attr.value == "is_cuda" for part in nodes_in(node, cst.Attribute))


def always_cpu(unit: Unit) -> Flag:
    """The flag of a script that knows no other device."""
    return Flag(unit, "True", cst.Name("True"))


def _around_moves(placements: list[tuple[Unit, Placement]]) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    """The conditions under which something is moved. Not one that only decides how: without it a GPU is used, too."""
    to_gpu = {p.node for _, p in placements if isinstance(p.node, cst.Call) and method_name(p.node) == "cuda"}
    for unit, placement in placements:
        inside = {placement.node, *unit.names.ancestors(placement.node)}
        for around in unit.names.enclosing(placement.node, cst.If, cst.IfExp):
            if around.body in inside:
                if around.orelse is None or to_gpu.isdisjoint(descendants(around.orelse)):
                    yield unit, around.test


def _of_types(state: State, reach: Reach) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    """The conditions under which a tensor type of CUDA is taken."""
    for unit in reach.units:
        for node in descendants(unit.names.module):
            if node.__class__ is cst.Attribute and node.attr.value.endswith("Tensor") and node in state.values:
                names = [t.qualified for t in state.values[node].things if isinstance(t, External)]
                if any(name.startswith("torch.cuda.") for name in names):
                    inside = {node, *unit.names.ancestors(node)}
                    for around in unit.names.enclosing(node, cst.If, cst.IfExp):
                        if around.body in inside:
                            yield unit, around.test
