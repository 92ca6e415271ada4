"""Scripts that never name a device and make tensors by hand: on an accelerator those would meet the batch's."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.devices import HostMeeting, MadeInForward, OnHost, StaysOnHost
from ...facts.roles import SHARES, Origin, Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import made_names, method_name, outside_name
from ..dataflow.values import External, State, Unit, origins
from ..syntax.definitions import bindings_value, plain_values
from ..syntax.nodes import keyword
from ..syntax.walk import descendants
from ..training.gradient_path import GradientPath
from ..training.training import Training, in_model, whole
from .fed_before_move import yielded
from .kept_on_host import kept_on_host
from .moves import is_host

_FACTORIES = frozenset(
    f"torch.{name}"
    for name in "zeros ones empty full rand randn randint arange tensor as_tensor from_numpy linspace eye normal "
    "Tensor FloatTensor LongTensor".split()
)
_FOLLOWS = frozenset({"to", "cuda", "type_as", "item", "tolist", "numpy"})
"""After these methods it does not matter where a tensor was made."""
_NAMED = 3
"""So many of them are named."""


class StaysOnCpu(NamedTuple):
    """Where tensors of the CPU would meet the GPU, the first with its place."""

    unit: Unit
    node: cst.CSTNode
    meetings: tuple[HostMeeting, ...]

    def told(self, hosted: Iterable[cst.CSTNode]) -> Reason:
        """The finding; ``hosted``: what the CPU needs again of what would be on the GPU."""
        taken = tuple(dict.fromkeys(self.unit.names.one_line(node) for node in hosted))
        return StaysOnHost(self.node, self.meetings, taken)


def cpu_only(
    state: State,
    reach: Reach,
    training: Training,
    early: Callable[[cst.Call, Origin], bool],
    prepared: Container[Origin],
) -> StaysOnCpu | None:
    """
    Why a script must stay on the CPU, where it trained so far; None where it names a device, or needs none.

    ``early``: whether a call of a model comes before its ``prepare``, so that both are still on the CPU; ``prepared``:
    what is prepared.
    """
    if any(_names_device(record.node) for record in state.calls.values()) or _has_device(state):
        return None
    found = list(_meetings(state, reach, training, early, prepared))
    meetings = tuple(dict.fromkeys(meeting for *_, meeting in found))
    return StaysOnCpu(*found[0][:2], meetings[:_NAMED]) if found else None


def made_in_forward(
    state: State, reach: Reach, training: Training, prepared: Container[Origin]
) -> Iterator[tuple[Unit, Reason]]:
    """
    The tensors that a prepared model makes by hand while it runs, in a script that names a device and never moves the
    model: one that moves it had them on the wrong device already.
    """
    if any(outside_name(record).startswith("torch.set_default_") for record in state.calls.values()):
        return
    moves = [record for record in state.calls.values() if _puts_on_device(record.node)]
    moved = {whole(state, o) for record in moves for o in origins(record.receiver, Role.MODEL)}
    told: set[cst.CSTNode] = set()
    for model in (m for m in training.models if m in prepared and m not in moved):
        klass = state.klass.get(model)
        forward = klass.method("forward") if klass is not None else None
        if klass is None or forward is None:
            continue
        own = (
            {n for code in reach.below(init.node) for n in reach.own(code)}
            if (init := klass.method("__init__"))
            else ()
        )
        if any(record.node in own for record in moves) or any(_made_there(node) for node in own):
            continue
        for node in reach.runs(forward.node.body, forward.unit):
            if isinstance(node, cst.Call) and node in state.calls and node not in told and _is_by_hand(state, node):
                told.add(node)
                yield state.calls[node].unit, MadeInForward(node, klass.node.name.value)


def _puts_on_device(call: cst.Call) -> bool:
    return isinstance(call.func, cst.Attribute) and method_name(call) in ("to", "cuda")


def _made_there(node: cst.CSTNode) -> bool:
    """``nn.Linear(8, 8, device=device)``."""
    return isinstance(node, cst.Call) and keyword(node, "device") is not None


def _meetings(
    state: State,
    reach: Reach,
    training: Training,
    early: Callable[[cst.Call, Origin], bool],
    prepared: Container[Origin],
) -> Iterator[tuple[Unit, cst.CSTNode, HostMeeting]]:
    """Where a tensor of the CPU would meet the GPU: each with what happens."""
    for unit, node in _made(state, reach, training):
        yield unit, node, HostMeeting(OnHost.MADE)
    for kept in kept_on_host(state, reach, training):
        yield kept.unit, kept.node, HostMeeting(OnHost.KEPT, kept.name)
    for unit, node in _fed(state, reach, training, early, prepared):
        yield unit, node, HostMeeting(OnHost.GIVEN, unit.names.one_line(node))
    for unit, node in _sent_to_host(state, reach, training):
        yield unit, node, HostMeeting(OnHost.MOVED)
    for unit, node in _pinned(state, reach, training):
        yield unit, node, HostMeeting(OnHost.NAMED)


def _names_device(call: cst.Call) -> bool:
    return method_name(call) == "cuda" and isinstance(call.func, cst.Attribute)


def _has_device(state: State) -> bool:
    """Whether the script chooses a device anywhere but the CPU, or reads one that its user chooses."""
    said = {node for call in state.calls if is_host(call) for node in (call, call.func)}
    for node, slot in state.values.items():
        if node in said or (isinstance(node, cst.SimpleString) and is_host(node)):
            continue
        if any(isinstance(thing, External) and _chooses_none(thing.qualified) for thing in slot.things):
            continue
        if isinstance(node, cst.Attribute) and (node.attr.value in ("device", "dev") or _of_cuda(node)):
            if node.attr.value != "device" or not origins(slot, Role.DEVICE):
                return True
        if any(o.qualified != "follows" for o in origins(slot, Role.DEVICE)):
            return True
    return False


def _chooses_none(name: str) -> bool:
    """``torch.cuda.is_available()`` and the like, by which nothing is put on a GPU."""
    return name == "torch.cuda" or (name.startswith("torch.cuda.") and questions.asks_only(name))


def _of_cuda(node: cst.Attribute) -> bool:
    return node.attr.value == "cuda" or (isinstance(node.value, cst.Attribute) and node.value.attr.value == "cuda")


def _made(state: State, reach: Reach, training: Training) -> Iterator[tuple[Unit, cst.CSTNode]]:
    """The tensors that are made by hand where the model works."""
    for loop in (*training.train_loops, *training.eval_loops):
        unit = next(u for u in reach.units if loop in u.names.parents)
        for node in reach.runs(loop.body if isinstance(loop, (cst.For, cst.While)) else loop, unit):
            if isinstance(node, cst.Call) and node in state.calls and _is_by_hand(state, node):
                yield state.calls[node].unit, node


def _fed(
    state: State,
    reach: Reach,
    training: Training,
    early: Callable[[cst.Call, Origin], bool],
    prepared: Container[Origin],
) -> Iterator[tuple[Unit, cst.CSTNode]]:
    """What trained models are called with that comes from no loader (the rows of a test set, at once), or from one
    that is not prepared, by way of an iterator of the script's own."""
    for call, model in training.forwards.items():
        unit = state.calls[call].unit
        if (
            whole(state, model) not in training.models
            or early(call, whole(state, model))
            or reach.function_of(call) not in reach.reachable
        ):
            continue
        if in_model(unit, call):
            continue  # a model calls its parts, and others of the same class may have been fed
        value = call.args[0].value if call.args and not call.args[0].star else None
        if isinstance(value, (cst.Name, cst.Attribute, cst.Subscript, cst.Call)):
            moved = yielded(state, unit, value) and not _is_raw(state, reach, unit, value, prepared)
            if not moved and not _placed(unit, value):
                yield unit, value


