"""
What a script ran on before, where the accelerator may choose another device.

A choice between CUDA and the CPU took the CPU on a machine without CUDA. The accelerator takes what is there, so it is
said that the script runs on a Mac's GPU now; but not where the condition that it is given keeps it on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import libcst as cst

from ..dataflow.constant_values import constants_of
from ..dataflow.program_flow import is_guard
from ..dataflow.values import State, Unit
from ..syntax.walk import descendants
from .availability import gives_way

Former = Literal["", "cuda or cpu", "mps or cpu"]


def former_devices(state: State, unit: Unit, choices: Iterable[cst.CSTNode], asked: str | None) -> Former:
    """
    Return what some statements chose between, if the accelerator may choose another device; else an empty string.

    Args:
        state: the solved program.
        unit: the module of the statements.
        choices: the statements that choose a device.
        asked: the condition under which the accelerator takes the CPU; None where it takes what there is.
    """
    statements = list(choices)
    text = "".join(unit.names.module.code_for_node(node) for node in statements)
    if "cpu" not in text or ("cuda" in text) is ("mps" in text):
        return ""
    if asked is not None and not any(found_by(state, unit, test) for test in _tests(unit, statements)):
        return ""
    return "cuda or cpu" if "cuda" in text else "mps or cpu"


def found_by(state: State, unit: Unit, test: cst.BaseExpression) -> bool:
    """Whether a condition can hold, and asks torch for a device, of which the accelerator is given nothing."""
    return gives_way(state, unit, test) and constants_of(state).holds(unit, test) is not False


def _tests(unit: Unit, statements: Iterable[cst.CSTNode]) -> Iterator[cst.BaseExpression]:
    """The conditions in some statements, and around them."""
    for statement in statements:
        for node in (statement, *descendants(statement), *unit.names.enclosing(statement, cst.If)):
            if isinstance(node, (cst.If, cst.IfExp)) and not is_guard(node):
                yield node.test
