"""Objects that are made of their fields: named tuples and data classes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..syntax.definitions import plain_values
from ..syntax.nodes import keyword
from .callees import outside_name
from .values import CallRecord, Klass, State, decorators


def record_fields(state: State, record: CallRecord) -> tuple[str, ...]:
    """The fields of the object that a call makes, in the order of its arguments: of a named tuple, or a data class with
    no constructor of its own; empty for any other call."""
    klasses = [thing for thing in record.callees if isinstance(thing, Klass)]
    if klasses:
        return declared_fields(klasses[0]) if len(klasses) == len(record.callees) == 1 else ()
    return _named(state, record) if isinstance(record.node.func, cst.Name) else ()


def declared_fields(klass: Klass) -> tuple[str, ...]:
    """What the constructor of a class sets that its body does not write: that of a data class, or a named tuple."""
    made = is_dataclass(klass) or "typing.NamedTuple" in klass.externals
    return tuple(dict.fromkeys(_declared(klass))) if made and klass.method("__init__") is None else ()


def _declared(klass: Klass) -> Iterator[str]:
    for base in reversed(klass.bases):
        yield from _declared(base)
    yield from (field.target.value for field in annotated(klass) if isinstance(field.target, cst.Name))


def _named(state: State, record: CallRecord) -> tuple[str, ...]:
    """Those of ``Result(...)``, where ``Result = namedtuple("Result", "loss scores")``."""
    func = record.node.func
    made = plain_values(record.unit.names, func) if isinstance(func, cst.Name) else []
    known = state.calls.get(made[0]) if len(made) == 1 and isinstance(made[0], cst.Call) else None
    if known is None or outside_name(known) not in ("collections.namedtuple", "typing.NamedTuple"):
        return ()
    fields = keyword(known.node, "field_names", 1)
    if isinstance(fields, cst.SimpleString):
        return tuple(str(fields.evaluated_value).replace(",", " ").split())
    elements = fields.elements if isinstance(fields, (cst.List, cst.Tuple)) else ()
    texts = [_field(element.value) for element in elements]
    return tuple(filter(None, texts)) if all(texts) else ()


def _field(node: cst.BaseExpression) -> str:
    """The name in ``"loss"``, and in ``("loss", torch.Tensor)``."""
    first = node.elements[0].value if isinstance(node, cst.Tuple) and node.elements else node
    return str(first.evaluated_value) if isinstance(first, cst.SimpleString) else ""


def is_dataclass(klass: Klass) -> bool:
    """Whether a class has a constructor that sets what its body declares."""
    return "dataclass" in decorators(klass.node)


def annotated(klass: Klass) -> list[cst.AnnAssign]:
    """The fields that the body of a class declares, in their order."""
    body = klass.node.body.body if isinstance(klass.node.body, cst.IndentedBlock) else ()
    small = [s for line in body if isinstance(line, cst.SimpleStatementLine) for s in line.body]
    return [s for s in small if isinstance(s, cst.AnnAssign) and isinstance(s.target, cst.Name)]
