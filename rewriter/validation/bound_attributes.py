"""
What the emitted program reads as an attribute of an object is there: a kept accelerator, and what is prepared.

A method that makes the accelerator, `self.accelerator = Accelerator()`, runs before every other one that reads it. What
a constructor keeps is there always. Where a variable may hold objects of several classes, `prepare(model.encoder)` asks
each of them for its encoder.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.object_fields import fields_of
from ..analysis.dataflow.running_order import without
from ..analysis.dataflow.solver import Thing
from ..analysis.dataflow.values import CallRecord, Klass, Unit, origins
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


def had(program: EmittedProgram) -> Iterator[Violation]:
    """What is prepared as an attribute of an object whose class sets none of that name."""
    for record in program.prepares:
        for arg in record.node.args:
            node, unit = arg.value, record.unit
            base = program.state.values.get(node.value) if isinstance(node, cst.Attribute) else None
            for thing in base.things if base is not None else ():
                klass = fields_of(program.state).klass(thing)
                if (
                    isinstance(node, cst.Attribute)
                    and klass is not None
                    and _lacks(program, record, node, thing, klass)
                ):
                    text = unit.names.module.code_for_node(node)
                    words = f"`{text}` is prepared here, but {klass.node.name.value} has no `{node.attr.value}`"
                    yield Violation("attribute-bound", CodePlace(unit, node), words, CodePlace(klass.unit, klass.node))


_PLAIN = frozenset({"object", "builtins.object", "torch.nn.Module", "torch.nn.modules.Module", "abc.ABC"})


def _lacks(program: EmittedProgram, record: CallRecord, node: cst.Attribute, thing: Thing, klass: Klass) -> bool:
    """Whether nothing gives an object an attribute, apart from the assignment of what ``prepare`` gives."""
    name = node.attr.value
    for each in klass.lineage():
        known = each.unit.names.scopes[each.node].bindings
        if not _PLAIN.issuperset(each.externals) or name in known or "__getattr__" in known:
            return False
    names, fields = record.unit.names, fields_of(program.state)
    assigned = names.statement(record.node)
    return all(
        isinstance(place, cst.Attribute) and place in names.parents and names.statement(place) is assigned
        for place in fields.places(thing, name)
    )
