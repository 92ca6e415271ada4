"""
Let all processes make a collective call, or none.

A barrier, a reduction, a gather or a backward pass waits for all processes. If only some of them make the call (under a
condition on the rank, after one of them has returned, or in an exception handler), the others never answer: the job
hangs, or the call is matched with another collective.

    -if dist.get_rank() == 0:
    -    loss = reduce_loss(loss)      # calls dist.all_reduce
    -    print(loss)
    +loss = reduce_loss(loss)
    +if dist.get_rank() == 0:
    +    print(loss)

Compute together, then let one process print or write. Pairs of barriers in opposite branches (`if rank != 0:
barrier()` and later `if rank == 0: barrier()`) are understood and left alone, and so are point-to-point messages.

`save_state`, `save_model` and `get_state_dict` of Accelerate wait only if the model is sharded (FSDP, DeepSpeed): on
the main process alone they are a `review`; so is a function that keeps its result (`functools.cache`), if all processes
call it elsewhere. Under `is_main_process or distributed_type == DistributedType.FSDP` all processes come where that is
needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import libcst as cst

from ..analysis.dataflow.callees import method_name, outside_names
from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.containers import key_of
from ..analysis.dataflow.values import CallRecord, Unit, decorators, origins
from ..analysis.syntax.leaving import HANDLERS
from ..analysis.syntax.nodes import keyword
from ..analysis.syntax.walk import descendants
from ..facts.roles import Role
from ..facts.torch_api import process_calls, surroundings
from ..findings import Finding, Severity
from .program import AuditedProgram, Dialect
from .rule import AuditRule, Found, first_row

_FABRIC = frozenset(
    {"all_reduce", "all_gather", "barrier", "broadcast", "setup", "setup_dataloaders", "save", "backward"}
)
_BY_STRATEGY = frozenset({"save_state", "save_model", "get_state_dict"})
"""Methods of Accelerate in which the processes wait for each other only if the model is sharded."""
_KEEP = frozenset({"cache", "lru_cache", "cached"})
"""Decorators of functions that compute a result once."""
_STRATEGIES = frozenset({"distributed_type", "deepspeed_plugin", "fsdp_plugin", "DEEPSPEED", "FSDP", "MEGATRON_LM"})
"""Attributes by which scripts ask how Accelerate distributes the model."""


def collectives_apart(program: AuditedProgram) -> Found:
    """The collective calls that not every process makes."""
    if program.groups is not None:
        return  # some collectives belong to a group of only some processes
    left: set[cst.CSTNode] = set()
    for record in program.records:
        name = _collective(program, record)
        if not name:
            continue
        local = name in _BY_STRATEGY and program.dialects == {Dialect.ACCELERATE} and not _numbers_checkpoints(program)
        guard = _guard(program, record, local)
        if (
            guard is None
            or (name in process_calls.turns() and isinstance(guard.node, cst.With))
            or _paired(program, record, guard, name)
        ):
            continue
        if isinstance(guard.node, cst.With) or _in_training_mode(program, record, guard):
            continue  # under main_process_first all processes make the call, one after the other
        text = first_row(guard.unit, guard.node)
        if local:
            words = (
                f"`{name}` under `{text}`: with DDP it does not wait for the others, but with FSDP or DeepSpeed it "
                "hangs, because all processes must take part"
            )
            remedy = "call it on all processes, or where accelerator.distributed_type is FSDP or DEEPSPEED on all"
            yield record.unit, Finding("collective-apart", record.node, words, remedy, Severity.REVIEW)
            continue
        ways_out = _conditional_exits(guard, record)
        if ways_out:
            for way in ways_out:
                if way not in left:
                    left.add(way)
                    words = f"under `{text}` some processes leave here, and the others wait for them at `{name}`"
                    remedy = "decide it on all processes, or end the job by an exception"
                    yield guard.unit, Finding("collective-apart", way, words, remedy, Severity.REVIEW)
            continue
        cached = _cached(program, record, guard)
        if cached is not None:
            words = (
                f"`{name}` waits for all processes, but only some of them come to it: `{text}`; that only works if "
                f"`{cached}` has its result by then, from a call of all processes with the same arguments"
            )
            remedy = "keep the result in a variable, and call it on all processes"
            yield record.unit, Finding("collective-apart", record.node, words, remedy, Severity.REVIEW)
            continue
        handler = isinstance(guard.node, HANDLERS)
        why = "an exception of one process alone leads to it" if handler else "only some of them come to it"
        yield (
            record.unit,
            Finding(
                "collective-apart",
                record.node,
                f"`{name}` waits for all processes, but {why}: `{text}`",
                "call it on all processes, and put only what follows under the condition",
                Severity.ERROR,
            ),
        )


def _guard(program: AuditedProgram, record: CallRecord, local: bool) -> CodePlace | None:
    """Why not every process makes a call; ``local``: where the strategy needs all of them, it may let them in."""
    own = program.guards.around(record.unit, record.node)
    found = [*own, *program.guards.called_apart(record.unit, record.node)]
    found = [place for place in found if not _is_before_the_file(program, record, place)]
    return next((place for place in found if not (local and _admits_by_strategy(program, place))), None)


def _is_before_the_file(program: AuditedProgram, record: CallRecord, place: CodePlace) -> bool:
    """Whether a call comes before the file is made that its condition asks for: nobody finds that before all are
    there."""
    unit, node = place.unit, place.node
    if not isinstance(node, cst.If) or not program.guards.looks_for_a_file(unit, node):
        return False
    calls = [n for n in descendants(node.body) if isinstance(n, cst.Call) and n in program.state.calls]
    names = {call: outside_names(program.state.calls[call]) for call in calls}
    makes = [call for call in calls if any(surroundings.writes(n) or surroundings.fetches(n) for n in names[call])]
    comes = [call for call in calls if record.node in set(program.reach.runs(call, unit))]
    order = unit.names.order
    return bool(makes and comes) and min(map(order, comes)) < min(map(order, makes))


def _numbers_checkpoints(program: AuditedProgram) -> bool:
    """Whether Accelerate numbers the checkpoints by itself: then ``save_state`` waits for all processes."""
    given = (keyword(record.node, "automatic_checkpoint_naming") for record in program.records)
    return any(isinstance(value, cst.Name) and value.value == "True" for value in given)


def _admits_by_strategy(program: AuditedProgram, place: CodePlace) -> bool:
    """``if is_main_process or distributed_type == DistributedType.FSDP``: all processes come where that needs them."""
    if not isinstance(place.node, cst.If):
        return False
    wholes: list[tuple[Unit, cst.CSTNode]] = [(place.unit, place.node.test)]
    names = [part for part in descendants(place.node.test) if isinstance(part, (cst.Name, cst.Attribute))]
    wholes += [(s.unit, s.node) for name in names for s in program.tracer.sources(place.unit, name)]
    for unit, whole in wholes:
        for part in descendants(whole):
            if isinstance(part, cst.BooleanOperation) and isinstance(part.operator, cst.Or):
                if any(_asks_strategy(program, unit, side) for side in (part.left, part.right)):
                    return True
    return False


def _asks_strategy(program: AuditedProgram, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether an expression asks how the model is distributed, itself or by a variable."""
    reads = [part for part in descendants(node) if isinstance(part, (cst.Name, cst.Attribute))]
    sources = [source.node for read in reads for source in program.tracer.sources(unit, read)]
    parts = (part for whole in (node, *sources) for part in descendants(whole))
    return any(_words(part) & _STRATEGIES for part in parts)


