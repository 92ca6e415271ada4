"""What a call calls, by name."""

from __future__ import annotations

import libcst as cst

from .values import CallRecord, External, Unknown


def method_name(call: cst.Call) -> str:
    """The last name of what a call calls."""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""


def outside_name(record: CallRecord) -> str:
    """The full name of the one outside callable that a call calls, or the empty string."""
    names = [t.qualified for t in record.callees if isinstance(t, External)]
    return names[0] if len(names) == 1 else ""


def made_names(record: CallRecord) -> list[str]:
    """The full names of a method of what an outside call gave: ``pathlib.Path.glob`` for ``Path(folder).glob()``."""
    held = record.receiver.things if record.receiver is not None else ()
    return [f"{thing.qualified}.{method_name(record.node)}" for thing in held if isinstance(thing, Unknown)]


def outside_names(record: CallRecord) -> list[str]:
    """The full names of all that a call may call, where all of it is outside; empty where some of it is not."""
    names = [t.qualified for t in record.callees if isinstance(t, External)]
    return names if len(names) == len(record.callees) else []
