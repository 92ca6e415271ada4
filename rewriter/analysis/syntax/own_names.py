"""Variables of a file that are set by name: ``globals()["x"] = 1``, ``exec("x = 1")``."""

from __future__ import annotations

import ast

import libcst as cst

from ...facts.spellings import OWN_NAMES
from .nodes import entry_key


def set_by_name(node: cst.CSTNode) -> str | None:
    """The variable that a statement or a call sets by name; an empty text for computed ones; None for other nodes."""
    if isinstance(node, cst.Call):
        if isinstance(node.func, cst.Name) and node.func.value == "exec" and node.args:
            return _written_in(node.args[0].value)
        method = node.func if isinstance(node.func, cst.Attribute) else None
        return "" if method is not None and method.attr.value == "update" and _gives_names(method.value) else None
    for target in (each.target for each in node.targets) if isinstance(node, cst.Assign) else ():
        if isinstance(target, cst.Subscript) and _gives_names(target.value):
            return entry_key(target)
    return None


def _written_in(text: cst.BaseExpression) -> str | None:
    """The first variable that a text sets which is run as code: ``exec("x = 1")``. Of one that is made elsewhere, as by
    reading a file with settings, nothing is said."""
    if isinstance(text, cst.FormattedString):
        return "" if any(isinstance(p, cst.FormattedStringText) and " = " in p.value for p in text.parts) else None
    code = text.evaluated_value if isinstance(text, (cst.SimpleString, cst.ConcatenatedString)) else None
    try:
        tree = ast.parse(code if isinstance(code, str) else "")
    except SyntaxError:
        return None
    stored = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return next((name.id for name in stored), None)


def _gives_names(node: cst.BaseExpression) -> bool:
    function = node.func if isinstance(node, cst.Call) and not node.args else None
    return isinstance(function, cst.Name) and function.value in OWN_NAMES