def _words(node: cst.CSTNode) -> frozenset[str]:
    """The name of an attribute, also where ``getattr`` reads it."""
    if isinstance(node, cst.Attribute):
        return frozenset({node.attr.value})
    if isinstance(node, cst.Call) and method_name(node) == "getattr" and len(node.args) > 1:
        word = key_of(node.args[1].value)
        return frozenset({word} if word is not None else ())
    return frozenset()


def _collective(program: AuditedProgram, record: CallRecord) -> str:
    """The name of the collective that is called; empty for other calls."""
    name = method_name(record.node)
    if origins(record.receiver, Role.ACCELERATOR):
        fabric = bool({d.name for d in program.dialects} == {"FABRIC"})
        known = _FABRIC if fabric else process_calls.together() - {"prepare_model"}
        return name if name in known else ""
    outside = outside_names(record)
    if any(found.op != "between two" for found in map(process_calls.collective, outside) if found is not None):
        return name
    if record in program.training.backwards and program.by_hand and program.wraps:
        return name
    return ""


def _in_training_mode(program: AuditedProgram, record: CallRecord, guard: CodePlace) -> bool:
    """Whether a module makes the call only in training mode, and one process runs the module outside of the
    training."""
    seen: set[cst.CSTNode] = set()
    pending = [record]
    while pending:
        site = pending.pop()
        names = site.unit.names
        function = names.function(site.node)
        if function in seen or function is guard.unit.names.function(guard.node):
            continue
        seen.add(function)
        for around in names.enclosing(site.node, cst.If):
            if isinstance(around, cst.If) and "training" in names.module.code_for_node(around.test):
                return True
        pending += program.sites(function)
    return False


