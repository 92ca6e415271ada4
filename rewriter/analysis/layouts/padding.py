"""
Loaders whose batches are filled up to their longest row, by a `collate_fn`: how long that is differs between processes.

What is that long cannot be joined over the processes, and nothing says with what to fill it up once more. Where what is
gathered of the batch has one entry a row (labels of whole texts), the model's results are taken to have as well. What
has several rows for a sample cannot be joined either: which of them belong to repeated samples is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.container_methods import adds_in_order
from ...facts.module import Gather
from ...facts.roles import Origin
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.solver import Thing
from ..dataflow.values import External, Function, Instance, State
from ..syntax.nodes import FunctionNode, is_none
from ..syntax.walk import descendants, nodes_in

Place = int | str
_TOKENS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_FOREIGN = {
    "default_collate": None,
    "default_convert": None,
    "DataCollatorWithPadding": _TOKENS,
    "default_data_collator": frozenset[Place](),
}
"""Outside functions that collate, and what they pad; None for nothing."""


class Padding(NamedTuple):
    """What of a batch is padded: positions or keys; None where that cannot be said."""

    places: frozenset[Place] | None


def long_names(state: State, reach: Reach, loop: cst.CSTNode, names: Iterable[cst.CSTNode]) -> set[cst.CSTNode]:
    """Those of the names that a loop gives its batch to, or a part of it, which may hold something padded."""
    paddings = _paddings(state, reach, loop, _Collating)
    places = dict(_places(loop)) if paddings and isinstance(loop, cst.For) else {}
    places = {name: place for name, place in places.items() if isinstance(place, int)}
    return {
        n for n in names if isinstance(n, cst.Name) and _meets(paddings, [places[n.value]] if n.value in places else [])
    }


def _paddings(state: State, reach: Reach, loop: cst.CSTNode, kind: type[_Collating]) -> list[Padding]:
    """What the batches of a loop are padded in, or have other rows in."""
    return [p for loader in reach.loaders(loop) if (p := _padding(state, reach, loader, kind)) is not None]


def ragged(
    state: State, reach: Reach, loop: cst.CSTNode, gathers: Iterable[Gather], given: Callable[[Gather], bool]
) -> bool:
    """
    Whether something to be gathered in a loop may be as long as the longest row of one process's batch, or have another
    number of rows than the batch has samples.

    Args:
        given: whether something to be gathered that a model gave is seen to be that long.
    """
    paddings, grown = (_paddings(state, reach, loop, kind) for kind in (_Collating, _Growing))
    if not (paddings or grown) or not isinstance(loop, cst.For):
        return False
    places = dict(_places(loop))
    for gather in gathers:
        named = {name: places[name] for name in gather.names if name in places}
        inline = [key for part in gather.inline if (key := _key(part)) is not None]
        counts = bool(gather.names) and not gather.inline and set(gather.sized).issuperset(gather.names)
        long = [place for name, place in named.items() if name not in gather.sized] + inline
        if not counts and _meets(paddings, long):  # a number for each row there is, however long that is
            return True
        if paddings and given(gather):
            return True
        if _meets(grown, [*named.values(), *inline]):
            return True
    return False


def _meets(paddings: list[Padding], found: list[Place]) -> bool:
    """Whether what is gathered is among what is padded, or may be."""
    return bool(paddings) and (not found or any(p.places is None or not p.places.isdisjoint(found) for p in paddings))


def _padding(state: State, reach: Reach, loader: Origin, kind: type[_Collating]) -> Padding | None:
    """What a loader's batches are padded in, or of a kind ``_Growing`` have other rows in; None where they are not."""
    if not isinstance(loader.node, cst.Call):
        return None
    given = next((a.value for a in loader.node.args if a.keyword is not None and a.keyword.value == "collate_fn"), None)
    if given is None or is_none(given):
        return None
    record = state.calls.get(given) if isinstance(given, cst.Call) else None
    if record is not None and outside_name(record) == "functools.partial" and isinstance(given, cst.Call):
        given = given.args[0].value
    elif record is not None and outside_name(record):
        return _foreign(outside_name(record)) if kind is _Collating else None
    slot = state.values.get(given)
    found = [_of(reach, thing, kind) for thing in (slot.things if slot is not None else ())]
    known = [padding for padding in found if padding is not None]
    return known[0] if known else None if found or kind is _Growing else Padding(None)


