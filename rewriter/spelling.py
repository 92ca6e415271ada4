"""
The accelerator's spelling: rules write its name, and in methods that name is read from the object.

The name is one that the program does not use, so that wherever it stands in what a rule wrote, it is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import libcst as cst

from .analysis.names import Names
from .edits import AddArgument, Edit, InsertAfter, InsertBefore, Made, Replace


def spell(edit: Edit, names: Names, spelled: Mapping[cst.CSTNode, str], name: str) -> Edit:
    """An edit as it reads at its place: ``self.accelerator`` for ``accelerator`` where an object keeps it."""
    owner = spelled.get(names.function(edit.node))
    if owner is None or isinstance(edit.node, (cst.Param, cst.FunctionDef, cst.Module)):
        return edit
    if isinstance(edit, Replace):
        return replace(edit, make=_through(edit.make, owner, name))
    if isinstance(edit, (InsertBefore, InsertAfter)):
        return replace(edit, text=re.sub(rf"(?<![\w.]){name}\b", f"{owner}.{name}", edit.text))
    if isinstance(edit, AddArgument):
        return replace(edit, value=f"{owner}.{name}")
    return edit


def _through(make: Callable[[cst.CSTNode], Made], owner: str, name: str) -> Callable[[cst.CSTNode], Made]:
    def spelled(node: cst.CSTNode) -> cst.CSTNode:
        result = node.visit(_Speller(owner, name))
        assert isinstance(result, cst.CSTNode)
        return result

    def made(node: cst.CSTNode) -> Made:
        result = make(node)
        return spelled(result) if isinstance(result, cst.CSTNode) else [spelled(each) for each in result]

    return made


class _Speller(cst.CSTTransformer):
    """Reads a name from an object."""

    def __init__(self, owner: str, name: str) -> None:
        super().__init__()
        self.owner, self.name = owner, name

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        self.name, self._kept = "", self.name

    def leave_Attribute_attr(self, node: cst.Attribute) -> None:
        self.name = self._kept

    def visit_Arg_keyword(self, node: cst.Arg) -> None:
        self.name, self._kept = "", self.name

    def leave_Arg_keyword(self, node: cst.Arg) -> None:
        self.name = self._kept

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        if updated_node.value != self.name:
            return updated_node
        return cst.Attribute(cst.Name(self.owner), cst.Name(self.name), lpar=updated_node.lpar, rpar=updated_node.rpar)