def _cached(program: AuditedProgram, record: CallRecord, guard: CodePlace) -> str | None:
    """The function between a condition and a call that keeps its results, and that all processes call elsewhere."""
    seen: set[cst.CSTNode] = set()
    pending = [record]
    while pending:
        site = pending.pop()
        function = site.unit.names.function(site.node)
        if function in seen or function is guard.unit.names.function(guard.node):
            continue
        seen.add(function)
        sites = list(program.sites(function))
        if isinstance(function, cst.FunctionDef) and not _KEEP.isdisjoint(decorators(function)):
            if any(program.guards.of(each.unit, each.node) is None for each in sites):
                return function.name.value
        pending += sites
    return None


def _paired(program: AuditedProgram, record: CallRecord, guard: CodePlace, name: str) -> bool:
    """Whether the other processes make the same call in the other branch, or under the opposite condition."""
    unit, node = guard.unit, guard.node
    if not isinstance(node, cst.If):
        return False
    if _excludes(guard, record) or _is_balanced(program, guard, name):
        return True
    function = unit.names.function(node)
    for other in unit.names.every(cst.If):
        assert isinstance(other, cst.If)
        if unit.names.function(other) is not function or not program.guards.asks(unit, other.test):
            continue
        inside = set(_collectives(program, other, unit))
        if other is node:
            sides = [set(_collectives(program, side, unit)) for side in (node.body, node.orelse) if side is not None]
            if len(sides) == 2 and all(name in side for side in sides):
                return True
        elif name in inside and record.node not in set(descendants(other)):
            return True
    return False


def _excludes(guard: CodePlace, record: CallRecord) -> bool:
    """Whether a call is under the opposite of a part of the condition: who leaves by `not a and first`, where the call
    is under `if a`, leaves where nobody makes the call."""
    if not isinstance(guard.node, cst.If):
        return False
    parts = [part for part in _conjuncts(guard.node.test) if isinstance(part, cst.UnaryOperation)]
    opposites = [part.expression for part in parts if isinstance(part.operator, cst.Not)]
    below: cst.CSTNode = record.node
    for around in record.unit.names.ancestors(record.node):
        if isinstance(around, cst.If) and below is around.body:
            if any(part.deep_equals(other) for part in _conjuncts(around.test) for other in opposites):
                return True
        below = around
    return False


