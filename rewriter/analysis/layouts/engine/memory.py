"""What a walk through a program knows: the layouts of variables and attributes, and how an assignment changes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import libcst as cst

from ...dataflow.call_graph import Reach
from ...dataflow.constant_values import ConstantValues, Given, constants_of
from ...dataflow.values import State, Unit
from ...syntax.nodes import FunctionNode, entry_key
from ...syntax.scopes import Binding
from .layout import (
    REPLICATED,
    Each,
    Layout,
    Replicated,
    Several,
    Shape,
    Shard,
    ShardRow,
    Unclear,
    Whole,
    inner,
    join,
    join_all,
    mapped,
    varies,
)
from .narrowing import unpacked
from .operations import elements, sized
from .recursion import Recursion
from .shapes import indexed

Walk = TypeVar("Walk", bound="Memory")


@dataclass
class Seeds:
    """What the batch is taken to be."""

    rows: Mapping[cst.CSTNode, Layout]
    """Expressions whose values are cut into shards, and the layout of each."""
    sizes: frozenset[str] = frozenset()
    """The spellings of the number of rows of the whole batch."""
    models: bool = False
    """A model of which nothing is known gives rows for rows."""
    cut: bool = False
    """They are cut out of a batch that the script makes: what else comes in has as many rows as that."""


@dataclass
class Memory(ABC):
    """
    The variables of a walk.

    Args:
        state: the solved program.
        reach: its call graph.
        seeds: what is taken for granted.
    """

    state: State
    reach: Reach
    seeds: Seeds
    constants: ConstantValues = field(init=False)
    values: dict[Binding, Layout] = field(default_factory=dict)
    fields: dict[str, Layout] = field(default_factory=dict)
    backwards: dict[cst.Call, Layout] = field(default_factory=dict)
    """For each backward pass, the layout of its loss."""
    given: dict[cst.Call, Layout] = field(default_factory=dict)
    """For each call, the layout of what it gives."""
    fed: dict[cst.Call, list[Layout]] = field(default_factory=dict)
    """For each forward pass, the layouts of what it is given."""
    held: dict[cst.CSTNode, Layout] = field(default_factory=dict)
    """For each expression of the loop's own code, and each name that it sets, the layout."""
    within: dict[cst.CSTNode, Layout] = field(default_factory=dict)
    """The same for the code of the functions that it calls, joined over all their calls."""
    shown: dict[cst.Call, None] = field(default_factory=dict)
    """Calls that are made for their effect alone, and get rows of one process: a print, a plot."""
    numbers: dict[cst.CSTNode, None] = field(default_factory=dict)
    """What gives something that was taken for rows, and of which the one number is read."""
    taken_out: dict[cst.CSTNode, cst.CSTNode] = field(default_factory=dict)
    """For one of several that were taken for rows, and that are unpacked, what gives all of them."""
    _units: list[Unit] = field(default_factory=list)
    _frames: list[Given] = field(default_factory=list)
    _inside: list[FunctionNode] = field(default_factory=list)
    _recursion: Recursion = field(default_factory=Recursion)
    _followed: list[cst.Call] = field(default_factory=list)
    """The calls of ``nn.Sequential`` whose layers are gone through."""
    _returned: list[list[Layout]] = field(default_factory=list)
    _yielded: list[list[Layout]] = field(default_factory=list)
    _looked_up: dict[Binding, Layout] = field(default_factory=dict)
    _branch: dict[Binding, Layout | None] | None = None
    """What the variables had that the branch which is gone through has changed."""
    _start: int = 0
    _before_turns: bool = False
    """What is evaluated was set before the loop."""
    _steps: int = 0
    _steps_outside: int = 0
    """Those that went into what was set before the loop."""
    _rows_deep: int = 0
    """So many loops over rows are around what is evaluated."""
    _choices: int = 0
    """So many conditions on rows are around it."""
    _begun: dict[Binding, tuple[int, int]] = field(default_factory=dict)
    """How many of both were around the last assignment to a variable."""

    def __post_init__(self) -> None:
        self.constants = constants_of(self.state)

    def copied(self: Walk, *, beside: bool = False) -> Walk:
        """The same walk, so far: what one goes through from here, the other knows nothing of. ``beside``: but for what
        is set outside of what is asked, which is looked up once for all of them."""
        made = object.__new__(self.__class__)
        for name, value in vars(self).items():
            vars(made)[name] = value.copy() if isinstance(value, (dict, list)) else value
        made.fed = {call: [*layouts] for call, layouts in self.fed.items()}
        if beside:
            made._looked_up = self._looked_up
        return made

    @property
    def _frame(self) -> Given:
        """The constants that the call which is followed gives to the parameters of its function."""
        return self._frames[-1] if self._frames else {}

    @property
    def _unit(self) -> Unit:
        return self._units[-1]

    @abstractmethod
    def _eval(self, node: cst.CSTNode) -> Layout:
        """The layout of an expression."""

    def _note(self, node: cst.CSTNode, layout: Layout) -> None:
        notes = self.within if self._inside else self.held
        notes[node] = join(notes[node], layout) if node in notes else layout

    def _set(self, binding: Binding, layout: Layout | None) -> None:
        """Give a variable a layout, or take it away; what it had is kept for the end of the branch."""
        if self._branch is not None:
            self._branch.setdefault(binding, self.values.get(binding))
        if layout is None:
            self.values.pop(binding, None)
        else:
            self.values[binding] = layout

    @contextmanager
    def _branching(self) -> Iterator[dict[Binding, Layout | None]]:
        """Gives what the variables that a branch changes had before it, once it is gone through; None for one that was
        not there. A branch costs as much as it changes, however many variables there are."""
        outer, self._branch = self._branch, {}
        before = self._branch
        yield before
        self._branch = outer
        if outer is not None:
            for binding, layout in before.items():
                outer.setdefault(binding, layout)

    def _meet(self, other: Mapping[Binding, Layout | None]) -> None:
        for binding, layout in other.items():
            if layout is not None:
                self._set(binding, join(self.values[binding], layout) if binding in self.values else layout)

    def _assign(self, target: cst.CSTNode, layout: Layout) -> None:
        if isinstance(target, cst.Name):
            binding = self._unit.names.binding(target)
            if binding is not None:
                self._set(binding, self.seeds.rows.get(target, layout))
                self._begun[binding] = self._rows_deep, self._choices
                self._note(target, self.values[binding])
        elif isinstance(target, (cst.Tuple, cst.List)):
            for place, element in enumerate(target.elements):
                part = self._part(layout, place, len(target.elements), element)
                self._assign(element.value, mapped(part, partial(self._given_by, element)))
        elif isinstance(target, cst.Attribute):
            self.fields[target.attr.value] = layout
        elif isinstance(target, cst.Subscript):
            self._put(target, layout)

    def _given_by(self, element: cst.CSTNode, layout: Layout) -> Layout:
        """One of several that a model gives: what is known of it says nothing of the others."""
        if isinstance(layout, Shard) and layout.assumed is not None and layout.assumed.node is not element:
            self.taken_out[element] = layout.assumed.node
            return replace(layout, assumed=replace(layout.assumed, node=element))
        return layout

    def _part(self, layout: Layout, place: int, count: int, element: cst.BaseElement) -> Layout:
        if isinstance(element, cst.StarredElement):
            return (
                Each(elements(layout, element))
                if not isinstance(layout, Shape)
                else Unclear("a part of a shape", element)
            )
        layout = unpacked(layout, count)
        if isinstance(layout, Several):
            return layout.items[place] if len(layout.items) == count else join_all(layout.items)
        if isinstance(layout, Shape):
            return sized(replace(layout.of, rank=count), place)
        return elements(layout, element)

    def _put(self, target: cst.Subscript, layout: Layout) -> None:
        """``values[i] = x``: a container holds it; a tensor of rows keeps them where a plain value is put in."""
        base = self._eval(target.value)
        key = entry_key(target)
        if key and (isinstance(base, (Several, Each)) or (isinstance(base, Replicated) and varies(layout))):
            self._assign(target.value, _with_entry(base, key, layout))
            return
        if isinstance(inner(base), Shard) and (isinstance(inner(layout), Replicated) or self._is_row(target, layout)):
            return
        if self._is_in_place(target, base, layout):
            return
        if isinstance(inner(base), Whole) and isinstance(inner(layout), (Replicated, Whole)):
            return
        if isinstance(base, Replicated) and not varies(layout):
            return
        held = (
            Each(join(inner(base), inner(layout)))
            if isinstance(base, (Each, Several))
            else (Each(inner(layout)) if isinstance(base, Replicated) and base.neutral else None)
        )
        lost = next((one for one in (inner(layout), inner(base)) if isinstance(one, Unclear)), None)
        if held is None and lost is not None:  # what is not known already is the reason, not that it is put somewhere
            self._assign(target.value, lost)
            return
        code = self._unit.names.module.code_for_node
        reason = f"`{code(target)}` is set, and what `{code(target.value)}` holds then cannot be told"
        self._assign(target.value, held or Unclear(reason, target))

    def _take_out(self, target: cst.Subscript) -> None:
        """``del values["loss"]``."""
        base, key = self._eval(target.value), entry_key(target)
        if isinstance(base, Several) and base.names:
            self._assign(target.value, without_entry(base, key) if key else Each(inner(base)))

    def _is_in_place(self, target: cst.Subscript, base: Layout, layout: Layout) -> bool:
        """``out[:, t, :] = x``: rows are put where the same rows are."""
        if not isinstance(base, Shard) or not isinstance(layout, Shard):
            return False
        parts = [element.slice for element in target.slice]
        places = [self._eval(part.value) if isinstance(part, cst.Index) else REPLICATED for part in parts]
        there = indexed(base, parts, places, target)
        return (
            isinstance(there, Shard) and not there.chosen and (there.dim, there.merged) == (layout.dim, layout.merged)
        )

    def _is_row(self, target: cst.Subscript, layout: Layout) -> bool:
        """``scores[i] = row``, in a loop over the rows."""
        index = target.slice[0].slice
        if len(target.slice) != 1 or not isinstance(index, cst.Index) or not isinstance(inner(layout), ShardRow):
            return False
        return isinstance(self._eval(index.value), ShardRow)

    def _has_dimension(self, shape: cst.BaseExpression, place: int | None) -> None:
        """``x.shape[1]`` says that ``x`` has two dimensions or more."""
        call = shape.func if isinstance(shape, cst.Call) else shape
        name = call.value if isinstance(call, cst.Attribute) else None
        binding = self._unit.names.binding(name) if isinstance(name, cst.Name) else None
        held = self.values.get(binding) if binding is not None else None
        if binding is not None and isinstance(held, Shard) and place is not None and place >= held.least:
            self._set(binding, replace(held, least=place + 1))

    def _rank_of_shape(self, target: cst.CSTNode, value: cst.BaseExpression) -> None:
        """``B, T, C = x.shape`` says how many dimensions ``x`` has."""
        call = value.func if isinstance(value, cst.Call) and not value.args else value
        if not (isinstance(target, cst.Tuple) and isinstance(call, cst.Attribute) and isinstance(call.value, cst.Name)):
            return
        binding = self._unit.names.binding(call.value)
        held = self.values.get(binding) if binding is not None else None
        if call.attr.value in ("shape", "size") and isinstance(held, Shard) and binding is not None:
            self._set(binding, replace(held, rank=len(target.elements)))


def _with_entry(base: Layout, key: str, layout: Layout) -> Layout:
    """A table with one entry set: its entries are known by their keys, as long as all of them are."""
    if isinstance(base, Each) or (isinstance(base, Several) and base.items and not base.names):
        return Each(join(inner(base), inner(layout)))
    held = dict(zip(base.names, base.items, strict=True)) if isinstance(base, Several) else {}
    held[key] = layout
    return Several(tuple(held.values()), tuple(held))


def without_entry(table: Several, key: str) -> Several:
    """A table after one of its entries is taken out."""
    held = [(name, item) for name, item in zip(table.names, table.items, strict=True) if name != key]
    return Several(tuple(item for _, item in held), tuple(name for name, _ in held))