def _of(reach: Reach, thing: Thing, kind: type[_Collating]) -> Padding | None:
    """What something that collates pads."""
    if isinstance(thing, Function):
        return kind(reach, thing.node).padding()
    if isinstance(thing, Instance):
        call = next((m for m in thing.klass.node.body.body if _is_call(m)), None)
        if isinstance(call, cst.FunctionDef):
            return kind(reach, call).padding()
    if kind is _Growing:
        return None
    if isinstance(thing, Instance):
        return Padding(None)
    return _foreign(thing.qualified if isinstance(thing, (External, Origin)) else "")


def _foreign(qualified: str) -> Padding | None:
    """What an outside function, or an object of an outside class, pads."""
    name = qualified.rpartition(".")[2]
    if name not in _FOREIGN:
        return Padding(None)
    places = _FOREIGN[name]
    return Padding(frozenset(places)) if places is not None else None


def _is_call(member: cst.CSTNode) -> bool:
    return isinstance(member, cst.FunctionDef) and member.name.value == "__call__"


class _Collating:
    """Reads a function that makes a batch of rows: which names in it hold something padded, or the longest length."""

    def __init__(self, reach: Reach, function: FunctionNode, above: frozenset[FunctionNode] = frozenset()) -> None:
        self.reach, self.function, self.above = reach, function, above | {function}
        self.pads: dict[FunctionNode, bool] = {}
        """Which functions that it calls pad."""
        self.nodes = list(descendants(function.body))
        self.long: set[str] = set(self._first())
        before = -1
        while len(self.long) > before:
            before = len(self.long)
            self.long.update(self._more())

    def _first(self) -> Iterator[str]:
        yield from ()

    def padding(self) -> Padding | None:
        """What the function pads; None for nothing."""
        if not self.long and not any(self._pads(node) for node in self.nodes):
            return None
        if isinstance(self.function, cst.Lambda):
            return self._returned(self.function.body)
        given = [n.value for n in self.nodes if isinstance(n, cst.Return) and n.value is not None]
        return self._returned(given[0]) if len(given) == 1 else Padding(None)

    def _returned(self, value: cst.BaseExpression) -> Padding:
        if isinstance(value, cst.Name):
            made = [n.value for n in self.nodes if isinstance(n, cst.Assign) and value.value in _named(n)]
            value = made[0] if len(made) == 1 else value
        if isinstance(value, (cst.Tuple, cst.List)):
            return Padding(frozenset(i for i, e in enumerate(value.elements) if self._is_long(e.value)))
        if isinstance(value, cst.Dict) and all(isinstance(e, cst.DictElement) for e in value.elements):
            entries = [e for e in value.elements if isinstance(e, cst.DictElement) and self._is_long(e.value)]
            keys = [e.key.evaluated_value if isinstance(e.key, cst.SimpleString) else None for e in entries]
            return Padding(None if None in keys else frozenset(str(key) for key in keys))
        return Padding(None)

    def _more(self) -> Iterator[str]:
        for node in self.nodes:
            if isinstance(node, (cst.Assign, cst.AugAssign, cst.AnnAssign)) and node.value is not None:
                if self._is_long(node.value):
                    yield from _named(node)
            elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
                holder, added = node.func.value, adds_in_order(node.func.attr.value)
                if added and isinstance(holder, cst.Name) and any(self._is_long(arg.value) for arg in node.args):
                    yield holder.value

    def _is_long(self, value: cst.CSTNode) -> bool:
        return any(
            (isinstance(node, cst.Name) and node.value in self.long) or self._pads(node) for node in descendants(value)
        )

    def _pads(self, node: cst.CSTNode) -> bool:
        """Whether a call fills something up, or finds the longest."""
        if not isinstance(node, cst.Call):
            return False
        name = node.func.value if isinstance(node.func, cst.Name) else method_name(node)
        if "pad" in name.lower():
            return True
        if name == "max" and any("len" in n.value for part in (node.func, *node.args) for n in _names(part)):
            return True
        if any(_asks_for_padding(arg) for arg in node.args):
            return True
        if not self.reach.called(node) and self._is_handed(node.func):
            return True  # as far as can be told: what it does with the rows is not known
        for function in self.reach.called(node):
            if function not in self.pads and function not in self.above:
                self.pads[function] = _Collating(self.reach, function, self.above).padding() is not None
        return any(self.pads.get(function, False) for function in self.reach.called(node))

    def _is_handed(self, func: cst.BaseExpression) -> bool:
        """Whether what is called is a function that this one is handed, ``partial(collate, finish=finish)``."""
        binding = self.reach.unit(self.function).names.binding(func) if isinstance(func, cst.Name) else None
        return binding is not None and any(isinstance(definition, cst.Param) for definition in binding.definitions)


