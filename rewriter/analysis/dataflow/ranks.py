"""The place of a process in its job: how scripts ask for it, and what the accelerator calls it."""

from __future__ import annotations

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import process_calls
from ..syntax.nodes import asks_whether_set, positional
from .call_binding import EvaluatedCall
from .containers import at
from .solver import Slot, Thing
from .values import External, Function, Sequence, State

RANK, LOCAL_RANK, WORLD_SIZE = "process_index", "local_process_index", "num_processes"
FLAG = "use_distributed"
"""Whether there are several: a comparison of the number of processes, or a question whether a launcher set them."""
MULTIPLE = "arithmetic"
"""A number computed from a rank, which may stand for a device of its own."""

VARIABLES = {
    "RANK": RANK, "LOCAL_RANK": LOCAL_RANK, "WORLD_SIZE": WORLD_SIZE,
    "SLURM_PROCID": RANK, "SLURM_LOCALID": LOCAL_RANK, "SLURM_NTASKS": WORLD_SIZE,
    "OMPI_COMM_WORLD_RANK": RANK, "OMPI_COMM_WORLD_LOCAL_RANK": LOCAL_RANK, "OMPI_COMM_WORLD_SIZE": WORLD_SIZE,
}  # fmt: skip
"""The variables by which launchers tell a process its place."""
_NUMBERS = {"rank": RANK, "local rank": LOCAL_RANK, "world size": WORLD_SIZE}
_SAID = {
    RANK: "the number of the process",
    LOCAL_RANK: "the number of the process on its machine",
    WORLD_SIZE: "the number of processes",
    FLAG: "whether there are several processes",
    MULTIPLE: "computed from the number of the process",
}
_READERS = frozenset({"os.getenv", "os.environ.get"})


def said(name: str) -> str:
    """What such a number is, in words."""
    return _SAID[name]


def place(state: State, node: cst.CSTNode, name: str) -> Origin:
    """The role of an expression that gives one of these numbers."""
    return state.origin(Role.PLACE, node, _SAID[name], name, None)


def asked(call: EvaluatedCall, qualified: str) -> bool:
    """Whether a call is ``dist.get_rank()``, ``os.environ.get("RANK")`` or the like: then it gives such a number."""
    name = _NUMBERS.get(process_calls.rank_number(qualified))
    if name is None and qualified in _READERS and call.node.args:
        word = call.node.args[0].value
        name = VARIABLES.get(str(word.evaluated_value)) if isinstance(word, cst.SimpleString) else None
    if name is not None:
        call.state.solver.add(call.result, place(call.state, call.node, name))
    return name is not None


def item(state: State, node: cst.Subscript, thing: External, key: str | None, slot: Slot) -> None:
    """``os.environ["RANK"]``."""
    if thing.qualified == "os.environ" and key in VARIABLES:
        state.solver.add(slot, place(state, node, VARIABLES[str(key)]))


def number(thing: Thing) -> Thing | None:
    """Let only such numbers pass."""
    return thing if isinstance(thing, Origin) and thing.role is Role.PLACE else None


def computed(state: State, node: cst.BinaryOperation, left: Slot, right: Slot, slot: Slot) -> None:
    """``rank % torch.cuda.device_count()`` is the number on the machine; ``2 * rank`` may be a device of its own."""
    modulo = isinstance(node.operator, cst.Modulo)

    def arrive(thing: Thing) -> None:
        if number(thing) is not None and isinstance(thing, Origin) and thing.qualified in (RANK, LOCAL_RANK):
            if modulo:
                state.solver.add(slot, place(state, node, LOCAL_RANK))
            elif isinstance(node.operator, (cst.Multiply, cst.FloorDivide)):
                state.solver.add(slot, place(state, node, MULTIPLE))
        elif isinstance(thing, Origin) and thing.role is Role.PLACE and thing.qualified == MULTIPLE:
            state.solver.add(slot, thing)

    state.solver.watch(left, arrive)
    if not modulo:
        state.solver.watch(right, arrive)


def compared(state: State, node: cst.Comparison, sides: list[Slot], slot: Slot) -> None:
    """``world_size > 1``, ``"RANK" in os.environ``, ``local_rank != -1``: whether there are several processes."""
    told = (WORLD_SIZE, RANK, LOCAL_RANK) if asks_whether_set(node) else (WORLD_SIZE,)
    asks = isinstance(node.left, cst.SimpleString) and node.left.evaluated_value in VARIABLES

    def arrive(thing: Thing) -> None:
        of_number = isinstance(thing, Origin) and thing.role is Role.PLACE and thing.qualified in told
        of_variable = asks and isinstance(thing, External) and thing.qualified == "os.environ"
        if of_number or of_variable:
            state.solver.add(slot, place(state, node, FLAG))

    for side in sides:
        state.solver.watch(side, arrive)


def spawned(call: EvaluatedCall) -> None:
    """``mp.spawn(worker, args=(...))``: the worker is called with the number of the process and these arguments."""
    state = call.state
    named = {arg.keyword.value: slot for arg, slot in call.args if arg.keyword is not None}
    plain = call.positional()
    worker, given = plain[0] if plain else named.get("fn"), plain[1] if len(plain) > 1 else named.get("args")

    def arrive(thing: Thing) -> None:
        if not isinstance(thing, Function):
            return
        state.reached(call.unit, call.node, thing.node, lambda: hand(thing))

    def hand(worker: Function) -> None:
        scope = worker.unit.names.scopes[worker.node]
        for index, param in enumerate(positional(worker.node)):
            slot = state.binding(scope.bindings[param.name.value])
            if index == 0:
                state.solver.add(slot, place(state, param, LOCAL_RANK))
            elif given is not None:
                state.solver.flow(at(state, given, index - 1), slot)

    if worker is not None:
        state.solver.watch(worker, arrive)


def joined(call: EvaluatedCall) -> None:
    """``init_process_group(rank=r, world_size=n)``: what ``r`` and ``n`` hold from here on are these numbers."""
    state = call.state
    for arg in call.node.args:
        name = {"rank": RANK, "world_size": WORLD_SIZE}.get(arg.keyword.value if arg.keyword is not None else "")
        if name is None:
            continue
        if isinstance(arg.value, cst.Name):
            binding = call.unit.names.binding(arg.value)
            if binding is not None:
                state.solver.add(state.binding(binding), place(state, arg.value, name))
        elif isinstance(arg.value, cst.Attribute):
            held, word, at_place = state.slot(arg.value.value), arg.value.attr.value, place(state, arg.value, name)
            state.solver.watch(held, lambda t, w=word, p=at_place: _kept(state, t, w, p))  # type: ignore[misc]


def _kept(state: State, thing: Thing, name: str, given: Origin) -> None:
    if not isinstance(thing, (External, Function, Sequence)):
        state.solver.add(state.field(thing, name), given)
