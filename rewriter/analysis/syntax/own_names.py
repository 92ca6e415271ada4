"""Variables of a file that are set by name: ``globals()["x"] = 1``."""

from __future__ import annotations

import libcst as cst

from ...facts.spellings import OWN_NAMES
from .nodes import entry_key


def set_by_name(node: cst.CSTNode) -> str | None:
    """The variable that a statement or a call sets by name; an empty text for computed ones; None for other nodes."""
    if isinstance(node, cst.Call):
        method = node.func if isinstance(node.func, cst.Attribute) else None
        return "" if method is not None and method.attr.value == "update" and _gives_names(method.value) else None
    for target in (each.target for each in node.targets) if isinstance(node, cst.Assign) else ():
        if isinstance(target, cst.Subscript) and _gives_names(target.value):
            return entry_key(target)
    return None


def _gives_names(node: cst.BaseExpression) -> bool:
    function = node.func if isinstance(node, cst.Call) and not node.args else None
    return isinstance(function, cst.Name) and function.value in OWN_NAMES
