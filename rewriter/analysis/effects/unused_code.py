"""
Code that the program never runs: functions and classes that nothing names but such code.

The call graph does not see all calls: of what a registry holds, of what a package calls back. So what is named by code
that may run, may run.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..dataflow.call_graph import Reach
from ..dataflow.values import External, Unit
from ..syntax.nodes import dotted
from .unseen import is_called

_Definition = cst.FunctionDef | cst.ClassDef
_Owner = cst.FunctionDef | cst.ClassDef | cst.If
_BUILT_IN = frozenset("getattr eval globals vars __import__".split())
_LOOKED_UP = _BUILT_IN | frozenset("import_module __dict__ import_string".split())
"""What finds a function or a class by a text. ``model.eval()`` is another one."""


def may_run(unit: Unit, reach: Reach, node: cst.CSTNode) -> bool:
    """Whether a node may run: also in a function that no call is seen to reach, or in a class that none builds."""
    owner = _owner(unit, reach, node)
    return owner is None or owner in reach.state.once(may_run, lambda: _used(reach, by_text=True))


def is_named(unit: Unit, reach: Reach, node: cst.CSTNode) -> bool:
    """Whether a node may run, as far as code names what runs: what only a text could find (``getattr(utils, key)``) is
    taken for code that rests."""
    owner = _owner(unit, reach, node)
    return owner is None or owner in reach.state.once(is_named, lambda: _used(reach, by_text=False))


def _owner(unit: Unit, reach: Reach, node: cst.CSTNode) -> _Owner | None:
    """The function around a node, or for a method its class, that no call is seen to reach, or what runs only where a
    module is started that is imported; None for other code."""
    if (resting := reach.resting(unit, node)) is not None:
        return resting
    code = unit.names.function(node)
    if isinstance(code, cst.Lambda):
        return _owner(unit, reach, unit.names.parents[code])
    if not isinstance(code, cst.FunctionDef) or code in reach.reachable:
        return None
    return next((a for a in unit.names.ancestors(node) if isinstance(a, cst.ClassDef)), code)


def _used(reach: Reach, *, by_text: bool) -> frozenset[_Definition]:
    """The functions and classes that code names which may run, and all that these name; ``by_text``: and every one,
    where code looks one up by a text."""
    defined: dict[str, list[_Definition]] = {}
    for unit in reach.units:
        for definition in unit.names.every(cst.FunctionDef, cst.ClassDef):
            defined.setdefault(definition.name.value, []).append(definition)
    everything = frozenset(one for several in defined.values() for one in several)
    named: dict[_Owner | None, set[_Definition]] = {}
    for unit in reach.units:
        for node, word in _words(unit):
            looks_up = by_text and word in _LOOKED_UP and not isinstance(_owner(unit, reach, node), cst.If)
            if looks_up and not _asks_attribute(reach, unit, node, word):
                if isinstance(node, cst.Name) or word not in _BUILT_IN:
                    return everything
            for one in _defined_here(unit, node) or defined.get(word, []):
                if one not in unit.names.ancestors(node):
                    named.setdefault(_owner(unit, reach, node), set()).add(one)
    found = {one for one in everything if one.decorators}  # a decorator may hand it on
    pending = [*found, *named.get(None, ())]
    while pending:
        one = pending.pop()
        found.add(one)
        pending += named.pop(one, ())
    return frozenset(found)


def _words(unit: Unit) -> Iterator[tuple[cst.CSTNode, str]]:
    """The names that a module reads, and the last parts of its attributes; what it imports is only named there."""
    for node in unit.names.every(cst.Name, cst.Attribute):
        above = unit.names.parents.get(node)
        if isinstance(above, (cst.FunctionDef, cst.ClassDef)) and above.name is node:
            continue  # its definition
        if not isinstance(above, cst.ImportAlias) and not (isinstance(above, cst.Attribute) and above.attr is node):
            yield node, dotted(node).rpartition(".")[2]


def _defined_here(unit: Unit, node: cst.CSTNode) -> list[_Definition]:
    """What a name stands for, where that is certainly a function or a class of its own module: one of the same name in
    another module is not meant."""
    binding = unit.names.binding(node) if isinstance(node, cst.Name) and node in unit.names.within else None
    found = [d for d in binding.definitions if isinstance(d, (cst.FunctionDef, cst.ClassDef))] if binding else []
    return found if binding is not None and len(found) == len(binding.definitions) else []


def _asks_attribute(reach: Reach, unit: Unit, node: cst.CSTNode, word: str) -> bool:
    """``getattr(args, "rate")``: what it gives is never called, and so no class; or it is another package's, as of
    ``getattr(models, name)``."""
    call = unit.names.parents.get(node)
    if word != "getattr" or not isinstance(call, cst.Call) or call.func is not node or not call.args:
        return False
    held = reach.state.values.get(call.args[0].value)
    outside = held is not None and held.things and all(isinstance(thing, External) for thing in held.things)
    return bool(outside) or not is_called(unit, call)
