"""What sets and lists hold, as far as it is certain: numbers, or text, of which a set has no order of its own."""

from __future__ import annotations

from itertools import chain

import libcst as cst

from ...facts.roles import TENSORS
from ...facts.torch_api.kinds import tensors
from ...facts.torch_api.loading import transfer
from ..syntax.definitions import added_to, seen_values
from .call_graph import Reach
from .callees import method_name, outside_name
from .trails import Trail, traces
from .values import State, Unit, origins

_OF_TEXT = frozenset(dir(str)) - frozenset(chain(dir(list), dir(dict), dir(int), dir(set)))
"""The methods that only text has, and that give text or an answer about it."""


class ElementKinds:
    """Answers for one solved program: ``number``, ``text``, or nothing where neither is certain."""

    def __init__(self, state: State, reach: Reach) -> None:
        self._state, self._reach = state, reach

    def kind(self, unit: Unit, read: cst.BaseExpression) -> str:
        """What the elements of a set are."""
        found = {self._elements(trace.node, set()) for trace in traces(self._state.values.get(read), Trail.SET)}
        return _one(found)

    def _elements(self, made: cst.CSTNode, seen: set[cst.CSTNode]) -> str:
        """What the elements of the set that is made at a place are."""
        unit = next((u for u in self._reach.units if made in u.names.parents), None)
        if unit is None or made in seen:
            return ""
        kinds = set()
        if isinstance(made, cst.BaseExpression) and not (isinstance(made, cst.Call) and not made.args):
            kinds.add(self.each(unit, made, seen))
        for record in self._state.calls.values():
            method = method_name(record.node)
            if method not in ("add", "update") or not record.node.args or record.receiver is None:
                continue
            if any(trace.node is made for trace in traces(record.receiver, Trail.SET)):
                given = record.node.args[0].value
                one = self.kind_of if method == "add" else self.each
                kinds.add(one(record.unit, given, seen))
        return _one(kinds)

    def each(self, unit: Unit, node: cst.BaseExpression, seen: set[cst.CSTNode]) -> str:
        """What the elements of something that is iterated are."""
        if node in seen or len(seen) > _DEEPEST:
            return ""
        seen = seen | {node}
        if isinstance(node, (cst.List, cst.Tuple, cst.Set)):
            return _one({self.kind_of(unit, e.value, seen) for e in node.elements})
        if isinstance(node, (cst.ListComp, cst.SetComp, cst.GeneratorExp)):
            return self.kind_of(unit, node.elt, seen)
        if isinstance(node, cst.BinaryOperation):
            sides = [self.each(unit, side, seen) for side in (node.left, node.right)]
            if isinstance(node.operator, cst.Subtract):
                return sides[0]
            return next(filter(None, sides), "") if isinstance(node.operator, cst.BitAnd) else _one(set(sides))
        if isinstance(node, cst.Call):
            return self._each_given(unit, node, seen)
        if isinstance(node, cst.Name):
            values, kinds = seen_values(unit.names, node), set()
            for value in values:
                empty = isinstance(value, cst.List) and not value.elements
                kinds |= self._put_into(unit, node, seen) if empty else {self.each(unit, value, seen)}
            return _one(kinds)
        if origins(self._state.values.get(node), *TENSORS):
            return "number"
        return ""

    def _put_into(self, unit: Unit, name: cst.Name, seen: set[cst.CSTNode]) -> set[str]:
        """What the elements are that a list is given after it was made."""
        kinds = set[str]()
        for call in added_to(unit.names, name):
            if method_name(call) == "extend":
                kinds.add(self.each(unit, call.args[0].value, seen))
            else:
                kinds.add(self.kind_of(unit, call.args[-1].value, seen))
        return kinds

    def _each_given(self, unit: Unit, call: cst.Call, seen: set[cst.CSTNode]) -> str:
        record, name = self._state.calls.get(call), method_name(call)
        outside = outside_name(record) if record is not None else ""
        if outside == "builtins.range" or isinstance(transfer(outside, tensors.Create), tensors.Create):
            return "number"
        if outside.startswith("torch.") or (record is not None and origins(record.receiver, *TENSORS)):
            return "number"
        kept = transfer(f"torch.Tensor.{name}", tensors.ToHost) if isinstance(call.func, cst.Attribute) else None
        if isinstance(kept, tensors.ToHost) and kept.gives in ("array", "tensor"):  # only tensors have these methods
            return "number"
        if outside == "builtins.map" and len(call.args) == 2:
            return _built(call.args[0].value)
        if outside in ("os.listdir", "glob.glob"):
            return "text"
        through = ("list", "set", "frozenset", "sorted", "tuple", "reversed", "iter", "filter", "tolist", "shuffle")
        if name in through and isinstance(call.func, cst.Attribute) and not call.args:
            return self.each(unit, call.func.value, seen)
        if name in through and call.args:
            return self.each(unit, call.args[-1].value, seen)
        if isinstance(call.func, cst.Attribute) and name in ("split", "splitlines", "readlines", "rsplit"):
            return "text"
        return ""

    def kind_of(self, unit: Unit, node: cst.BaseExpression, seen: set[cst.CSTNode]) -> str:
        """What one element is."""
        if node in seen or len(seen) > _DEEPEST:
            return ""
        seen = seen | {node}
        if isinstance(node, (cst.Integer, cst.Float, cst.Comparison)):
            return "number"
        if isinstance(node, (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)):
            return "text"
        if isinstance(node, cst.UnaryOperation):
            return "number"
        if isinstance(node, cst.BinaryOperation):
            if isinstance(node.operator, (cst.Subtract, cst.Divide, cst.FloorDivide, cst.Power)):
                return "number"
            return _one({self.kind_of(unit, side, seen) for side in (node.left, node.right)})
        if isinstance(node, cst.Tuple):
            return _one({self.kind_of(unit, e.value, seen) for e in node.elements})
        if isinstance(node, cst.Call):
            record = self._state.calls.get(node)
            if record is not None and origins(record.receiver, *TENSORS):
                return "number"
            if isinstance(node.func, cst.Attribute):
                name = node.func.attr.value
                return "text" if name in _OF_TEXT else "number" if name in ("item", "index", "count") else ""
            return _built(node.func)
        if isinstance(node, cst.Name):
            return self._of_name(unit, node, seen)
        return ""

    def _of_name(self, unit: Unit, name: cst.Name, seen: set[cst.CSTNode]) -> str:
        kinds = {self.kind_of(unit, value, seen) for value in seen_values(unit.names, name)}
        binding = unit.names.binding(name)
        for definition in binding.definitions if binding is not None else ():
            loop = unit.names.parents.get(definition)
            if isinstance(loop, (cst.For, cst.CompFor)) and definition is loop.target:
                kinds.add(self.each(unit, loop.iter, seen))
            elif isinstance(loop, cst.Element) and isinstance(pair := unit.names.parents.get(loop), cst.Tuple):
                around = unit.names.parents.get(pair)
                if isinstance(around, (cst.For, cst.CompFor)) and isinstance(around.iter, cst.Call):
                    first = pair.elements[0] is loop
                    kinds.add("number" if first and method_name(around.iter) == "enumerate" else "")
            elif isinstance(loop, cst.Param):
                kinds.add("")
        return _one(kinds)


_DEEPEST = 12


def _one(kinds: set[str]) -> str:
    return kinds.pop() if len(kinds) == 1 else "text" if "text" in kinds and "" not in kinds else ""


def _built(func: cst.BaseExpression) -> str:
    """What the builtin types and functions give."""
    name = func.value if isinstance(func, cst.Name) else ""
    return "number" if name in ("int", "float", "bool", "len", "ord", "round") else "text" if name == "str" else ""
