"""Choices of the device that a constructor keeps, ``self.device = ...``, where the accelerator does not come to it."""

from __future__ import annotations

from collections.abc import Container, Iterable

import libcst as cst

from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.constant_values import constants_of
from ..dataflow.program_flow import choice_around
from ..dataflow.values import State
from .device_fields import DeviceField
from .device_flags import Flag
from .device_names import condition_of, condition_of_branches


def kept_choice(state: State, reach: Reach, fields: Iterable[DeviceField], aims: Container[cst.CSTNode]) -> Flag | None:
    """
    The condition under which a constructor keeps the CPU for an object, whose device the script moves things to.

    Args:
        state, reach: the solved program.
        fields: the devices that objects keep.
        aims: nodes that name where the script moves its models and batches.
    """
    aimed = [field for field in fields if _is_aim(state, reach, field, aims)]
    found = [_choice(state, reach, fields) for fields in _by_choice(aimed)]
    flags = [flag for flag in found if flag is not None]
    if not flags:
        return next((flag for field in aimed if (flag := _later(state, field, aimed)) is not None), None)
    if all(flag is not None and flag.text == "True" for flag in found):
        return flags[0]
    return flags[0]._replace(settled=len(found) == 1)


def _by_choice(fields: Iterable[DeviceField]) -> list[list[DeviceField]]:
    """The assignments, those together that the branches of one ``if`` make."""
    found: dict[tuple[cst.CSTNode, str], list[DeviceField]] = {}
    for field in fields:
        choice = choice_around(field.unit, field.statement) or field.statement
        found.setdefault((choice, field.unit.names.module.code_for_node(field.target)), []).append(field)
    return list(found.values())


def _choice(state: State, reach: Reach, fields: list[DeviceField]) -> Flag | None:
    """The condition under which a constructor keeps the CPU; None where it does not, or does so for want of another."""
    field, choice = fields[0], choice_around(fields[0].unit, fields[0].statement)
    code, word = field.code, _parameter(field) if not isinstance(choice, cst.If) else None
    if isinstance(choice, cst.If):
        values = {field.unit.names.parents[f.statement]: f.value for f in fields}
        node, text = choice.test, condition_of_branches(state, field.unit, choice, values)
    else:
        node, text = field.value, condition_of(state, field.unit, field.value)
    if not isinstance(code, cst.FunctionDef) or code.name.value != "__init__" or (text is None and word is None):
        return None
    asked = text if text is not None else f'{word} == "cpu"'
    sites = [state.calls[site] for site in reach.sites(code) if reach.function_of(site) in reach.reachable]
    test, constants = cst.parse_expression(asked), constants_of(state)
    answers = {constants.holds(field.unit, test, constants.known(code, site)) for site in sites}
    if answers == {True}:
        return Flag(field.unit, "True", node, kept=True)
    if not answers or answers == {False} or (text is None and True not in answers):
        return None
    return Flag(field.unit, asked, node, kept=True, constructor=code)


def _later(state: State, field: DeviceField, fields: Iterable[DeviceField]) -> Flag | None:
    """The condition by which a method chooses between the CPU and another device, which no other code knows."""
    choice = choice_around(field.unit, field.statement)
    if not isinstance(choice, cst.If) or not isinstance(field.code, cst.FunctionDef):
        return None
    same = [f for f in fields if f.code is field.code and f.target.deep_equals(field.target)]
    values = {field.unit.names.parents[f.statement]: f.value for f in same}
    text = condition_of_branches(state, field.unit, choice, values) if field.code.name.value != "__init__" else None
    return Flag(field.unit, text, choice.test, kept=True, settled=False) if text not in (None, "True") else None


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