def _conjuncts(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        yield from _conjuncts(test.left)
        yield from _conjuncts(test.right)
    else:
        yield test


def _conditional_exits(guard: CodePlace, record: CallRecord) -> list[cst.CSTNode]:
    """The statements by which some processes pass by a call, where each is under one more condition than that on the
    rank; none where some leave in any case."""
    names = guard.unit.names
    if not isinstance(guard.node, cst.If) or record.node in set(descendants(guard.node)):
        return []
    jumps = [node for node in descendants(guard.node) if isinstance(node, (cst.Return, cst.Continue, cst.Break))]
    for jump in jumps:
        inside = itertools.takewhile(lambda around: around is not guard.node, names.ancestors(jump))
        if not any(isinstance(around, (cst.If, cst.For, cst.While)) for around in inside):
            return []
    return list(jumps)


def _is_balanced(program: AuditedProgram, guard: CodePlace, name: str) -> bool:
    """Whether all ways from a condition to the end of its block make a call equally often."""
    names = guard.unit.names
    block = names.parents.get(guard.node)
    above = names.parents.get(block) if isinstance(block, cst.IndentedBlock) else None
    if not isinstance(block, cst.IndentedBlock) or not isinstance(above, (cst.For, cst.While, cst.FunctionDef)):
        return False
    ends = cst.Return if isinstance(above, cst.FunctionDef) else cst.Continue
    rest = list(itertools.dropwhile(lambda statement: statement is not guard.node, block.body))
    ways = _ways(program, guard.unit, rest, name, ends)
    return ways is not None and len({count for count, _ in ways}) == 1 and any(count for count, _ in ways)


def _ways(
    program: AuditedProgram,
    unit: Unit,
    statements: Sequence[cst.BaseStatement | cst.BaseSmallStatement],
    name: str,
    ends: type[cst.CSTNode],
) -> set[tuple[int, bool]] | None:
    """How often the ways through some statements make a call, and whether each leaves them by a jump of kind ``ends``;
    None where that is not known."""
    found = {(0, False)}
    for statement in statements:
        if isinstance(statement, cst.If):
            sides = [_suite(statement.body), _suite(statement.orelse)]
            branches = [_ways(program, unit, side, name, ends) for side in sides]
            if None in branches:
                return None
            further = {way for branch in branches if branch is not None for way in branch}
        elif isinstance(statement, cst.BaseCompoundStatement):
            parts = list(descendants(statement, (cst.FunctionDef, cst.Lambda, cst.ClassDef)))
            if name in _collectives(program, statement, unit) or any(isinstance(n, _JUMPS) for n in parts):
                return None
            further = {(0, False)}
        else:
            parts = list(descendants(statement))
            jumps = [node for node in parts if isinstance(node, _JUMPS)]
            if any(not isinstance(jump, ends) for jump in jumps):
                return None
            further = {(sum(each == name for each in _collectives(program, statement, unit)), bool(jumps))}
        found = {way for way in found if way[1]} | {(n + m, out) for n, left in found if not left for m, out in further}
    return found


_JUMPS = (cst.Return, cst.Continue, cst.Break, cst.Raise)


def _suite(node: cst.CSTNode | None) -> Sequence[cst.BaseStatement | cst.BaseSmallStatement]:
    """The statements of a branch; an ``elif`` is the one statement of its branch."""
    if isinstance(node, cst.If):
        return (node,)
    body = node.body if isinstance(node, cst.Else) else node
    return body.body if isinstance(body, (cst.IndentedBlock, cst.SimpleStatementSuite)) else ()


def _collectives(program: AuditedProgram, node: cst.CSTNode, unit: Unit) -> Iterator[str]:
    for found in program.reach.runs(node, unit):
        record = program.state.calls.get(found) if isinstance(found, cst.Call) else None
        if record is not None and (name := _collective(program, record)):
            yield name


RULE = AuditRule("collective-apart", __doc__, collectives_apart)
