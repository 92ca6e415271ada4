"""What stays on the CPU in the script, because nothing moves it, but is on the device after ``prepare``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import libcst as cst

from ...facts.placement import Move, Placement
from ...facts.roles import TENSORS, Origin, Role
from ...facts.torch_api import questions, tensor_parts
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import CallRecord, Unit, origins
from ..syntax.definitions import added_to, bindings_value, reaching
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from .moves import Mover, is_host

_JOINING = (cst.Call, cst.Comparison, cst.BinaryOperation, cst.Subscript)
_PAIRERS = frozenset({"builtins.zip", "builtins.map"})
"""Functions of Python after which elements of their arguments meet."""
_KEEPERS = frozenset("append extend insert add put view_as reshape_as expand_as type_as".split())
"""Methods that keep their argument, or ask it for its shape or type alone."""
_READERS = ("numpy.", "sklearn.", "scipy.", "pandas.", "seqeval.", "matplotlib.")
"""Packages that read the CPU's memory alone."""
_GOES_ON = frozenset({"numpy", "item", "tolist", "cuda"})
_IN_PLACE = frozenset("add_ sub_ mul_ div_ addcmul_ addmm_ lerp_ maximum_ logical_or_ logical_and_".split())
_DEPTH = 4
PLAIN = (cst.Name, cst.Attribute, cst.Subscript, cst.Call)
"""Expressions to which a call can be appended as they are."""


def hosted(mover: Mover, unit: Unit) -> list[Placement]:
    """
    What a prepared loader yields on the device, and the script needs on the CPU: ``labels.numpy()``,
    ``output.cpu() == labels``, ``f1_score(labels, ...)``; and what it needs there now: ``torch.cat([batch, zeros])``.
    """
    if mover.existing:
        return []
    host = _Host(mover, unit)
    found: dict[cst.BaseExpression, Placement] = {}
    for node in unit.names.every(*_JOINING, cst.Assign, cst.AugAssign, cst.Tuple, cst.List, cst.Dict):
        for raw, because in host.needed(node):
            found.setdefault(raw, Placement(raw, Move.HOST, because))
        for made in host.joined(node):
            because = "{} is made on the CPU, and joined with what the loader yields on the device"
            found.setdefault(made, Placement(made, Move.PLACE, because))
    inner = {raw for raw in found if not found.keys().isdisjoint(unit.names.ancestors(raw))}
    return [placement for raw, placement in found.items() if raw not in inner or placement.move is Move.PLACE]


_Needed = tuple[cst.BaseExpression, str]
"""What is needed on the CPU, and why."""


