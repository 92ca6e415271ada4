"""
How many turns a ``for`` takes, where its steps are taken by all processes together.

The rows of a batch are equally many on all processes, and so are the batches of a prepared loader. What is filtered by
its values is not, nor what is counted in the rows of one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import libcst as cst

from ...facts.torch_api import questions
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import State, Unit
from .engine.layout import Each, Layout, Mixed, Replicated, Several, Shard, ShardSize, Unclear
from .loop_layouts import LoopLayouts, layouts_of


class Turns(Enum):
    """How the numbers of turns of the processes are related."""

    ALIKE = "alike"
    ROWS = "one for each row"
    OWN = "own"
    UNCLEAR = "unclear"


def filters(state: State, loop: cst.For | cst.CompFor) -> bool:
    """Whether something leaves out elements on their way to a loop, by what is in them: ``filter(is_good, loader)``."""
    return any(questions.leaves_out(outside_name(state.calls[call])) for call in _handed_on(state, loop.iter))


def counted_by(state: State, source: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The values that say how many turns a loop takes: the numbers of a ``range``, or what it goes through."""
    name = outside_name(state.calls[source]) if isinstance(source, cst.Call) and source in state.calls else ""
    if not isinstance(source, cst.Call) or not (name == "builtins.range" or _hands_on(name)):
        yield source
        return
    for arg in source.args if name.startswith("builtins.") else source.args[:1]:
        if arg.keyword is None:
            yield from [arg.value] if name == "builtins.range" else counted_by(state, arg.value)


def turns(state: State, unit: Unit, loop: cst.For | cst.CompFor) -> Turns:
    """How many turns a loop takes that is no loop over a loader."""
    around = layouts_of(state).around(unit, loop)
    found = [each for layouts in around for each in _turns(state, layouts, loop.iter)]
    return next((kind for kind in (Turns.OWN, Turns.UNCLEAR, Turns.ROWS) if kind in found), Turns.ALIKE)


def _turns(state: State, layouts: LoopLayouts, source: cst.BaseExpression) -> Iterator[Turns]:
    """What is known of how many elements something has, and what it is made of."""
    if not isinstance(source, cst.Call) or source not in state.calls:
        yield from _elements(layouts.container(source))
        return
    name = outside_name(state.calls[source])
    if name == "builtins.range":
        yield from (_counted(layouts, arg.value) for arg in source.args)
    elif isinstance(source.func, cst.Attribute) and questions.changes_shape(method_name(source)):  # x.split(4)
        yield from _turns(state, layouts, source.func.value)
    else:
        yield from _elements(layouts.container(source))
        for arg in source.args if _hands_on(name) else ():
            yield from _turns(state, layouts, arg.value)


def _counted(layouts: LoopLayouts, number: cst.BaseExpression) -> Turns:
    layout = layouts.value(number)
    if isinstance(layout, Replicated):
        return Turns.ALIKE
    return Turns.ROWS if isinstance(layout, ShardSize) and not layouts.counts_chosen(number) else Turns.OWN


def _elements(layout: Layout) -> Iterator[Turns]:
    if isinstance(layout, Mixed):
        yield from (*_elements(layout.one), *_elements(layout.other))
    elif isinstance(layout, Each):
        own = bool(layout.uneven) or layout.distinct
        yield Turns.OWN if own else Turns.ROWS if layout.rows else Turns.ALIKE
    elif isinstance(layout, Shard):
        yield Turns.OWN if layout.chosen else Turns.ROWS if layout.dim == 0 else Turns.ALIKE
    elif isinstance(layout, Unclear):
        yield Turns.UNCLEAR
    elif not isinstance(layout, Several):
        yield Turns.ALIKE


def _handed_on(state: State, source: cst.CSTNode) -> Iterator[cst.Call]:
    """The calls by which elements come to a loop, one around the other: ``enumerate(filter(is_good, loader))``."""
    if isinstance(source, cst.Call) and source in state.calls:
        yield source
        if _hands_on(outside_name(state.calls[source])):
            for arg in source.args:
                yield from _handed_on(state, arg.value)


def _hands_on(name: str) -> bool:
    """Whether a call yields elements of what it is given, or of several things together."""
    return questions.passes(name) or (name.startswith("builtins.") and name != "builtins.range")