def _is_raw(state: State, reach: Reach, unit: Unit, value: cst.BaseExpression, prepared: Container[Origin]) -> bool:
    """Whether a value is a batch of loaders that are not prepared, outside of all loops over them."""
    held = origins(state.values.get(value), *SHARES)
    raw = all(o.role is Role.BATCH and o.source is not None and o.source not in prepared for o in held)
    return bool(held) and raw and not reach.batch_loops(value, unit)


def _sent_to_host(state: State, reach: Reach, training: Training) -> Iterator[tuple[Unit, cst.CSTNode]]:
    """What trained models are called with after a move to the CPU: ``x = x.cpu()``, and then ``model(x)``."""
    for call, model in training.forwards.items():
        unit = state.calls[call].unit
        if whole(state, model) not in training.models or reach.function_of(call) not in reach.reachable:
            continue
        for arg in call.args:
            given = [arg.value]
            binding = unit.names.binding(arg.value) if isinstance(arg.value, cst.Name) else None
            if binding is not None:
                earlier = [d for d in binding.definitions if unit.names.order(d) < unit.names.order(call)]
                given += bindings_value(unit.names, binding, earlier)
            moves = (value for value in given if isinstance(value, cst.Call) and method_name(value) == "cpu")
            yield from ((unit, move) for move in moves)


def _pinned(state: State, reach: Reach, training: Training) -> Iterator[tuple[Unit, cst.CSTNode]]:
    """The parts of a loss that are put on the CPU by name: ``torch.randn_like(mean).to("cpu")``."""
    path = GradientPath(reach, training).nodes
    for call, record in state.calls.items():
        if call in path and _to_cpu(call):
            yield record.unit, call


def _to_cpu(call: cst.Call) -> bool:
    """``x.cpu()``, ``x.to("cpu")``, ``torch.zeros(3, device="cpu")``."""
    name = method_name(call) if isinstance(call.func, cst.Attribute) else ""
    places = [arg.value for arg in call.args if arg.keyword is not None and arg.keyword.value == "device"]
    places += [arg.value for arg in call.args[:1] if name == "to" and arg.keyword is None]
    return (name == "cpu" and not call.args) or any(map(is_host, places))


def _placed(unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether an expression, or what a variable was given, says where it is to be: ``torch.zeros(4, device=d)``."""
    values = plain_values(unit.names, value) if isinstance(value, cst.Name) else [value]
    nodes = [node for each in values for node in descendants(each)]
    named = any(isinstance(n, cst.Arg) and n.keyword is not None and n.keyword.value == "device" for n in nodes)
    return named or any(isinstance(n, cst.Call) and method_name(n) in _FOLLOWS for n in nodes)


def _is_by_hand(state: State, call: cst.Call) -> bool:
    encodes = keyword(call, "return_tensors") is not None and any(
        map(questions.collates, made_names(state.calls[call]))
    )
    if not encodes and outside_name(state.calls[call]) not in _FACTORIES:
        return False
    if any(a.keyword is not None and a.keyword.value == "device" for a in call.args):
        return False
    unit = state.calls[call].unit
    around = unit.names.parents.get(call)
    return not (isinstance(around, cst.Attribute) and around.attr.value in _FOLLOWS)
