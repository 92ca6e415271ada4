"""Reads of the device that the script chose: what becomes of each, once the accelerator has taken its place."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Reach
from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import State, Unit, origins
from ..analysis.devices.device_names import before_set, numbered
from ..analysis.syntax.walk import descendants
from ..facts.module import MixedPrecision
from ..facts.placement import DeviceRead, Move, Placement
from ..facts.roles import Role
from .accelerator_path import Way


def vanished(
    unit: Unit, way: Way, placements: Iterable[Placement], precision: MixedPrecision, removed: Iterable[cst.CSTNode]
) -> set[cst.CSTNode]:
    """The nodes of a module that go with other edits."""
    gone: set[cst.CSTNode] = set(removed)
    for placement in placements:
        gone.update(vanishing(placement))
    for node in (
        *precision.regions,
        *precision.makers,
        *precision.made_early,
        *precision.removed,
        *precision.arguments,
    ):
        gone.update(descendants(node))
    for branch, first in precision.branches:
        other = branch.orelse if first else branch.body
        gone.update(n for part in (branch.test, other) if part is not None for n in descendants(part))
    for owner, handing in way.handings:
        if owner is unit and handing.replaces is not None:
            gone.update(descendants(handing.replaces))
    return gone


def device_reads(
    state: State, reach: Reach, unit: Unit, way: Way, gone: Container[cst.CSTNode]
) -> Iterator[DeviceRead]:
    """The reads of device variables that are gone."""
    for binding in way.replaced:
        held = origins(state.binding(binding), Role.DEVICE)
        word = bool(held) and all(origin.qualified == "str" for origin in held)
        for read in binding.reads:
            if read in unit.names.parents and read not in gone and not before_set(state, unit, binding, read):
                yield DeviceRead(read, _as_word(reach, unit, read, word))


def _as_word(reach: Reach, unit: Unit, read: cst.Name, word: bool) -> bool:
    """Whether a read of the device must stay a string: always where it is compared; where the script had a string,
    everywhere but in the places that take a device."""
    parent = unit.names.parents[read]
    if isinstance(parent, (cst.Comparison, cst.ComparisonTarget)):
        return True
    if numbered(unit, read):
        return True
    if not word:
        return False
    if not isinstance(parent, cst.Arg):
        return True
    call = unit.names.parents.get(parent)
    if not isinstance(call, cst.Call) or parent.star:
        return True
    keyword = parent.keyword.value if parent.keyword is not None else ""
    takes = method_name(call) in ("to", "device", "load", "cuda") or keyword in ("device", "map_location")
    return not takes and (not reach.called(call) or _compares(reach, call, read))


def _compares(reach: Reach, call: cst.Call, read: cst.Name) -> bool:
    """Whether a function of the program compares the device that it is given with a word: ``device_type == "cuda"``."""
    for function in reach.called(call):
        owner = reach.unit(function)
        for binding in owner.names.scopes[function].bindings.values():
            if any(value is read for _, value in reach.given(binding)):
                parents = (owner.names.parents.get(each) for each in binding.reads)
                if any(isinstance(parent, (cst.Comparison, cst.ComparisonTarget)) for parent in parents):
                    return True
    return False


def vanishing(placement: Placement) -> Iterable[cst.CSTNode]:
    """The nodes that go with a placement."""
    if placement.move is Move.STATEMENT and placement.statement is not None:
        return descendants(placement.statement)
    if not isinstance(placement.node, cst.Call):
        return ()
    if placement.move is Move.UNWRAP:
        return [n for arg in placement.node.args[1:] for n in descendants(arg)]
    if placement.copied is not None:
        return descendants(placement.copied[0])
    if placement.move is Move.LINK:
        kept = set(placement.keeps)
        return [n for arg in placement.node.args if arg not in kept for n in descendants(arg)]
    return ()