class _Host:
    """Asks what is on the CPU in one module."""

    def __init__(self, mover: Mover, unit: Unit) -> None:
        self.mover, self.unit, self.state = mover, unit, mover.state

    def needed(self, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, str]]:
        """What a node needs on the CPU, and why."""
        written = isinstance(node, cst.Subscript) and isinstance(
            self.unit.names.parents.get(node), (cst.AssignTarget, cst.AugAssign)
        )
        for index in () if written else self._indices(node):
            yield index, "it is on the device, and an index into a CPU tensor"
        if isinstance(node, cst.Call) and (record := self.state.calls.get(node)) is not None:
            yield from self._by_call(record)
        elif isinstance(node, (cst.Comparison, cst.BinaryOperation)):
            yield from self._beside_host(operands(node))
        elif isinstance(node, cst.Subscript) and self._on_host(node.value):
            yield from self._beside_host((node.value, *_written_into(node)[1]))
        elif isinstance(node, (cst.Tuple, cst.List, cst.Dict)) and not self._is_target(node):
            yield from self._tensors(self._beside_host(_entries(node)))
        if isinstance(node, (cst.AugAssign, cst.Call)):
            yield from self._added(node)
            yield from self._kept_beside_host(node)

    def _added(self, node: cst.AugAssign | cst.Call) -> Iterator[tuple[cst.BaseExpression, str]]:
        """What is added in place to a new tensor of the CPU: ``counts += torch.bincount(y)``, ``counts.add_(y)``."""
        base: cst.BaseExpression
        if isinstance(node, cst.AugAssign):
            base, values = node.target, [node.value]
        elif isinstance(node.func, cst.Attribute) and node.func.attr.value in _IN_PLACE:
            base, values = node.func.value, [arg.value for arg in node.args]
        else:
            return
        raws = [part for value in values for part in self._parts(value)]
        while raws and isinstance(base, cst.Subscript):
            base = base.value
        if raws and self.mover.made_on_host.new_tensor(self.unit, base):
            yield from ((raw, "{} is on the device, and is added to a CPU tensor") for raw in raws)

    def joined(self, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """The new tensors of the CPU that a node joins with what a loader has put on the device."""
        joined = [value for value in operands(node) if isinstance(value, PLAIN)]
        if len(joined) > 1 and (not isinstance(node, cst.Call) or self._of_torch(node)):
            made = self.mover.made_on_host
            new = [value for value in joined if made.new_tensor(self.unit, value)]
            if any(self._grows(node, value) for value in new):
                return
            if new and any(self._raw(value) for value in joined if value not in new):
                yield from new

    def _indices(self, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """The indices of a batch into a tensor of the CPU: a new one, ``onehot[rows, labels] = 1``, or one whose rows
        are moved, ``features[rows].to(device)``."""
        base, places = _written_into(node)
        made = self.mover.made_on_host
        if base is None or not (
            any(made.new_tensor(self.unit, value) for value in self._made_for(base)) or self._rows_moved(node)
        ):
            return
        for place in places:
            if self._of_batch(place) and not (isinstance(node, cst.AugAssign) and self._is_of_turn(place)):
                yield place

    def _is_target(self, node: cst.BaseExpression) -> bool:
        """Whether a display is what a statement gives values to: ``for x, y in loader``."""
        around = self.unit.names.parents.get(node)
        return isinstance(around, cst.AssignTarget) or (
            isinstance(around, (cst.For, cst.CompFor)) and around.target is node
        )

    def _is_of_turn(self, node: cst.BaseExpression) -> bool:
        """Whether a place is that of one row, ``for t, p in zip(y, predicted): counts[t, p] += 1``: a number, wherever
        it is."""
        named = (self.unit.names.binding(name) for name in descendants(node) if isinstance(name, cst.Name))
        made = (definition for binding in named if binding is not None for definition in binding.definitions)
        turns = ((each, next(self.unit.names.enclosing(each, cst.For), None)) for each in made)
        rows = ((each, turn) for each, turn in turns if isinstance(turn, cst.For) and not self.state.loaders.get(turn))
        return any(each in set(descendants(turn.target)) for each, turn in rows)

    def _rows_moved(self, node: cst.CSTNode) -> bool:
        """Whether what a subscript gives, of something that is no batch itself, is moved to the device at once."""
        if isinstance(node, cst.Subscript) and origins(self.state.values.get(node.value), Role.BATCH):
            return False
        attribute = self.unit.names.parents.get(node) if isinstance(node, cst.Subscript) else None
        call = self.unit.names.parents.get(attribute) if isinstance(attribute, cst.Attribute) else None
        return isinstance(call, cst.Call) and call.func is attribute and self.mover.is_move(call)

    def _made_for(self, base: cst.BaseExpression) -> list[cst.BaseExpression]:
        """The expressions that make what a node writes into."""
        if not isinstance(base, cst.Name):
            return [base] if isinstance(base, cst.Call) else []
        return self._values(base)

    def _of_batch(self, node: cst.CSTNode) -> bool:
        """Whether a part of an index may be what a prepared loader yields, as it is there."""
        if not isinstance(node, (cst.Name, cst.Attribute, cst.Subscript, cst.Call)) or self._on_host(node):
            return False
        held = origins(self.state.values.get(node), Role.BATCH)
        if not any(map(self._of_prepared, held)) or self.mover.inside_model(self.unit, node):
            return False
        return not moved_before(self.mover, self.unit, node)

    def _grows(self, node: cst.CSTNode, operand: cst.BaseExpression) -> bool:
        """``rows = torch.cat((rows, batch))``: what the script collects on the CPU stays there."""
        around = self.unit.names.parents.get(node)
        targets = [t.target for t in around.targets] if isinstance(around, cst.Assign) else []
        return any(target.deep_equals(operand) for target in targets)

    def _of_torch(self, call: cst.Call) -> bool:
        record = self.state.calls.get(call)
        return record is not None and outside_name(record).startswith("torch.")

    def _by_call(self, record: CallRecord) -> Iterator[tuple[cst.BaseExpression, str]]:
        call, outside = record.node, outside_name(record)
        values = [arg.value for arg in call.args if not arg.star]
        method = isinstance(call.func, cst.Attribute)
        if method_name(call) == "numpy" and method:
            # x = x.numpy(): what x holds after it is no tensor
            if self._may_be_placed(call, record):
                yield call, "{} is on the device, and NumPy reads only CPU memory"
        elif outside.startswith(_READERS) and not questions.asks_shape(outside):
            because = f"{{}} is on the device, and {outside.partition('.')[0]} reads only CPU memory"
            for value in values:
                raws = [value] if self._raw(value) else self._collected(value)
                yield from ((raw, because) for raw in raws)
        elif self._computes(call, outside):
            receiver = (call.func.value,) if isinstance(call.func, cst.Attribute) and not outside else ()
            found = self._beside_host((*receiver, *operands(call)))
            yield from found if outside.startswith("torch.") else self._tensors(found)

    def _computes(self, call: cst.Call, outside: str) -> bool:
        """Whether a call may compute something from all its arguments together."""
        if call in self.mover.made_on_host.forwards or method_name(call) in _KEEPERS:
            return False
        return not outside.startswith("builtins.") or outside in _PAIRERS

    def _kept_beside_host(self, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, str]]:
        """What a statement adds to a list as the loader gave it, where the same loop keeps what is on the CPU too:
        ``features.append(model(x).cpu())``, ``labels.append(y)``."""
        raws = [part for value in _kept(node) for part in self._parts(value)]
        if raws and self._is_read(node):
            around = _loop(self.unit, node)
            others = (n for n in nodes_in(around, cst.Call, cst.AugAssign) if _loop(self.unit, n) is around)
            if any(self._on_host(value) for other in others for value in _kept(other)):
                because = "{} is on the device, and is kept beside what the script has taken to the CPU"
                yield from self._tensors((raw, because) for raw in raws)

    def _tensors(self, found: Iterable[_Needed]) -> Iterator[_Needed]:
        """Those of which the module shows that they are tensors: a loader gives names of files and texts as well, and
        what keeps them, or is given them, asks for no tensor."""
        return ((raw, because) for raw, because in found if _of_tensor(raw) or _spelled(raw) in self._shown)

    @cached_property
    def _shown(self) -> set[str]:
        """How what is certainly a tensor is spelled in the module: what a model, a criterion or a function of torch is
        given, what a method of tensors is asked of, and what fills a list that torch joins."""
        found: set[str] = set()
        for call in self.unit.names.calls:
            record = self.state.calls.get(call)
            if record is None:
                continue
            given = record.result is not None and origins(record.result, Role.LOSS, Role.OUTPUT)
            if given or (outside_name(record).startswith("torch.") and outside_name(record) != "torch.save"):
                for value in operands(call):
                    found.add(_spelled(value))
                    added = added_to(self.unit.names, value) if isinstance(value, cst.Name) else ()
                    found.update(_spelled(one) for each in added for one in _kept(each))
        for node in self.unit.names.every(cst.Attribute):
            if tensor_parts.shows_tensor(node.attr.value):
                found.add(_spelled(node.value))
        return found

    def _is_read(self, node: cst.CSTNode) -> bool:
        """Whether the list to which a statement adds is read by something that does not add to it."""
        held = node.target if isinstance(node, cst.AugAssign) else node.func if isinstance(node, cst.Call) else None
        held = held.value if isinstance(held, cst.Attribute) and isinstance(node, cst.Call) else held
        binding = self.unit.names.binding(held) if isinstance(held, cst.Name) else None
        return binding is None or any(not self._adds(read) for read in binding.reads)

    def _adds(self, read: cst.Name) -> bool:
        above = self.unit.names.parents.get(read)
        call = self.unit.names.parents.get(above) if isinstance(above, cst.Attribute) else above
        return call is not None and bool(_kept(call))

    def _collected(self, value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """The losses that a list collects as tensors: ``losses.append(loss)``."""
        for call in added_to(self.unit.names, value) if isinstance(value, cst.Name) else ():
            loss = call.args[0].value
            held = origins(self.state.values.get(loss))
            lost = held and all(o.role is Role.LOSS and self._of_prepared(o) for o in held)
            if method_name(call) == "append" and lost and isinstance(loss, PLAIN) and not self._on_host(loss):
                yield loss

    def _beside_host(self, together: Iterable[cst.BaseExpression]) -> Iterator[tuple[cst.BaseExpression, str]]:
        """What is as the loader gave it, among expressions of which another one is on the CPU."""
        values = list(together)
        hosts = {value for value in values if self._on_host(value)}
        for value in values if hosts else ():
            if value not in hosts:
                yield from (
                    (raw, "{} is on the device, but the other operand is a CPU tensor") for raw in self._parts(value)
                )

    def _parts(self, node: cst.BaseExpression, depth: int = 0) -> Iterator[cst.BaseExpression]:
        """The parts of an expression that are as the loader gave them, or computed from such: ``y`` of ``y * 3``."""
        if self._on_host(node, depth):
            return
        if self._raw(node) or (isinstance(node, cst.Name) and self._computed_of_raw(node, depth)):
            yield node
        elif isinstance(node, (cst.BinaryOperation, cst.Comparison)):
            for operand in operands(node):
                yield from self._parts(operand, depth)
        elif isinstance(node, cst.UnaryOperation):
            yield from self._parts(node.expression, depth)
        elif isinstance(node, cst.Subscript):
            yield from self._parts(node.value, depth)
        elif isinstance(node, cst.Call) and (record := self.state.calls.get(node)) is not None:
            outside = outside_name(record)
            if outside.startswith("torch."):
                for operand in operands(node):
                    yield from self._parts(operand, depth)
            elif isinstance(node.func, cst.Attribute) and node.func.attr.value not in _GOES_ON and not outside:
                if not self.mover.is_move(node):
                    yield from self._parts(node.func.value, depth)

    def _computed_of_raw(self, name: cst.Name, depth: int) -> bool:
        """Whether a variable has been given nothing but what is computed from a batch: ``mask = y != 0``."""
        values = self._values(name) if depth < _DEPTH else []
        return bool(values) and all(
            not isinstance(value, PLAIN) and any(self._parts(value, depth + 1)) for value in values
        )

    def _raw(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is a batch, or a part of one, as the loader gave it."""
        if not isinstance(node, (cst.Name, cst.Attribute, cst.Subscript, cst.Call)) or self._on_host(node):
            return False
        held = origins(self.state.values.get(node))
        return self._placed(node, held) and not moved_before(self.mover, self.unit, node)

    def _may_be_placed(self, call: cst.Call, record: CallRecord) -> bool:
        """
        Whether some tensor of which ``.numpy()`` is asked comes on the device from what is prepared.

        One that is on the CPU already is only asked for nothing: the call can be written wherever that may be.
        """
        held = origins(record.receiver, *TENSORS)  # x = x.numpy(): what x holds after it is no tensor
        assert isinstance(call.func, cst.Attribute)
        if not any(self._of_prepared(origin) for origin in held) or self._on_host(call.func.value):
            return False
        return not (self.mover.inside_model(self.unit, call) or moved_before(self.mover, self.unit, call))

    def _placed(self, node: cst.BaseExpression, held: list[Origin]) -> bool:
        """Whether all that an expression holds are batches that come on the device from what is prepared."""
        if not held or not all(o.role is Role.BATCH and self._of_prepared(o) for o in held):
            return False
        call = node if isinstance(node, cst.Call) else None
        place = call or next((a for a in self.unit.names.ancestors(node) if isinstance(a, cst.BaseExpression)), node)
        return self.mover.reach.always_in_batch_loop(place, self.unit) and not self.mover.inside_model(self.unit, place)

    def _of_prepared(self, origin: Origin) -> bool:
        """Whether something came from a prepared object; a loss came from outputs of one."""
        criterion = origin.source is None or origin.source.role is Role.CRITERION
        return origin.source in self.mover.placed or (origin.role is Role.LOSS and criterion)

    def _on_host(self, node: cst.BaseExpression, depth: int = 0) -> bool:
        """Whether an expression gives a tensor that the script has taken to the CPU."""
        if isinstance(node, (cst.BinaryOperation, cst.Comparison)):
            return any(self._on_host(operand, depth) for operand in operands(node))
        if isinstance(node, cst.UnaryOperation):
            return self._on_host(node.expression, depth)
        while isinstance(node, (cst.Call, cst.Attribute, cst.Subscript)):
            if isinstance(node, cst.Call):
                if node.args and origins(self.state.values.get(node), Role.LOSS):
                    if all(self._on_host(arg.value, depth) for arg in node.args):
                        return True  # of what was taken there
                if not isinstance(node.func, cst.Attribute) or node.func.attr.value in _GOES_ON:
                    return False
                record = self.state.calls.get(node)
                if record is not None and outside_name(record).startswith("torch."):
                    return any(self._on_host(arg.value, depth) for arg in node.args)
                if _to_host(node):
                    return bool(record and origins(record.receiver, *TENSORS))
                if node.func.attr.value == "to":
                    return False
                node = node.func.value
            else:
                node = node.value
        return isinstance(node, cst.Name) and depth < _DEPTH and self._name_on_host(node, depth)

    def _name_on_host(self, name: cst.Name, depth: int) -> bool:
        values = self._values(name)
        return bool(values) and all(self._on_host(value, depth + 1) for value in values)

    def _values(self, name: cst.Name) -> list[cst.BaseExpression]:
        """What a variable of the function has been given where it is read."""
        binding = self.unit.names.binding(name)
        if binding is None or binding.scope.function.node is not self.unit.names.function(name):
            return []
        return bindings_value(self.unit.names, binding, reaching(self.unit.names, binding, name))


def _of_tensor(node: cst.BaseExpression) -> bool:
    """Whether something is what a method of tensors gives: ``y.float()``."""
    func = node.func if isinstance(node, cst.Call) else None
    return isinstance(func, cst.Attribute) and tensor_parts.shows_tensor(func.attr.value)


def _spelled(node: cst.BaseExpression) -> str:
    """How a value is written."""
    return cst.Module([]).code_for_node(node)


def _entries(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The values that a display holds, those of displays in it too; another expression is the only one."""
    if not isinstance(node, (cst.Tuple, cst.List, cst.Dict)):
        return [node]
    return [value for entry in node.elements for value in _entries(entry.value)]


def _kept(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """What a statement adds to a list: ``kept.append(y)``, ``kept += [y]``."""
    if isinstance(node, cst.Call) and method_name(node) in ("append", "extend") and len(node.args) == 1:
        return _entries(node.args[0].value)
    if isinstance(node, cst.AugAssign) and isinstance(node.value, cst.List):
        return _entries(node.value)
    return []


_AT_PLACES = frozenset("scatter_ scatter scatter_add_ scatter_add index_add_ index_copy_ index_fill_".split())


def _written_into(node: cst.CSTNode) -> tuple[cst.BaseExpression | None, list[cst.BaseExpression]]:
    """A tensor, and the indices at which a node reads or writes it: ``x[i, j] = 1``, ``x.scatter_(1, i, 1)``."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _AT_PLACES:
        return node.func.value, [arg.value for arg in node.args]
    target = node.targets[0].target if isinstance(node, cst.Assign) else node
    target = node.target if isinstance(node, cst.AugAssign) else target
    if not isinstance(target, cst.Subscript):
        return None, []
    return target.value, [e.slice.value for e in target.slice if isinstance(e.slice, cst.Index)]


def operands(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """What an operation or a call works on together, the elements of lists among them."""
    if isinstance(node, cst.BinaryOperation):
        yield from (node.left, node.right)
    elif isinstance(node, cst.Comparison):
        yield from (node.left, *(target.comparator for target in node.comparisons))
    elif isinstance(node, cst.Call):
        for arg in node.args:
            listed = isinstance(arg.value, (cst.List, cst.Tuple))
            yield from (e.value for e in arg.value.elements) if listed else (arg.value,)  # type: ignore[attr-defined]


def on_host(mover: Mover, unit: Unit, node: cst.BaseExpression) -> bool:
    """Whether an expression gives a tensor that the script has taken to the CPU."""
    return _Host(mover, unit)._on_host(node)


def _to_host(call: cst.Call) -> bool:
    """``x.cpu()``, ``x.to("cpu")``."""
    name = method_name(call)
    first = call.args[0].value if call.args else None
    return name == "cpu" or (name == "to" and first is not None and is_host(first))


def moved_before(mover: Mover, unit: Unit, node: cst.BaseExpression) -> bool:
    """Whether the script has moved what an expression holds by itself: the name was given its moved self before."""
    if mover.existing:
        return True
    bindings = (unit.names.binding(name) for name in nodes_in(node, cst.Name))
    order, loop = unit.names.order, _loop(unit, node)
    moves = (move for binding in bindings if binding is not None for move in _moves_of(mover, unit, binding))
    return any(order(move) < order(node) and _loop(unit, move) is loop for move in moves)


def _moves_of(mover: Mover, unit: Unit, binding: Binding) -> list[cst.Call]:
    """The moves after which a name has its moved self."""

    def found() -> Iterator[cst.Call]:
        for read in binding.reads:
            attribute = unit.names.parents.get(read)
            moved = unit.names.parents.get(attribute) if isinstance(attribute, cst.Attribute) else None
            if isinstance(moved, cst.Call) and moved.func is attribute and mover.is_move(moved):
                if _rebinds(unit, moved, read):
                    yield moved

    return mover.state.once((_moves_of, binding), lambda: list(found()))


def _loop(unit: Unit, node: cst.CSTNode) -> cst.CSTNode:
    """The innermost loop around a node, or the function."""
    return next(unit.names.enclosing(node, cst.For, cst.While), unit.names.function(node))


def _rebinds(unit: Unit, moved: cst.Call, read: cst.CSTNode) -> bool:
    """Whether the statement around a move gives the moved tensor the old name."""
    assign = next((a for a in unit.names.ancestors(moved) if isinstance(a, cst.Assign)), None)
    targets = [n for t in assign.targets for n in descendants(t.target)] if assign is not None else []
    return any(isinstance(n, cst.Name) and isinstance(read, cst.Name) and n.value == read.value for n in targets)
