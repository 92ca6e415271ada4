"""
The accelerator that an object keeps is there wherever a method reads it.

A method that makes it, `self.accelerator = Accelerator()`, runs before every other one that reads it. What a
constructor keeps is there always.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.running_order import without
from ..analysis.dataflow.values import Unit, origins
from ..facts.roles import Role
from .program import EmittedProgram
from .violation import Violation


def kept(program: EmittedProgram) -> Iterator[Violation]:
    """The reads of a kept accelerator in code that runs also where nothing has made it."""
    reads: dict[str, list[tuple[Unit, cst.Attribute]]] = {}
    makes: dict[str, dict[cst.CSTNode, CodePlace]] = {}
    for unit in program.reach.units:
        for node in unit.names.every(cst.Attribute):
            if not origins(program.state.values.get(node), Role.ACCELERATOR):
                continue
            if isinstance(unit.names.parents.get(node), (cst.AssignTarget, cst.AnnAssign)):
                makes.setdefault(node.attr.value, {}).setdefault(unit.names.function(node), CodePlace(unit, node))
            else:
                reads.setdefault(node.attr.value, []).append((unit, node))
    for name, makers in makes.items():
        constructs = any(isinstance(maker, cst.FunctionDef) and maker.name.value == "__init__" for maker in makers)
        modules = any(isinstance(maker, cst.Module) for maker in makers)
        before = without(program.reach, *makers) if not constructs and not modules else set()
        for unit, node in reads.get(name, ()):
            code = unit.names.function(node)
            first = makers[code].node if code in makers else None
            early = first is not None and unit.names.order(node) < unit.names.order(first)
            if early or code in before:
                text = unit.names.module.code_for_node(node)
                words = f"`{text}` is read here, but on some path to this place nothing has made it"
                yield Violation("attribute-bound", CodePlace(unit, node), words, next(iter(makers.values())))
