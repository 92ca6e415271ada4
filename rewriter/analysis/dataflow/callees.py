"""What a call calls, by name."""

from __future__ import annotations

import libcst as cst

from .values import Above, CallRecord, External, Instance, Klass, Unknown


def method_name(call: cst.Call) -> str:
    """The last name of what a call calls."""
    func = call.func  # (LibCST's classes are abstract ones, of which `isinstance` is slow to deny one)
    if type(func) is cst.Attribute:
        return func.attr.value
    return func.value if type(func) is cst.Name else ""


def outside_name(record: CallRecord) -> str:
    """The full name of the one outside callable that a call calls, or the empty string. None, which stands for what is
    not installed, is not called."""
    names = [t.qualified for t in record.callees if isinstance(t, External) and not t.is_none]
    return names[0] if len(names) == 1 else ""


def made_names(record: CallRecord) -> list[str]:
    """The full names of a method of what an outside call gave, ``pathlib.Path.glob`` for ``Path(folder).glob()``, of
    one that a class of the program has from an outside base, and of the call of such a thing itself."""
    name = method_name(record.node)
    found = [f"{thing.qualified}.__call__" for thing in record.callees if isinstance(thing, Unknown)]
    for thing in record.receiver.things if record.receiver is not None else ():
        klass = thing.klass if isinstance(thing, Instance) else thing.below if isinstance(thing, Above) else None
        if isinstance(thing, Unknown):
            found.append(f"{thing.qualified}.{name}")
        elif klass is not None and (isinstance(thing, Above) or klass.method(name) is None):
            found += [f"{base}.{name}" for base in klass.externals]
    return found


def built_names(record: CallRecord) -> list[str]:
    """The full names of all that a call may call, where a class of the program stands for its outside bases; empty
    where something has none."""
    found: list[str] = []
    for thing in record.callees:
        names = thing.externals if isinstance(thing, Klass) else ()
        names = (thing.qualified,) if isinstance(thing, External) else names
        if not names:
            return []
        found += names
    return found


def outside_names(record: CallRecord) -> list[str]:
    """The full names of all that a call may call, where all of it is outside; empty where some of it is not."""
    names = [t.qualified for t in record.callees if isinstance(t, External)]
    return names if len(names) == len(record.callees) else []