class _Growing(_Collating):
    """Reads such a function for what has another number of rows than there are samples: a list that it fills in a loop
    in a loop, or by ``extend``."""

    def _first(self) -> Iterator[str]:
        for holder, depth, call in self._filled():
            if depth > 1 or (depth and method_name(call) == "extend"):
                yield holder

    def _filled(self) -> Iterator[tuple[str, int, cst.Call]]:
        """What is put into a list, in so many loops more than the list is made in."""
        names = self.reach.unit(self.function).names
        for node in self.nodes:
            holder = node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) else None
            if not isinstance(node, cst.Call) or not isinstance(holder, cst.Name):
                continue
            binding = names.binding(holder) if adds_in_order(method_name(node)) else None
            made = [d for d in (binding.definitions if binding is not None else ()) if not isinstance(d, cst.Param)]
            loops = [each for each in names.enclosing(node, cst.For) if each in self.nodes]
            if made:
                yield holder.value, min(len(set(loops) - set(names.ancestors(d))) for d in made), node

    def _pads(self, node: cst.CSTNode) -> bool:
        return False


def _asks_for_padding(arg: cst.Arg) -> bool:
    """``padding=True``, ``padding="longest"``: not to a length that is the same for all batches."""
    if arg.keyword is None or arg.keyword.value != "padding":
        return False
    word = arg.value.evaluated_value if isinstance(arg.value, cst.SimpleString) else getattr(arg.value, "value", "")
    return word not in ("max_length", "False", "do_not_pad")


def _names(node: cst.CSTNode) -> Iterator[cst.Name]:
    return nodes_in(node, cst.Name)


def _named(node: cst.Assign | cst.AugAssign | cst.AnnAssign) -> set[str]:
    """The plain names that an assignment sets."""
    targets = [t.target for t in node.targets] if isinstance(node, cst.Assign) else [node.target]
    parts = [e.value for t in targets if isinstance(t, (cst.Tuple, cst.List)) for e in t.elements]
    return {t.value for t in (*targets, *parts) if isinstance(t, cst.Name)}


def _places(loop: cst.For) -> Iterator[tuple[str, Place]]:
    """The names that hold a part of the loop's batch, and its position or key."""
    batch: cst.CSTNode = loop.target
    call = loop.iter
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value == "enumerate":
        batch = batch.elements[1].value if isinstance(batch, cst.Tuple) and len(batch.elements) == 2 else batch
    yield from _unpacked(batch)
    if not isinstance(batch, cst.Name):
        return
    for node in nodes_in(loop.body, cst.Assign):
        target, value = node.targets[0].target, node.value
        if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            for element, part in zip(target.elements, value.elements, strict=False):
                yield from _entry(batch.value, element.value, part.value)
        elif isinstance(target, cst.Tuple) and batch.value in [n.value for n in _names(value)]:
            yield from _unpacked(target)
        else:
            yield from _entry(batch.value, target, value)


def _entry(batch: str, target: cst.CSTNode, value: cst.BaseExpression) -> Iterator[tuple[str, Place]]:
    """A name that is set to one entry of the batch: ``y = batch["y"].to(device)``."""
    keys = (_key(n) for n in descendants(value) if _holder(n) == batch)
    key = next((k for k in keys if k is not None), None)
    if isinstance(target, cst.Name) and key is not None:
        yield target.value, key


def _unpacked(target: cst.CSTNode) -> Iterator[tuple[str, Place]]:
    for index, element in enumerate(target.elements if isinstance(target, (cst.Tuple, cst.List)) else ()):
        for name in _names(element.value):
            yield name.value, index


def _holder(node: cst.CSTNode) -> str:
    """The name of which a node reads an entry."""
    node = node.func if isinstance(node, cst.Call) else node
    value = node.value if isinstance(node, (cst.Subscript, cst.Attribute)) else None
    return value.value if isinstance(value, cst.Name) else ""


def _key(node: cst.CSTNode) -> Place | None:
    """The position or the key of ``batch[0]``, ``batch["y"]``, ``batch.y``."""
    if isinstance(node, cst.Call) and method_name(node) in ("pop", "get") and node.args:
        entry = node.args[0].value
        return str(entry.evaluated_value) if isinstance(entry, cst.SimpleString) else None
    if isinstance(node, cst.Attribute):
        return node.attr.value
    part = node.slice[0].slice if isinstance(node, cst.Subscript) and len(node.slice) == 1 else None
    key = part.value if isinstance(part, cst.Index) else None
    value = key.evaluated_value if isinstance(key, (cst.Integer, cst.SimpleString)) else None
    return value if isinstance(value, (int, str)) else None
