"""The mode in which a file is opened."""

from __future__ import annotations

import libcst as cst

from ..syntax.nodes import keyword


def opens_to_write(call: cst.Call, position: int) -> bool:
    """Whether the mode of an ``open``, at a position of its arguments, is one that writes."""
    mode = _mode(call, position)
    return isinstance(mode, cst.SimpleString) and may_write(call, position)


def may_write(call: cst.Call, position: int) -> bool:
    """The same, and where the mode is not written out."""
    mode = _mode(call, position)
    text = mode.evaluated_value if isinstance(mode, cst.SimpleString) else "w" if mode is not None else ""
    return isinstance(text, str) and any(letter in text for letter in "wax+")


def _mode(call: cst.Call, position: int) -> cst.BaseExpression | None:
    mode = keyword(call, "mode")
    if mode is None and len(call.args) > position and call.args[position].keyword is None:
        return call.args[position].value
    return mode
