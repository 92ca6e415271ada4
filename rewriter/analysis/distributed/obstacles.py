"""What prevents the replacement of distribution by hand: pieces for which the accelerator has no equivalent."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.distributed import AlsoOfUser, Hindrance, NotReplaced
from ...facts.roles import Origin, Role
from ...facts.torch_api import process_calls
from ..dataflow import ranks
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.object_fields import fields_of
from ..dataflow.values import Function, State, Unit, origins
from ..dataflow.written_out import WrittenOut
from ..effects.unused_code import is_named
from ..syntax.definitions import plain_values
from ..syntax.walk import descendants, nodes_in
from .replacements import of_torch
from .tracing import Tracer

_OPENS = "torch.distributed.init_process_group"
_KNOWN = {
    "init_process_group": frozenset("backend init_method world_size rank timeout group_name device_id".split()),
    "destroy_process_group": frozenset(),
    "DistributedDataParallel": frozenset(
        "module device_ids output_device broadcast_buffers find_unused_parameters gradient_as_bucket_view "
        "static_graph bucket_cap_mb dim".split()
    ),
    "DistributedSampler": frozenset("dataset num_replicas rank shuffle seed drop_last".split()),
    "spawn": frozenset("fn args nprocs join start_method".split()),
    "start_processes": frozenset("fn args nprocs join start_method".split()),
    "barrier": frozenset({"device_ids"}),
    "get_rank": frozenset(),
    "get_world_size": frozenset(),
    "get_node_local_rank": frozenset({"fallback_rank"}),
}
"""What may be given to each of these by keyword."""
_HARMLESS = ("torch.distributed.elastic.multiprocessing.errors.", "torch.distributed.ReduceOp")
_OWN_GROUP = frozenset({"torch.distributed.new_group"})
_HOOKS = frozenset("register_comm_hook join _set_static_graph".split())
_WRITES = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE"})


def obstacle(state: State, reach: Reach, unit: Unit, call: cst.Call, name: str) -> Reason | None:
    """Why a call cannot be replaced or kept, where it cannot."""
    last = name.rpartition(".")[2]
    if not process_calls.distributes(name) and not of_torch(name):
        return None
    if name.startswith(_HARMLESS):
        return None
    group = next(
        (a for a in call.args if a.keyword is not None and a.keyword.value in ("group", "process_group")), None
    )
    if group is not None:
        return NotReplaced(call, Hindrance.OWN_GROUP, last)
    direct = (
        name.count(".") == 2
        or process_calls.distributes(name)
        or name.startswith("torch.distributed.distributed_c10d.")
    )
    if last in _KNOWN and direct:
        return _of_arguments(state, reach, unit, call, last) or _of_place(state, reach, unit, call, name)
    if (
        direct
        and name not in _OWN_GROUP
        and (process_calls.collective(name) is not None or process_calls.asks_group(name))
    ):
        return None  # torch does it with the group that the accelerator opens as it did with the script's own
    return NotReplaced(call, Hindrance.NO_COUNTERPART, name)


def _of_arguments(state: State, reach: Reach, unit: Unit, call: cst.Call, last: str) -> Reason | None:
    for arg in call.args:
        names = _keywords(state, reach, unit, arg)
        if names is None:
            return NotReplaced(call, Hindrance.HIDDEN_ARGUMENTS, last)
        for name in names:
            if name not in _KNOWN[last]:
                return NotReplaced(call, Hindrance.UNKNOWN_OPTION, last, name)
    if last in ("destroy_process_group", "get_rank", "get_world_size", "barrier") and any(
        a.keyword is None for a in call.args
    ):
        return NotReplaced(call, Hindrance.OWN_GROUP, last)
    return None


def _keywords(state: State, reach: Reach, unit: Unit, arg: cst.Arg) -> list[str] | None:
    """The keywords under which an argument hands something over, those of a dictionary that is written out among them;
    None where they cannot be seen."""
    if not arg.star:
        return [arg.keyword.value] if arg.keyword is not None else []
    entries = WrittenOut(state, reach, fields_of(state)).entries(unit, arg.value) if arg.star == "**" else None
    keys = [entry.key.evaluated_value for entry in entries or () if isinstance(entry.key, cst.SimpleString)]
    words = [key for key in keys if isinstance(key, str)]
    return words if entries is not None and len(words) == len(entries) else None


def _of_place(state: State, reach: Reach, unit: Unit, call: cst.Call, name: str) -> Reason | None:
    """Why a call cannot be replaced at its place."""
    alone = isinstance(unit.names.parents.get(call), cst.Expr)
    last = name.rpartition(".")[2]
    if (name == _OPENS or last == "destroy_process_group") and not alone:
        return NotReplaced(call, Hindrance.USED_RESULT, last)
    if name == _OPENS:
        return _conditional(state, unit, call)
    if process_calls.spawns(name):
        return _worker(state, reach, unit, call)
    if name in process_calls.wrappers("processes"):
        return _spread(call)
    return None


def _conditional(state: State, unit: Unit, call: cst.Call) -> Reason | None:
    """A group that is opened only where the user says so: elsewhere the script means a single process."""
    for around in unit.names.enclosing(call, cst.If):
        assert isinstance(around, cst.If)
        if not _asks_launcher(state, around.test) and not _opens_anyway(state, around):
            names = [node for node in descendants(around.test) if isinstance(node, cst.Name)]
            given = [value for name in names for value in plain_values(unit.names, name)]
            test, made = unit.names.one_line(around.test), unit.names.statement(given[0]) if given else None
            return NotReplaced(around, Hindrance.OWN_CONDITION, test, part=around.test, given=made)
    return None


def also_of_user(state: State, reach: Reach, unit: Unit, call: cst.Call) -> Iterator[Reason]:
    """What is said of a group that opens under a condition of which the launcher decides a part only: the accelerator
    opens it in any case, and the script goes on as a single process where the condition is not met."""
    tracer = Tracer(state, reach)
    for around in unit.names.enclosing(call, cst.If):
        assert isinstance(around, cst.If)
        place, part = next(_of_user(state, tracer, unit, around.test), (unit, None))
        if part is not None and not _opens_anyway(state, around):
            test, text = unit.names.one_line(around.test), place.names.one_line(part)
            yield AlsoOfUser(around, around.test, test, text)


def _of_user(
    state: State, tracer: Tracer, unit: Unit, test: cst.BaseExpression, depth: int = 2
) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    """The parts of a condition that an option of the script decides."""
    if isinstance(test, cst.BooleanOperation):
        for side in (test.left, test.right):
            yield from _of_user(state, tracer, unit, side, depth)
    elif isinstance(test, cst.UnaryOperation):
        yield from _of_user(state, tracer, unit, test.expression, depth)
    elif isinstance(test, (cst.Name, cst.Attribute)):
        assigned = [(unit, value) for value in plain_values(unit.names, test)] if isinstance(test, cst.Name) else None
        values = tracer.attributes(unit, test) if isinstance(test, cst.Attribute) else assigned or []
        for place, value in values if depth else ():
            yield from _of_user(state, tracer, place, value, depth - 1)
        if not values and isinstance(test, cst.Attribute) and not _asks_launcher(state, test):
            yield unit, test


def _opens_anyway(state: State, around: cst.If) -> bool:
    """Whether each branch of a condition opens a group: it decides how the processes are connected, not whether."""
    rest = around.orelse.body if isinstance(around.orelse, cst.Else) else around.orelse
    branches = (node for node in (around.body, rest) if node is not None)
    opening = [any(_is_opening(state, call) for call in nodes_in(branch, cst.Call)) for branch in branches]
    return opening == [True, True] and (not isinstance(rest, cst.If) or _opens_anyway(state, rest))


def _is_opening(state: State, call: cst.Call) -> bool:
    record = state.calls.get(call)
    return record is not None and outside_name(record) == _OPENS


def _asks_launcher(state: State, test: cst.BaseExpression) -> bool:
    """Whether a condition asks for what the launcher says, for devices, or whether the file is the script."""
    for node in descendants(test):
        if origins(state.values.get(node), Role.PLACE):
            return True
        if isinstance(node, cst.Call) and method_name(node) in ("is_available", "is_initialized", "device_count"):
            return True
        if isinstance(node, cst.Name) and node.value == "__name__":
            return True
        if isinstance(node, cst.SimpleString) and node.evaluated_value in ranks.VARIABLES:
            return True
    return False


def _worker(state: State, reach: Reach, unit: Unit, call: cst.Call) -> Reason | None:
    """Why the function that is started as a process cannot simply be called."""
    named = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    plain = [a.value for a in call.args if a.keyword is None]
    worker = plain[0] if plain else named.get("fn")
    given = plain[1] if len(plain) > 1 else named.get("args")
    join = plain[3] if len(plain) > 3 else named.get("join")
    held = state.values.get(worker) if worker is not None else None
    functions = [t for t in (held.things if held is not None else ()) if isinstance(t, Function)]
    alone = isinstance(unit.names.parents.get(call), cst.Expr)
    if len(functions) != 1 or not isinstance(functions[0].node, cst.FunctionDef):
        return NotReplaced(call, Hindrance.UNKNOWN_WORKER)
    others = [site for site in reach.sites(functions[0].node) if site is not call]
    if others:
        return NotReplaced(call, Hindrance.SEVERAL_MODES)
    listed = given is None or isinstance(given, (cst.Tuple, cst.List))
    if not listed:
        return NotReplaced(call, Hindrance.HIDDEN_WORKER_ARGUMENTS)
    if (join is not None and getattr(join, "value", "") != "True") or not alone:
        return NotReplaced(call, Hindrance.GOES_ON)
    if any(isinstance(around, (cst.For, cst.While)) for around in unit.names.enclosing(call, cst.For, cst.While)):
        return NotReplaced(call, Hindrance.STARTED_AGAIN)
    params = functions[0].node.params
    if isinstance(params.star_arg, cst.Param) or params.star_kwarg is not None:
        return NotReplaced(call, Hindrance.OPEN_PARAMETERS)
    return None


def _spread(call: cst.Call) -> Reason | None:
    """A model on several devices of one process."""
    ids = next((a.value for a in call.args if a.keyword is not None and a.keyword.value == "device_ids"), None)
    if isinstance(ids, (cst.List, cst.Tuple)) and len(ids.elements) > 1:
        return NotReplaced(call, Hindrance.SPREAD_MODEL)
    if not call.args:
        return NotReplaced(call, Hindrance.UNKNOWN_MODEL)
    return None


def unsure(state: State, reach: Reach, unit: Unit) -> Iterator[Reason]:
    """What else the accelerator would undo: hooks of the wrapper, devices worked out from the rank, own variables."""
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None:
            continue
        if method_name(call) in _HOOKS and origins(record.receiver, Role.MODEL):
            if isinstance(call.func, cst.Attribute) and not _of_program(state, record.receiver, call):
                yield NotReplaced(call, Hindrance.WRAPPER_METHOD, method_name(call))
        takes = method_name(call) in ("to", "cuda", "device") or bool(origins(record.result, Role.MODEL))
        for arg in call.args if takes else ():
            if any(o.qualified == ranks.MULTIPLE for o in origins(state.values.get(arg.value), Role.PLACE)):
                yield NotReplaced(call, Hindrance.RANK_DEVICE)
                break
    for node in unit.names.parents:
        if isinstance(node, cst.SimpleString) and node.evaluated_value in _WRITES and is_named(unit, reach, node):
            target = unit.names.statement(node)
            small = target.body[0] if isinstance(target, cst.SimpleStatementLine) else None
            first = small.targets[0].target if isinstance(small, cst.Assign) else None
            if isinstance(first, cst.Subscript) and node in descendants(first):
                if unit.names.module.code_for_node(first).startswith(("os.environ", "environ")):
                    yield NotReplaced(node, Hindrance.SET_VARIABLE, str(node.evaluated_value))


def _of_program(state: State, receiver: object, call: cst.Call) -> bool:
    """Whether a method is one that the program's own model has."""
    things = getattr(receiver, "things", ())
    return any(
        klass.method(method_name(call)) is not None
        for t in things
        if isinstance(t, Origin) and (klass := state.klass.get(t)) is not None
    )
