"""Ranks and numbers of processes that a script asks for: what each is called on the accelerator."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import libcst as cst

from ...facts.manual_ddp import Instead
from ...facts.roles import Origin, Role
from ..dataflow import ranks
from ..dataflow.solver import Thing
from ..dataflow.values import State, Unit, Unknown
from ..syntax.scopes import Binding


def numbers(
    state: State, unit: Unit, gone: Callable[[cst.CSTNode], bool], lost: Container[Binding]
) -> Iterator[Instead]:
    """
    What becomes of each such number in a module.

    ``gone``: what is removed anyway. ``lost``: variables that hold their number no longer, because the function that
    had it as a parameter has the accelerator instead.
    """
    for node in state.evaluated(unit):
        if gone(node) or not isinstance(node, cst.BaseExpression):
            continue
        name = number_of(state, node)
        if name is None or _is_part(state, unit, node):
            continue
        test = _main_test(unit, node, name) if name != ranks.WORLD_SIZE else None
        if test is not None:
            yield Instead(test[0], test[1], "the accelerator knows which process is the main one")
            continue
        variable = unit.names.binding(node) if isinstance(node, cst.Name) else None
        source = any(isinstance(t, Origin) and t.node is node for t in state.values[node].things)
        made = not isinstance(node, (cst.Name, cst.Attribute)) or (source and variable is None)
        if made or (variable is not None and variable in lost):
            yield Instead(node, f"{{}}.{name}", f"{{}} is {ranks.said(name)}")


def number_of(state: State, node: cst.CSTNode | None) -> str | None:
    """Which number an expression gives, where it can give nothing else."""
    slot = state.values.get(node) if node is not None else None
    if slot is None or not slot.things or isinstance(node, cst.Comparison):
        return None
    return number(slot.things)


def number(things: Iterable[Thing]) -> str | None:
    """Which number it is that may be any of these things; None where some of them are none."""
    told = [t for t in things if not (isinstance(t, Unknown) and t.qualified == "torch.cuda.device_count")]
    names = {t.qualified if isinstance(t, Origin) and t.role is Role.PLACE else "" for t in told}
    if names and names <= {ranks.RANK, ranks.LOCAL_RANK}:  # where it is both, the two are the same
        return ranks.RANK if ranks.RANK in names else ranks.LOCAL_RANK
    return ranks.WORLD_SIZE if names == {ranks.WORLD_SIZE} else None


def _is_part(state: State, unit: Unit, node: cst.BaseExpression) -> bool:
    """Whether a larger expression gives the same number, or the node is what such a call calls."""
    parent = unit.names.parents.get(node)
    around = unit.names.parents.get(parent) if isinstance(parent, cst.Arg) else parent
    if isinstance(around, cst.Call) and around.func is node:
        return True
    return isinstance(around, cst.BaseExpression) and number_of(state, around) is not None


def _main_test(unit: Unit, node: cst.CSTNode, name: str) -> tuple[cst.CSTNode, str] | None:
    """The question whether a process is the first one, around its number, and how the accelerator is asked it."""
    word = "is_main_process" if name == ranks.RANK else "is_local_main_process"
    around = unit.names.parents.get(node)
    if isinstance(around, cst.Comparison) and around.left is node and len(around.comparisons) == 1:
        target = around.comparisons[0]
        if isinstance(target.comparator, cst.Integer) and target.comparator.evaluated_value == 0:
            if isinstance(target.operator, (cst.Equal, cst.Is)):
                return around, f"{{}}.{word}"
            if isinstance(target.operator, cst.NotEqual):
                return around, f"not {{}}.{word}"
    return None
