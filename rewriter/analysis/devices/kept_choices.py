"""Choices of the device that a constructor keeps, ``self.device = ...``, where the accelerator does not come to it."""

from __future__ import annotations

from collections.abc import Container, Iterable

import libcst as cst

from ..dataflow.call_constants import NOTHING, CallConstants, decided
from ..dataflow.call_graph import Reach
from ..dataflow.values import State
from ..training.training import method_name
from .device_fields import DeviceField
from .device_flags import Flag, always_cpu
from .device_names import condition_of


def kept_choice(state: State, reach: Reach, fields: Iterable[DeviceField], aims: Container[cst.CSTNode]) -> Flag | None:
    """
    The condition under which a constructor keeps the CPU for an object, whose device the script moves things to.

    Args:
        state, reach: the solved program.
        fields: the devices that objects keep.
        aims: nodes that name where the script moves its models and batches.
    """
    constants = CallConstants(reach)
    for field in fields:
        code, text = field.code, condition_of(state, field.unit, field.value)
        word = _parameter(field) if text is None else None
        text = text or (f'{word} == "cpu"' if word is not None else None)
        if text is None or not isinstance(code, cst.FunctionDef) or code.name.value != "__init__":
            continue
        sites = [site for site in reach.sites(code) if reach.function_of(site) in reach.reachable]
        if not sites or not _is_aim(state, reach, field, aims):
            continue
        test = cst.parse_expression(text)
        answers = {decided(test, constants.given(site, code, NOTHING)) for site in sites}
        if answers == {True}:
            return always_cpu(field.unit)
        if answers != {False} and (word is None or True in answers):
            return Flag(field.unit, text, field.value, kept=True, constructor=code)
    return None


def _parameter(field: DeviceField) -> str | None:
    """The parameter that names the device: ``device``, ``torch.device(device)``."""
    value = field.value
    if isinstance(value, cst.Call) and method_name(value) == "device" and len(value.args) == 1:
        value = value.args[0].value
    binding = field.unit.names.binding(value) if isinstance(value, cst.Name) else None
    given = binding is not None and all(isinstance(d, cst.Param) for d in binding.definitions)
    return value.value if given and isinstance(value, cst.Name) else None


def _is_aim(state: State, reach: Reach, field: DeviceField, aims: Container[cst.CSTNode]) -> bool:
    """Whether the script moves something to the device that an object keeps."""
    held = state.values.get(field.target.value)
    things = set(held.things) if held is not None else set()
    for unit in reach.units:
        for node in unit.names.every(cst.Attribute):
            if node in aims and isinstance(node, cst.Attribute) and node.attr.value == field.target.attr.value:
                base = state.values.get(node.value)
                if base is not None and not things.isdisjoint(base.things):
                    return True
    return False
