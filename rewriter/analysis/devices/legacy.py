"""
The tensor types of old, which tie a dtype to a device: ``torch.cuda.FloatTensor if cuda else torch.FloatTensor``.

Called with sizes they give room, called with anything else its values; the argument alone tells which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.legacy import Legacy, LegacyTensor
from ...facts.roles import SHARES, TENSORS, Role
from ..dataflow.callees import method_name, outside_name
from ..dataflow.modules import torch_name
from ..dataflow.values import CallRecord, External, State, Unit, origins
from ..syntax.definitions import attribute_assignments, bindings_value, is_target
from ..syntax.nodes import dotted, positional
from ..syntax.scopes import Binding
from .host_tensors import moved_before
from .moves import Mover

DTYPES = {
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "LongTensor": "int64",
    "IntTensor": "int32",
    "ShortTensor": "int16",
    "CharTensor": "int8",
    "ByteTensor": "uint8",
    "BoolTensor": "bool",
}
_LISTS = (cst.List, cst.Tuple, cst.ListComp)
_COUNTS = frozenset("size dim numel nelement item".split())
_DEPTH = 6


def legacy_tensors(state: State, unit: Unit, mover: Mover) -> list[LegacyTensor]:
    """The uses of such types in what the script reaches of a module, in source order."""
    torch = torch_name(state, unit)
    if torch is None:
        return []
    kinds = _Kinds(state)
    found = []
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None or unit.names.function(call) not in mover.reach.reachable:
            continue
        use = _cast(state, unit, mover, record, torch) or _made(kinds, record, torch)
        if use is not None:
            found.append(use)
    return found


def casts_to_gpu(state: State, record: CallRecord) -> bool:
    """Whether a call moves its receiver by the type of a tensor: ``batch.type(torch.cuda.FloatTensor)``."""
    named = record.node.args[0].value if method_name(record.node) == "type" and len(record.node.args) == 1 else None
    types = (_types(state.slot(named).things) or _spelled(named)) if named is not None else None
    return types is not None and types[1]


def _types(things: Iterable[object]) -> tuple[str, bool] | None:
    """The dtype of the tensor types among some things, and whether one is bound to CUDA; None where they disagree."""
    names = [t.qualified for t in things if isinstance(t, External)]
    if not names or not all(n.startswith(("torch.cuda.", "torch.")) for n in names):
        return None
    dtypes = {DTYPES.get(n.rpartition(".")[2]) for n in names if n.rpartition(".")[0] in ("torch", "torch.cuda")}
    if len(dtypes) != 1 or None in dtypes or any(n.rpartition(".")[2] not in DTYPES for n in names):
        return None
    return str(dtypes.pop()), any(n.startswith("torch.cuda.") for n in names)


def _made(kinds: _Kinds, record: CallRecord, torch: str) -> LegacyTensor | None:
    types = _types(record.callees)
    if types is None or not types[1] or any(a.keyword is not None for a in record.node.args):
        return None
    use = kinds.of_arguments(record.unit, record.node)
    because = "a legacy tensor type names a device; this one follows the accelerator's"
    return LegacyTensor(record.node, use, types[0], torch, because)


def _cast(state: State, unit: Unit, mover: Mover, record: CallRecord, torch: str) -> LegacyTensor | None:
    call = record.node
    if method_name(call) != "type" or record.receiver is None or len(call.args) != 1:
        return None
    named = call.args[0].value
    types = _types(state.slot(named).things) or _spelled(named)
    if types is None:
        return None
    dtype, cuda = types
    held = origins(record.receiver)
    placed = mover.arrives_placed(unit, held, call) is not None
    module = bool(held) and all(o.role in (Role.MODEL, Role.CRITERION) for o in held)
    if not cuda and not (placed and not module and not moved_before(mover, unit, call)):
        return None  # to the CPU, and meant so
    because = "the prepared loader yields this on the device: only the dtype remains"
    if not placed:
        because = "a legacy tensor type names a device; this one follows the accelerator's"
    return LegacyTensor(call, Legacy.CAST, dtype, torch, because, placed, module)


def _spelled(named: cst.BaseExpression) -> tuple[str, bool] | None:
    """A type given as a word: ``x.type("torch.cuda.FloatTensor")``."""
    word = named.evaluated_value if isinstance(named, cst.SimpleString) else None
    return _types([External(word)]) if isinstance(word, str) else None


class _Kinds:
    """Tells sizes from values."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._open: set[str] = set()
        """The attributes that are asked for: what one is made of itself is of its kind."""

    def of_arguments(self, unit: Unit, call: cst.Call) -> Legacy:
        """What the arguments of a constructor of old are."""
        if len(call.args) != 1 or call.args[0].star:
            return Legacy.SIZES
        found = self._kinds(unit, call.args[0].value, 0)
        return found.pop() if len(found) == 1 else Legacy.UNSURE

    def _kinds(self, unit: Unit, node: cst.BaseExpression, depth: int) -> set[Legacy]:
        """The kinds that an expression can be of; both or none where it cannot be told."""
        if depth > _DEPTH:
            return set()
        if isinstance(node, (cst.Integer, *_LISTS)):
            return {Legacy.SIZES if isinstance(node, cst.Integer) else Legacy.DATA}
        if isinstance(node, cst.BinaryOperation):
            sides = self._kinds(unit, node.left, depth + 1), self._kinds(unit, node.right, depth + 1)
            if {Legacy.DATA} in sides:
                return {Legacy.DATA}
            return {Legacy.SIZES} if all(side == {Legacy.SIZES} for side in sides) else set()
        if isinstance(node, cst.UnaryOperation):
            return self._kinds(unit, node.expression, depth + 1)
        if isinstance(node, cst.IfExp):
            return self._kinds(unit, node.body, depth + 1) | self._kinds(unit, node.orelse, depth + 1)
        if isinstance(node, cst.Subscript):
            return self._member(unit, node, depth)
        if isinstance(node, cst.Attribute):
            return self._attribute(unit, node, depth)
        if isinstance(node, cst.Call):
            return self._called(unit, node, depth)
        if isinstance(node, cst.Name):
            return self._named(unit, node, depth)
        return set()

    def _attribute(self, unit: Unit, node: cst.Attribute, depth: int) -> set[Legacy]:
        if node.attr.value == "shape":
            return {Legacy.SIZES} if origins(self.state.values.get(node.value), *TENSORS) else set()
        if node.attr.value in ("T", "data", "real"):
            return self._kinds(unit, node.value, depth + 1)
        return self._field(unit, node, depth) if dotted(node) == f"self.{node.attr.value}" else set()

    def _field(self, unit: Unit, node: cst.Attribute, depth: int) -> set[Legacy]:
        """What an object's own attribute is given, where each assignment gives it alone something."""
        name = node.attr.value
        if name in self._open:
            return {Legacy.DATA}
        assigns = attribute_assignments(unit.names, node)
        alone = {target.target for assign in assigns if len(assign.targets) == 1 for target in assign.targets}
        written = (n for n in unit.names.every(cst.Attribute) if n.attr.value == name and is_target(unit.names, n))
        if not alone.issuperset(written):
            return set()
        self._open.add(name)
        kinds = [self._kinds(unit, assign.value, depth + 1) for assign in assigns]
        self._open.discard(name)
        return set().union(*kinds) if kinds and all(kinds) else set()

    def _member(self, unit: Unit, node: cst.Subscript, depth: int) -> set[Legacy]:
        """``x.shape[0]`` is a number; a part of an array may be an array or a number."""
        whole = node.value
        one = len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index)
        if isinstance(whole, cst.Attribute) and whole.attr.value == "shape":
            return {Legacy.SIZES} if one else set()
        if isinstance(whole, cst.Call) and method_name(whole) == "size":
            return {Legacy.SIZES} if one else set()
        kinds = set() if one else self._kinds(unit, whole, depth + 1)
        cut = any(isinstance(part.slice, cst.Slice) for part in node.slice)
        return kinds or ({Legacy.DATA} if cut else set())  # what is no shape gives values there

    def _called(self, unit: Unit, node: cst.Call, depth: int) -> set[Legacy]:
        record = self.state.calls.get(node)
        name = outside_name(record) if record is not None else ""
        if name in ("builtins.len", "builtins.int"):
            return {Legacy.SIZES}
        if name in ("builtins.list", "builtins.tuple") or _gives_array(name):
            return {Legacy.DATA}
        if name.startswith("torch.") or (record is not None and _types(record.callees) is not None):
            return {Legacy.DATA}
        if isinstance(node.func, cst.Attribute):
            if node.func.attr.value in _COUNTS:
                tensor = bool(node.args) or bool(origins(self.state.values.get(node.func.value), *SHARES))
                return {Legacy.SIZES} if node.func.attr.value == "size" and tensor else set()
            if node.func.attr.value in ("numpy", "tolist"):
                return {Legacy.DATA}
            return self._kinds(unit, node.func.value, depth + 1) & {Legacy.DATA}
        found: set[Legacy] = set()
        for function in record.callees if record is not None else ():
            returns = getattr(getattr(function, "unit", None), "names", None)
            for given in returns.returns.get(getattr(function, "node", None), ()) if returns is not None else ():
                found |= self._kinds(function.unit, given.value, depth + 1)  # type: ignore[attr-defined]
        return found

    def _named(self, unit: Unit, node: cst.Name, depth: int) -> set[Legacy]:
        if origins(self.state.values.get(node), *TENSORS):
            return {Legacy.DATA}
        binding = unit.names.binding(node)
        if binding is None:
            return set()
        around = set(unit.names.ancestors(node))
        values = [(home, value) for home, value in self._values(unit, binding) if value not in around]
        kinds = [self._kinds(home, value, depth + 1) for home, value in values]
        return set().union(*kinds) if kinds and all(kinds) else set()

    def _values(self, unit: Unit, binding: Binding) -> Iterator[tuple[Unit, cst.BaseExpression]]:
        """What a variable is set to; for a parameter the arguments of the calls."""
        for value in bindings_value(unit.names, binding):
            yield unit, value
        for definition in binding.definitions:
            if isinstance(definition, cst.Param):
                function = unit.names.parents.get(definition)
                while function is not None and not isinstance(function, cst.FunctionDef):
                    function = unit.names.parents.get(function)
                if function is None:
                    continue
                index = next((i for i, p in enumerate(positional(function)) if p is definition), -1)
                for site in self.state.sites.get(function, ()):
                    given = [a for a in site.args if a.keyword is not None and a.keyword.value == binding.name]
                    plain = [a for a in site.args if a.keyword is None and not a.star]
                    given = given or (plain[index : index + 1] if index >= 0 else [])
                    for arg in given:
                        yield self.state.calls[site].unit, arg.value


_NUMBERS = frozenset(
    "prod sum mean min max argmax argmin ceil floor sqrt int64 int32 float32 float64 dot std var median".split()
)


def _gives_array(name: str) -> bool:
    """Whether an outside function gives an array for certain."""
    return name.startswith("numpy.") and name.rpartition(".")[2] not in _NUMBERS
