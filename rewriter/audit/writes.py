"""
Write each file once: on the main process only, or under a different name on each process.

Every process runs the whole script. A file that all of them write at the same time may end as a mixture of several
versions; a tracker records N runs; an archive is unpacked by one process while another reads it.

    -torch.save(model.state_dict(), "model.pt")
    +if dist.get_rank() == 0:
    +    torch.save(model.state_dict(), "model.pt")

With Accelerate, Fabric or torchlift use the object: `accelerator.save(...)`, `fabric.save(...)`, or a condition
on `accelerator.is_main_process`. Downloads go under `with accelerator.local_main_process_first():`, or before a
barrier on one process. A path that contains the number of the process, or a name from a row of its shard, is each
process's own, and is left alone; so is what processes do one after the other (a lock, or a barrier that the others wait
at) if they look first whether it is done. What is created only where it is missing, a cache or a download, is a
`review`: it happens in the first run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.callees import method_name, outside_name
from ..analysis.dataflow.open_modes import opens_to_write
from ..analysis.dataflow.values import Unit, origins
from ..analysis.effects.memory import into_memory
from ..analysis.effects.written import written
from ..analysis.syntax.nodes import keyword
from ..analysis.syntax.walk import children, descendants
from ..facts.effects import EffectKind
from ..facts.roles import Role
from ..facts.torch_api import surroundings
from ..findings import Finding, Severity
from .own_names import is_own
from .program import AuditedProgram
from .rule import AuditRule, Found, first_row
from .turns import once, only_if_missing

_ONCE = {EffectKind.WRITE: "writes", EffectKind.DOWNLOAD: "downloads", EffectKind.FETCH: "fetches"}
_QUIET = frozenset({"makedirs", "mkdir", "add_scalar", "flush", "close"})
"""Calls that are safe to repeat, or that write to something that has another finding."""
_OF_ROWS = (cst.If, cst.Try)
"""Statements that are one effect with all their rows: they ask for a file, or catch what a download raises."""


def unguarded_writes(program: AuditedProgram) -> Found:
    """The files, runs and downloads that every process makes."""
    if not program.training.backwards:
        return  # a script that starts other scripts runs once
    effects = [effect for unit in program.reach.units for effect in _effects(program, unit)]
    own = {effect.node for effect in effects if not effect.elsewhere}
    told: set[cst.CSTNode] = set()
    for unit, node, verb, elsewhere in effects:
        statement = unit.names.statement(node)
        if (
            statement in told
            or (elsewhere and not own.isdisjoint(program.reach.runs(node, unit)))
            or not program.is_parallel(unit, node)
            or once(program, unit, node, finds=verb in ("downloads", "creates"))
            or _acts_once(program, unit, node)
            or _own(program, unit, node)
            or _cleans_up(program, unit, node)
        ):
            continue
        told.add(statement)
        yield unit, _told(program, unit, node, verb)


def _told(program: AuditedProgram, unit: Unit, node: cst.CSTNode, verb: str) -> Finding:
    """What is wrong with an effect."""
    acting = _acting(program, unit, node)
    text = first_row(unit, acting)
    if verb == "writes" and _creates(program, node) and only_if_missing(program, unit, node):
        verb = "creates"
    where = " where it is missing" if verb == "creates" else ""
    severity = Severity.ERROR if verb == "writes" else Severity.REVIEW
    wait = ", or under a name of each process's own" if verb == "writes" else ", and let the others wait"
    words = f"every process {verb} this{where}: `{text}`"
    return Finding("unguarded-write", node, words, f"do it on the main process alone{wait}", severity)


class _AuditedEffect(NamedTuple):
    """Something that happens outside the process."""

    unit: Unit
    node: cst.CSTNode
    verb: str
    elsewhere: bool = False
    """It is a question for a file; what creates that is an effect of its own, if it was found."""


def _effects(program: AuditedProgram, unit: Unit) -> Iterator[_AuditedEffect]:
    """What a module writes, fetches and tracks."""
    for call in unit.names.calls:
        record = program.state.calls.get(call)
        if record is not None and outside_name(record) == "torch.save":
            reached = unit.names.function(call) in program.reach.reachable and program.unfollowed is None
            if reached and not into_memory(program.state, unit, program.reach, call):
                yield _AuditedEffect(unit, call, "writes")
    found = program.outputs[unit]
    for effect in found.effects:
        calls = [n for n in descendants(effect.node) if isinstance(n, cst.Call)]
        if effect.kind in _ONCE and not any(_is_quiet(program, effect.kind, call) for call in calls):
            verb = "creates" if effect.creates else _ONCE[effect.kind]
            yield _AuditedEffect(unit, effect.node, verb, effect.guarded)
    for handle in found.handles:
        if handle.tracker and not handle.each_machine:
            yield _AuditedEffect(unit, handle.call, "writes")


def _acting(program: AuditedProgram, unit: Unit, node: cst.CSTNode) -> cst.CSTNode:
    """What does the work in a statement of several rows: what fetches or writes, or the row that calls it."""
    if not isinstance(node, _OF_ROWS):
        return node
    parts = (node.body, node.orelse) if isinstance(node, cst.If) else (node.body, *node.handlers, node.orelse)
    blocks = [part.body if isinstance(part, (cst.Else, cst.ExceptHandler)) else part for part in parts if part]
    rows = [row for block in blocks for row in (block.body if isinstance(block, cst.IndentedBlock) else (block,))]
    for row in rows:
        for part in descendants(row):
            entered = [item.item for item in part.items] if isinstance(part, cst.With) else [part]
            if any(_acts(program, one) for one in entered):
                return part
    for row in rows:
        called = (f for part in descendants(row) if isinstance(part, cst.Call) for f in program.reach.called(part))
        if any(_acts(program, one) for function in called for one in program.reach.runs(function.body, unit)):
            return row
    return node


def _acts(program: AuditedProgram, node: cst.CSTNode) -> bool:
    """Whether a call brings or creates a file."""
    record = program.state.calls.get(node) if isinstance(node, cst.Call) else None
    if record is None or method_name(record.node) in _QUIET:
        return False
    name = outside_name(record)
    opened = surroundings.opens(name) and opens_to_write(program.state, record.node, 1)
    return opened or surroundings.writes(name) or _brings(program, record.node)


def _brings(program: AuditedProgram, node: cst.CSTNode) -> bool:
    """Whether a statement downloads or unpacks something."""
    for call in (n for n in descendants(node) if isinstance(n, cst.Call) and n in program.state.calls):
        name = outside_name(program.state.calls[call])
        if surroundings.fetches(name) or method_name(call) in ("extract", "extractall"):
            return True
    return False


def _creates(program: AuditedProgram, node: cst.CSTNode) -> bool:
    """Whether a statement only creates files: it adds to none, and neither moves nor removes any."""
    for call in (n for n in descendants(node) if isinstance(n, cst.Call) and n in program.state.calls):
        names = (outside_name(program.state.calls[call]), f"pathlib.Path.{method_name(call)}")
        mode = keyword(call, "mode", 1)
        adds = isinstance(mode, cst.SimpleString) and "a" in str(mode.evaluated_value)
        if any(map(surroundings.takes_away, names)) or (surroundings.opens(names[0]) and adds):
            return False
    return True


def _acts_once(program: AuditedProgram, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether all that a statement of several rows writes is written by one process."""
    acting = [n for n in descendants(node) if _acts(program, n)] if isinstance(node, _OF_ROWS) else []
    return bool(acting) and all(program.guards.comes_alone(unit, each) for each in acting)


