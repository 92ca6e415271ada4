"""The mode in which a file is opened."""

from __future__ import annotations

import libcst as cst

from ..syntax.definitions import bindings_value
from ..syntax.nodes import keyword
from .values import State, Unit


def opens_to_write(state: State, call: cst.Call, position: int) -> bool:
    """Whether the mode of an ``open``, at a position of its arguments, is one that writes, or may be: ``"w" if new else
    "a"``."""
    unit = state.calls[call].unit if call in state.calls else None
    return any(_writes(text) for text in _texts(unit, _mode(call, position)) if text is not None)


def opens_path(state: State, call: cst.Call) -> bool:
    """Whether ``path.open("w")`` says so in its first argument, a mode and nothing else."""
    unit = state.calls[call].unit if call in state.calls else None
    texts = [text for text in _texts(unit, _mode(call, 0)) if text is not None]
    return (
        bool(texts) and all(set(text) <= set("rwaxbt+") for text in texts) and any(set(t) & set("wax") for t in texts)
    )


def may_write(call: cst.Call, position: int) -> bool:
    """The same, and where the mode is not written out."""
    return any(text is None or _writes(text) for text in _texts(None, _mode(call, position)))


def _writes(mode: str) -> bool:
    return any(letter in mode for letter in "wax+")


def _texts(unit: Unit | None, mode: cst.BaseExpression | None) -> list[str | None]:
    """What a mode may be; None stands for what is not written out. Without a mode a file is read."""
    if isinstance(mode, cst.IfExp):
        return [*_texts(unit, mode.body), *_texts(unit, mode.orelse)]
    binding = unit.names.binding(mode) if unit is not None and isinstance(mode, cst.Name) else None
    if unit is not None and binding is not None:
        given = bindings_value(unit.names, binding)
        known = len(given) == len(binding.definitions)
        return [text for one in given for text in _texts(None, one)] + ([] if known and given else [None])
    text = mode.evaluated_value if isinstance(mode, cst.SimpleString) else None
    return ["r" if mode is None else text if isinstance(text, str) else None]


def _mode(call: cst.Call, position: int) -> cst.BaseExpression | None:
    mode = keyword(call, "mode")
    if mode is None and len(call.args) > position and call.args[position].keyword is None:
        return call.args[position].value
    return mode
