"""
Orders that each process has for itself: those of the strings in a set, which Python hashes anew in each process.

A vocabulary that numbers the words of a set gives the same word another number in each process. What only counts,
sorts or looks up the elements of a set does not see their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import libcst as cst

from ...facts.container_methods import adds_in_order, changes
from ...facts.reasons import Reason
from ...facts.reasons.diagnostics import HashOfText, SetOrder
from ...facts.torch_api import surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.element_kinds import ElementKinds
from ..dataflow.trails import Trail, traces
from ..dataflow.values import State, Unit
from ..effects.existing_guards import guarded
from ..syntax.definitions import bindings_value, plain_values
from ..syntax.names import LONGEST
from ..syntax.nodes import positional
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in

_UNORDERED = frozenset("all any frozenset isinstance len max min set sorted sum bool Counter".split())
"""What does not see the order of what it is given; with a key, some of them see that of equal elements."""
_IN_ORDER = frozenset("dict enumerate filter iter list map reversed tuple zip tqdm fromkeys".split())
"""What gives its elements in the order of what it is given."""
_OF_SETS = frozenset(name for name in dir(set) if not hasattr(list, name) or name == "remove")


def set_orders(state: State, unit: Unit, reach: Reach) -> Iterator[Reason]:
    """What follows the order of a set of strings, and the hashes of strings."""
    orders = SetOrders(state, reach)
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is not None and outside_name(record) == "builtins.hash" and orders.tells_hash(unit, call):
            text = _text(unit, call)
            yield HashOfText(call, text)
    for read, followed in orders.of(unit):
        name = _text(unit, read)
        made = plain_values(unit.names, read) if isinstance(read, cst.Name) else []
        certain = orders.kinds.kind(unit, read) == "text"
        yield SetOrder(read, name, followed, certain, unit.names.statement(made[0]) if made else None)


class SetOrders:
    """Answers for one solved program."""

    def __init__(self, state: State, reach: Reach) -> None:
        self._state, self._reach = state, reach
        self.kinds = ElementKinds(state, reach)

    def of(self, unit: Unit) -> Iterator[tuple[cst.BaseExpression, str]]:
        """The reads of sets whose order something follows, each with what does."""
        for read in self._iterated(unit):
            if not traces(self._state.values.get(read), Trail.SET) or self._made_anew(unit, read):
                continue
            if unit.names.function(read) not in self._reach.reachable or guarded(self._state, unit, read):
                continue
            followed = self._followed(unit, read, set())
            if followed is not None and self.kinds.kind(unit, read) != "number":
                yield read, followed

    def tells_hash(self, unit: Unit, call: cst.Call) -> bool:
        """Whether a hash of what may be a string is used, outside of ``__hash__``."""
        code = unit.names.function(call)
        own = isinstance(code, cst.FunctionDef) and code.name.value == "__hash__"
        given = call.args[0].value if len(call.args) == 1 else None
        if own or given is None or code not in self._reach.reachable or guarded(self._state, unit, call):
            return False
        return self.kinds.kind_of(unit, given, set()) != "number" and self._followed(unit, call, set()) is not None

    def _iterated(self, unit: Unit) -> Iterator[cst.BaseExpression]:
        """What is iterated, or handed to what iterates it."""
        for node in unit.names.every(cst.For, cst.CompFor, cst.Call):
            if isinstance(node, (cst.For, cst.CompFor)):
                yield node.iter
            elif isinstance(node, cst.Call) and method_name(node) in {*_IN_ORDER, *_UNORDERED, "join", "next"}:
                yield from (arg.value for arg in node.args if arg.keyword is None)
            elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and not node.args:
                if node.func.attr.value == "pop":
                    yield node.func.value

    def _made_anew(self, unit: Unit, read: cst.BaseExpression) -> bool:
        """``self.words = sorted(self.words)``: whether an attribute also holds something that was made of the set."""
        if not isinstance(read, cst.Attribute):
            return False
        assigns = unit.names.every(cst.Assign)
        return any(
            any(target.target.deep_equals(read) for target in assign.targets)
            and any(part is not assign.value and part.deep_equals(read) for part in descendants(assign.value))
            and not traces(self._state.values.get(assign.value), Trail.SET)
            for assign in assigns
        )

    # Who sees the order -----------------------------------------------------------------------------------------------

    def _followed(self, unit: Unit, node: cst.CSTNode, seen: set[cst.CSTNode]) -> str | None:
        """What depends on the order of what an expression gives; None where nothing does."""
        if node in seen:
            return None
        seen.add(node)
        parent = unit.names.parents.get(node)
        if isinstance(parent, cst.Arg):
            return self._handed(unit, parent, seen)
        if isinstance(parent, (cst.For, cst.CompFor)) and node is parent.iter:
            return self._turns(unit, parent, seen)
        if isinstance(parent, (cst.AssignTarget, cst.Assign, cst.AnnAssign, cst.NamedExpr)):
            return self._kept(unit, parent, seen)
        if isinstance(parent, cst.Return):
            sites = [self._state.calls[s] for s in self._reach.sites(unit.names.function(node))]
            return next((f for s in sites if (f := self._followed(s.unit, s.node, seen)) is not None), None)
        if isinstance(parent, cst.Attribute) and parent.value is node:
            return self._asked(unit, parent, seen)
        if isinstance(parent, cst.Subscript) and isinstance(unit.names.parents.get(parent), cst.AssignTarget):
            return None
        quiet = (cst.ComparisonTarget, cst.Expr, cst.If, cst.While, cst.Assert, cst.FormattedStringExpression, cst.Del)
        if isinstance(parent, quiet):
            return None
        return _text(unit, self._whole(unit, node))

    def _whole(self, unit: Unit, node: cst.CSTNode) -> cst.CSTNode:
        """What is assigned in the statement of a node; else its innermost expression."""
        assign = next(unit.names.enclosing(node, cst.Assign), None)
        return assign.targets[0].target if isinstance(assign, cst.Assign) else unit.names.parents.get(node, node)

    def _handed(self, unit: Unit, arg: cst.Arg, seen: set[cst.CSTNode]) -> str | None:
        call = unit.names.parents.get(arg)
        if not isinstance(call, cst.Call):
            return None
        name, record = method_name(call), self._state.calls.get(call)
        keyed = any(a.keyword is not None and a.keyword.value == "key" for a in call.args)
        if name in _UNORDERED and not keyed:
            return None
        if name in _UNORDERED | _IN_ORDER:
            return self._followed(unit, call, seen)
        if name in _OF_SETS and isinstance(call.func, cst.Attribute):
            if traces(self._state.values.get(call.func.value), Trail.SET):
                return None
        if record is not None and surroundings.prints_lines(outside_name(record)):
            return None
        for function in self._reach.called(call):
            other = self._reach.unit(function)
            places = [p.name.value for p in positional(function)]
            for place in places:
                binding = other.names.scopes[function].bindings.get(place)
                given = self._reach.given(binding) if binding is not None else ()
                if binding is not None and any(value is arg.value for _, value in given):
                    found = self._of_reads(other, list(binding.reads), seen)
                    if found is not None:
                        return found
        return None if self._reach.called(call) else _text(unit, self._whole(unit, call))

    def _of_reads(self, unit: Unit, reads: list[cst.Name], seen: set[cst.CSTNode]) -> str | None:
        if any(_is_sorted(unit, read) for read in reads):
            return None
        return next((f for read in reads if (f := self._followed(unit, read, seen)) is not None), None)

    def _kept(self, unit: Unit, assign: cst.CSTNode, seen: set[cst.CSTNode]) -> str | None:
        """What sees the order of what a variable or an attribute holds."""
        targets: list[cst.BaseExpression] = [t.target for t in assign.targets] if isinstance(assign, cst.Assign) else []
        targets += [assign.target] if isinstance(assign, (cst.AnnAssign, cst.NamedExpr)) else []
        for target in targets:
            if self._read_in_order(unit, target, seen):
                return _text(unit, target)
        return None

    def _read_in_order(self, unit: Unit, target: cst.CSTNode, seen: set[cst.CSTNode]) -> bool:
        """Whether something sees the order of what a variable, an attribute or an entry holds."""
        if isinstance(target, cst.Name):
            binding = unit.names.binding(target)
            if binding is None or self._of_reads(unit, list(binding.reads), seen) is not None:
                return binding is not None
            if binding.scope is unit.names.scope and self._imported(unit, target.value):
                return True
            return any(self._read_in_order(other, held, seen) for other, held in self._held(unit, binding, seen))
        if isinstance(target, cst.Attribute):
            reads = [
                (other, node)
                for other in self._reach.units
                for node in other.names.every(cst.Attribute)
                if node.attr.value == target.attr.value and node is not target
            ]
            if any(_is_sorted(other, node) for other, node in reads):
                return False
            written = (cst.AssignTarget, cst.AnnAssign)
            reads = [(other, node) for other, node in reads if not isinstance(other.names.parents.get(node), written)]
            return any(self._followed(other, node, seen) is not None for other, node in reads)
        return True

    def _held(
        self, unit: Unit, binding: Binding, seen: set[cst.CSTNode]
    ) -> Iterator[tuple[Unit, cst.Name | cst.Attribute]]:
        """Other names of what a variable holds: ``number = self.number``, the arguments that a parameter is given."""
        given = [(unit, value) for value in bindings_value(unit.names, binding)] or self._reach.given(binding)
        for other, value in given:
            if isinstance(value, (cst.Name, cst.Attribute)) and value not in seen:
                seen.add(value)
                yield other, value

    def _imported(self, unit: Unit, name: str) -> bool:
        """Whether another module of the program imports a variable of this one."""
        return any(
            getattr(alias.name, "value", "") == name
            for other in self._reach.units
            if other is not unit
            for alias in other.names.every(cst.ImportAlias)
        )

    def _asked(self, unit: Unit, attribute: cst.Attribute, seen: set[cst.CSTNode]) -> str | None:
        """What a method does with something in the order of a set."""
        name, call = attribute.attr.value, unit.names.parents.get(attribute)
        if not isinstance(call, cst.Call) or call.func is not attribute:
            return _text(unit, self._whole(unit, attribute))
        if name in ("items", "keys", "values", "copy", "pop"):
            return self._followed(unit, call, seen)
        if changes(name) or name == "count":
            return None
        return _text(unit, self._whole(unit, call))

    # What a loop does -------------------------------------------------------------------------------------------------

    def _turns(self, unit: Unit, loop: cst.For | cst.CompFor, seen: set[cst.CSTNode]) -> str | None:
        """What depends on the order in which a loop, or a comprehension, has its turns."""
        if isinstance(loop, cst.CompFor):
            comp = next(unit.names.enclosing(loop, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp), None)
            counted = isinstance(loop.iter, cst.Call) and method_name(loop.iter) in ("enumerate", "zip")
            if comp is None or isinstance(comp, cst.SetComp) or (isinstance(comp, cst.DictComp) and not counted):
                return None
            return self._followed(unit, comp, seen)
        run = list(self._reach.runs(loop.body, unit))
        counters = {t for node in run if (t := _grown(node))}
        if isinstance(loop.iter, cst.Call) and method_name(loop.iter) in ("enumerate", "zip"):
            numbered = isinstance(loop.target, cst.Tuple) and method_name(loop.iter) == "enumerate"
            target = loop.target.elements[0].value if isinstance(loop.target, cst.Tuple) and numbered else loop.target
            counters |= {node.value for node in nodes_in(target, cst.Name)}
        for node in run:
            put = self._put(node, counters)
            other = self._reach.unit_of(node, unit) if put is not None else unit
            if put is not None and self._read_in_order(other, put, seen):
                return _text(other, put)
            if isinstance(node, cst.Yield):
                return _text(unit, node)
        return None

    def _put(self, node: cst.CSTNode, counters: set[str]) -> cst.CSTNode | None:
        """Where a statement puts an element at a place that the order of the turns decides."""
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and adds_in_order(method_name(node)):
            return node.func.value
        if isinstance(node, cst.AugAssign) and isinstance(node.value, (cst.List, cst.ListComp)):
            return node.target
        if not isinstance(node, cst.Assign):
            return None
        target = node.targets[0].target
        if not isinstance(target, cst.Subscript):
            return None
        for part in chain(descendants(node.value), *(descendants(part) for part in target.slice)):
            if _plain(part) in counters or (isinstance(part, cst.Call) and method_name(part) == "next"):
                return target.value
            if isinstance(part, cst.Call) and method_name(part) == "len" and part.args:
                if _plain(part.args[0].value) in {_plain(target.value), *counters}:
                    return target.value
        return None


def _grown(node: cst.CSTNode) -> str:
    """What a statement of a loop makes larger: a counter, a list."""
    if isinstance(node, cst.AugAssign):
        return _plain(node.target)
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and adds_in_order(method_name(node)):
        return _plain(node.func.value)
    return ""


def _plain(node: cst.CSTNode) -> str:
    """A variable, or an attribute of whatever object, by name."""
    if isinstance(node, cst.Name):
        return node.value
    return f".{node.attr.value}" if isinstance(node, cst.Attribute) else ""


def _is_sorted(unit: Unit, read: cst.CSTNode) -> bool:
    """``words.sort()``, without a key by which several are equal."""
    attribute = unit.names.parents.get(read)
    call = unit.names.parents.get(attribute) if isinstance(attribute, cst.Attribute) else None
    named = isinstance(attribute, cst.Attribute) and attribute.value is read and attribute.attr.value == "sort"
    return named and isinstance(call, cst.Call) and not any(a.keyword and a.keyword.value == "key" for a in call.args)


def _text(unit: Unit, node: cst.CSTNode) -> str:
    """An expression on one line, shortened."""
    text = unit.names.one_line(node)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
