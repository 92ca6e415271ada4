"""
The accelerator's spelling: rules write its name, and in methods the name becomes ``self.accelerator``.

The program itself does not use the name. So every occurrence in the text of a rule means the accelerator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import libcst as cst

from ..analysis.syntax.names import Names
from ..facts.module import ModuleFacts
from .edits import AddArgument, AddImport, Edit, InsertAfter, InsertBefore, Made, Replace

_STATE = "PartialState"
"""The class that knows the rank in any function, once the accelerator exists."""
STATE = f"{_STATE}()"
_EARLY = "EarlyState"
"""The class that knows the rank before anything is chosen or started."""
_SILENT = frozenset({"accelerator_setup", "directories", "device_placement"})
"""Rules whose edits need no accelerator at their place."""


def spell(edit: Edit, names: Names, facts: ModuleFacts) -> Edit:
    """An edit as it is written at its place: ``self.accelerator`` for ``accelerator`` if an object keeps it, and
    ``PartialState()`` or ``EarlyState()`` if the accelerator is not visible."""
    name, code = facts.accelerator, names.function(edit.node)
    owner = facts.spelled.get(code)
    asked = _asked(edit, code, facts)
    ahead = f"{_STATE}(cpu=True)" if facts.on_cpu and edit.node in facts.ahead else f"{asked}()"
    spoken = ahead if asked is not None else f"{owner}.{name}" if owner is not None else None
    if spoken is None or isinstance(edit.node, (cst.Param, cst.FunctionDef, cst.Module)):
        return edit
    if isinstance(edit, Replace):
        return replace(edit, make=_through(edit.make, spoken, name))
    if isinstance(edit, (InsertBefore, InsertAfter)):
        return replace(edit, text=re.sub(rf"(?<![\w.]){name}\b", spoken, edit.text))
    if isinstance(edit, AddArgument) and _hands_it_over(edit):
        return replace(edit, value=spoken)
    return edit


def _hands_it_over(edit: AddArgument) -> bool:
    """Whether it is the accelerator that an argument hands over: one with a value of its own is none."""
    return not edit.value


def _asked(edit: Edit, code: cst.CSTNode, facts: ModuleFacts) -> str | None:
    """The class that says which process this is, where the accelerator does not."""
    if edit.rule in _SILENT or (isinstance(edit, AddArgument) and not _hands_it_over(edit)):
        return None
    if code in facts.behind or edit.node in facts.ahead:
        return _STATE
    return _EARLY if edit.node in facts.early else None


def imported(edits: Sequence[Edit], names: Names, facts: ModuleFacts) -> Iterator[AddImport]:
    """The imports that such spellings need."""
    for edit in edits:
        asked = _asked(edit, names.function(edit.node), facts)
        if asked is not None and not isinstance(edit, AddImport):
            why = f"`{asked}` knows which process this is"
            yield AddImport(edit.rule, facts.module, facts.abilities.module, asked, reason=why, unit=edit.unit)


def _through(make: Callable[[cst.CSTNode], Made], spoken: str, name: str) -> Callable[[cst.CSTNode], Made]:
    def spelled(node: cst.CSTNode) -> cst.CSTNode:
        result = node.visit(_Speller(spoken, name))
        assert isinstance(result, cst.CSTNode)
        return result

    def made(node: cst.CSTNode) -> Made:
        result = make(node)
        return spelled(result) if isinstance(result, cst.CSTNode) else [spelled(each) for each in result]

    return made


class _Speller(cst.CSTTransformer):
    """Replaces a name with an expression, such as an attribute of an object."""

    def __init__(self, spoken: str, name: str) -> None:
        super().__init__()
        self.spoken, self.name = spoken, name

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
        return cst.parse_expression(self.spoken).with_changes(lpar=updated_node.lpar, rpar=updated_node.rpar)