def _cleans_up(program: AuditedProgram, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a statement removes what a download has left: that is a part of the download."""
    if _creates(program, node):
        return False
    below = node
    for around in unit.names.ancestors(node):
        if isinstance(around, cst.Try) and below is not around.body and _brings(program, around.body):
            return True
        below = around
    return False


def _is_quiet(program: AuditedProgram, kind: EffectKind, call: cst.Call) -> bool:
    """Whether all processes may make a call: because it is safe to repeat, or because the model is sharded."""
    name = method_name(call)
    if kind is not EffectKind.WRITE:  # caches of weights are written under temporary names, then renamed
        given = [keyword(call, word) for word in ("pretrained", "weights")]
        return name.startswith(("load_state_dict_from", "from_pretrained", "load_dataset", "create_model")) or any(
            given
        )
    return name in _QUIET or (name == "save_pretrained" and program.unfollowed is not None)


def _own(program: AuditedProgram, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether the written path is this process's own, by its rank or otherwise, or nothing is written elsewhere."""
    if isinstance(node, cst.With):
        node = node.items[0].item
    acting = [n for n in descendants(node) if _acts(program, n)] if isinstance(node, _OF_ROWS) else []
    for paths in (paths for part in acting or [node] for paths in _paths(program, part)):
        if paths and is_own(program, unit, paths[0]):
            return True
        for path in paths:
            held = origins(program.state.values.get(path))
            if not any(o.role not in (Role.PLACE, Role.LOCAL) for o in held) and program.ranks.mentions(unit, path):
                return True
    return False


def _paths(program: AuditedProgram, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, ...]]:
    """What the calls in a node may write: of a call that is in another, only if it is in what that writes."""
    if isinstance(node, cst.Call):
        paths = written(program.state, node)
        if method_name(node) not in ("local_path", "exists"):
            yield paths
        inside: Iterable[cst.CSTNode] = paths
    else:
        inside = children(node)
    for child in inside:
        yield from _paths(program, child)


RULE = AuditRule("unguarded-write", __doc__, unguarded_writes)
