"""GPUs that a script names by their number: ``x.to(0)``, ``x.to(GPUS[0])``, ``torch.ones(3, device=args.gpus[0])``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.placement import Placement
from ...facts.reasons import Reason
from ...facts.reasons.devices import SecondGpu
from ...facts.roles import Role
from ...facts.spellings import GPU_NUMBERS
from ..dataflow.callees import outside_name
from ..dataflow.command_lines import option
from ..dataflow.constant_values import constants_of
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value
from ..syntax.nodes import keyword
from ..syntax.scopes import Binding


def is_number(state: State, unit: Unit, node: cst.BaseExpression, seen: frozenset[Binding] = frozenset()) -> bool:
    """Whether an expression gives a whole number: it is written out, an option's type says so, or ``int(...)`` does."""
    known = constants_of(state, usual=True).of(unit, node)
    if known and all(type(value) is int for value in known):
        return True
    if isinstance(node, cst.Call):
        return node in state.calls and outside_name(state.calls[node]) in ("int", "builtins.int")
    if isinstance(node, cst.Attribute):  # ``self.device`` may have the name of an option, ``--device 0``
        return not origins(state.values.get(node), Role.DEVICE) and _is_option_of_numbers(state, node)
    if isinstance(node, cst.Subscript):
        return _is_element(node) and isinstance(node.value, cst.Attribute) and _is_option_of_numbers(state, node.value)
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    if binding is None or binding in seen:
        return False
    values = bindings_value(unit.names, binding)
    return bool(values) and all(is_number(state, unit, value, seen | {binding}) for value in values)


def is_called_one(node: cst.BaseExpression, *, of_several: bool = False) -> bool:
    """Whether an expression is called as scripts call the number of a GPU: ``self.gpu_id``, ``gpu_ids[0]``;
    ``of_several``: only as the second."""
    several = isinstance(node, cst.Subscript) and _is_element(node)
    word = node.value if isinstance(node, cst.Subscript) and several else node
    word = word.attr if isinstance(word, cst.Attribute) else word
    if not isinstance(word, cst.Name):
        return False
    name = word.value.lower().lstrip("_")
    if several:
        return name in GPU_NUMBERS or name.removesuffix("s") in GPU_NUMBERS
    return name in GPU_NUMBERS and not of_several


def _is_element(node: cst.Subscript) -> bool:
    return len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index)


def _is_option_of_numbers(state: State, node: cst.Attribute) -> bool:
    """Whether an attribute is an option of the command line that takes whole numbers."""
    added = [call for call in state.calls if option(call) == node.attr.value]
    return bool(added) and all(
        isinstance(kind := keyword(call, "type"), cst.Name) and kind.value == "int" for call in added
    )


def spread(placements: Iterable[tuple[Unit, Placement]]) -> Iterator[tuple[Unit, Reason]]:
    """What a script puts on a second GPU of its own, and that is on the one GPU of each process now."""
    found: dict[int, tuple[Unit, cst.CSTNode]] = {}
    for unit, placement in placements:
        number = _written(placement)
        if number is not None:
            found.setdefault(number, (unit, placement.node))
    first, *others = sorted(found) or [0]
    for number in others:
        unit, node = found[number]
        yield (
            unit,
            SecondGpu(node, number, first),
        )


def _written(placement: Placement) -> int | None:
    """The number of a GPU that a move writes out: ``1``, ``"cuda:1"``."""
    node, call = placement.target, placement.node
    if node is None and isinstance(call, cst.Call):
        node = keyword(call, "device") or next((arg.value for arg in call.args if arg.keyword is None), None)
    if isinstance(node, cst.Integer):
        return node.evaluated_value
    text = str(node.evaluated_value) if isinstance(node, cst.SimpleString) else ""
    kind, _, number = text.partition(":")
    return int(number) if kind == "cuda" and number.isdigit() else None
