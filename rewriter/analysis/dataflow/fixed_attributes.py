"""Attributes that take no new value: of a named tuple, a frozen data class, a property, a class with ``__slots__``."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..syntax.nodes import keyword
from .object_fields import fields_of
from .solver import Thing
from .values import Klass, State, Unknown, decorators

_TUPLES = ("collections.namedtuple", "typing.NamedTuple")
_DATACLASSES = frozenset("dataclass s attrs define frozen".split())


def fixed_attribute(state: State, node: cst.Attribute) -> str:
    """Why what an attribute names cannot be set, as a sentence; empty where it can, and where that is not known."""
    slot = state.values.get(node.value)
    reasons = (_of_thing(state, thing, node.attr.value) for thing in (slot.things if slot is not None else ()))
    return next(filter(None, reasons), "")


def _of_thing(state: State, thing: Thing, name: str) -> str:
    if isinstance(thing, Unknown):
        return _TUPLE if thing.qualified.startswith(_TUPLES) else ""
    klass = fields_of(state).klass(thing)
    return fixed_in(klass, name) if klass is not None else ""


def fixed_in(klass: Klass, name: str) -> str:
    """Why objects of a class take no attribute of some name; empty where they do."""
    title = klass.node.name.value
    if any(base.startswith(_TUPLES) for each in klass.lineage() for base in each.externals):
        return _TUPLE
    if any(_is_frozen(each) for each in klass.lineage()):
        return f"{title} is frozen"
    if _is_property(klass, name):
        return f"{title}.{name} is a property without a setter"
    slots = _slots(klass)
    return f"`__slots__` of {title} has no `{name}`" if slots is not None and name not in slots else ""


_TUPLE = "a named tuple keeps what it was made with"


def _is_frozen(klass: Klass) -> bool:
    """``@dataclass(frozen=True)``, ``@attr.s(frozen=True)``, ``@attrs.frozen``."""
    for name, decorator in zip(decorators(klass.node), klass.node.decorators, strict=True):
        made = decorator.decorator
        asked = keyword(made, "frozen") if isinstance(made, cst.Call) else None
        if name in _DATACLASSES and isinstance(asked, cst.Name) and asked.value == "True":
            return True
        if name == "frozen" and asked is None:
            return True
    return False


def _is_property(klass: Klass, name: str) -> bool:
    """Whether the class that has an attribute gives it by a property, and sets it by none."""
    if klass.method("__setattr__") is not None:
        return False
    for each in klass.lineage():
        own = [f for f in _functions(each) if f.name.value == name]
        if own:
            made = {word for function in own for word in decorators(function)}
            return "property" in made and "setter" not in made
        if name in _assigned(each):
            return False
    return False


def _slots(klass: Klass) -> set[str] | None:
    """The only attributes that objects of a class take; None where they take any."""
    found: set[str] = set()
    for each in klass.lineage():
        own = _assigned(each).get("__slots__")
        if own is None or any(base != "builtins.object" for base in each.externals):
            return None
        names = own.elements if isinstance(own, (cst.Tuple, cst.List, cst.Set)) else [cst.Element(own)]
        texts = [e.value.evaluated_value if isinstance(e.value, cst.SimpleString) else None for e in names]
        if not all(isinstance(text, str) for text in texts):
            return None
        found.update(str(text) for text in texts)
    return None if "__dict__" in found else found


def _functions(klass: Klass) -> Iterator[cst.FunctionDef]:
    body = klass.node.body.body if isinstance(klass.node.body, cst.IndentedBlock) else ()
    return (statement for statement in body if isinstance(statement, cst.FunctionDef))


def _assigned(klass: Klass) -> dict[str, cst.BaseExpression | None]:
    """What the body of a class sets, by name."""
    body = klass.node.body.body if isinstance(klass.node.body, cst.IndentedBlock) else ()
    small = [s for line in body if isinstance(line, cst.SimpleStatementLine) for s in line.body]
    found: dict[str, cst.BaseExpression | None] = {}
    for each in small:
        targets = [t.target for t in each.targets] if isinstance(each, cst.Assign) else []
        targets += [each.target] if isinstance(each, cst.AnnAssign) else []
        value = each.value if isinstance(each, (cst.Assign, cst.AnnAssign)) else None
        found.update({t.value: value for t in targets if isinstance(t, cst.Name)})
    return found
