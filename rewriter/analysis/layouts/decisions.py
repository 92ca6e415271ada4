"""
Decisions that could fall differently on each process: a step skipped, a loop left, a rate lowered on a value of one's
own shard of the data.

The others would wait for the one that left, or train on with another rate. Where the value is a loss, it is averaged
over the processes first; a script whose decisions depend on anything else is not migrated until a person has said how
the processes decide together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from ...findings import Finding, Severity
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.met import Met
from ..dataflow.values import CallRecord, State, Unit, origins
from ..syntax.definitions import plain_values
from ..syntax.nodes import is_zero, keyword
from ..syntax.walk import children, descendants
from ..training.training import Training
from .batch_shapes import row_counts
from .collated_rows import keeps_rows
from .divergence import Equality
from .loop_layouts import layouts_of
from .losses import Reducer
from .turns import Turns, filters, turns

_SHARD = "which each process computes from its own shard of the data"
_REMEDY = "decide on a value that is equal on all processes: accelerator.reduce(...)"
_OF_MAIN = "each process reads the clock, or the memory of its device, by itself: the main process decides for all"
_OWN_CLOCK = "which each process reads by itself (the clock, the memory of its device)"
_DECIDED = "let the main process decide: broadcast_object_list([value])[0]"
_TESTED = (cst.If, cst.While)
_LONGEST = 60
"""Longer code is not repeated in a finding."""
_BECAUSE = "all processes must decide alike, and each holds only its shard"


class Joint:
    """What all processes must do together: a branch that runs it must be taken by all of them or by none."""

    def __init__(self, state: State, reach: Reach, training: Training, equality: Equality) -> None:
        self.state, self.reach, self.training, self.equality = state, reach, training, equality
        nodes: set[cst.CSTNode] = {r.node for r in (*training.backwards, *training.steps, *training.ticks)}
        nodes.update(equality.shared)
        nodes.update(record.node for record in state.calls.values() if _is_collective(record))
        self._together = Met(reach, nodes)
        saving = (r.node for r in state.calls.values() if outside_name(r) == "torch.save")
        self._saving = Met(reach, saving)
        self._branchings: dict[cst.CSTNode, Decision | None] = {}

    def runs(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The first thing that all must do together among what runs with a node."""
        return self._together.first(node)

    def saves(self, node: cst.CSTNode) -> bool:
        """Whether a checkpoint is saved by what runs with a node."""
        return self._saving.first(node) is not None

    def branching(self, unit: Unit, node: cst.If | cst.While) -> Decision | None:
        """What a condition decides that all processes must do alike; None where they may part."""
        if node not in self._branchings:
            self._branchings[node] = _branching(unit, node, self)
        return self._branchings[node]


def joint_of(equality: Equality) -> Joint:
    """What all must do together, with what is equal on them: one for all that ask."""
    state, training = equality.state, equality.training
    return state.once((Joint, equality), lambda: Joint(state, equality.reach, training, equality))


def _is_collective(record: CallRecord) -> bool:
    return method_name(record.node) in questions.together() and bool(origins(record.receiver, Role.ACCELERATOR))


@dataclass(frozen=True)
class Decision:
    """Something that all processes must decide alike."""

    value: cst.BaseExpression
    """What it depends on."""
    node: cst.CSTNode
    what: str
    """What depends on it, in words that go on with the value."""
    then: str = ""
    """What happens where processes decide differently."""
    hangs: bool = True
    """The processes would hang, or train on with other rates; else only what is saved or chosen would differ."""


def deciding(
    unit: Unit, reach: Reach, joint: Joint, differs: Callable[[Unit, cst.CSTNode], bool], *, split: bool = False
) -> Iterator[Decision]:
    """The decisions of a module whose value ``differs``: steps, learning rates, checkpoints, the choice of a loss.

    ``split``: each batch is split between the processes, so that they may have different numbers of rows.
    """
    for node in unit.names.every(cst.If, cst.While):
        if isinstance(node, (cst.If, cst.While)) and unit.names.function(node) in reach.reachable:
            found = joint.branching(unit, node)
            if found is not None and differs(unit, node.test):
                yield found
    for node in unit.names.every(cst.For):
        if isinstance(node, cst.For) and unit.names.function(node) in reach.reachable:
            if (found := _turning(unit, node, joint, differs, split)) is not None:
                yield found
    for record in joint.training.ticks:
        for arg in record.node.args if record.unit is unit else ():
            if differs(unit, arg.value):
                yield Decision(arg.value, record.node, "the learning rate depends on")
    for value, node in _rates(unit, reach):
        if differs(unit, value):
            yield Decision(value, node, "the learning rate is computed from")


def decisions(
    state: State, unit: Unit, reach: Reach, training: Training, equality: Equality, *, split: bool = False
) -> Iterator[Gather | Finding]:
    """
    What becomes of the local decisions of a module: a loss that is reduced first, or a finding.

    ``split``: each batch is split between the processes, so that they may have different numbers of rows.
    """
    reducer = Reducer(state, training, equality)
    joint = joint_of(equality)
    for found in deciding(unit, reach, joint, equality.is_local, split=split):
        node = found.node
        if isinstance(node, cst.If) and found.hangs and not split and _asks_rows(joint, unit, node.test):
            yield _of_rows(unit, node)
            continue
        gathers = reducer.whole(unit, found.value, _BECAUSE)
        if not gathers:  # none, where lists are filled with what is one's own
            yield undecided(unit, found, _SHARD, _REMEDY)
        else:
            yield from gathers
    yield from _by_the_clock(state, unit, reach, joint)


def _by_the_clock(state: State, unit: Unit, reach: Reach, joint: Joint) -> Iterator[Gather | Finding]:
    """What is decided by the time that has passed, or the memory of a device: the main process decides for all."""
    if not any(questions.is_per_process(outside_name(record)) for record in state.calls.values()):
        return
    plain, timed = joint.equality, joint.equality.timed

    def differs(unit: Unit, node: cst.CSTNode) -> bool:
        return timed.is_local(unit, node) and not plain.is_local(unit, node)

    agreed: list[cst.CSTNode] = []
    for found in deciding(unit, reach, joint, differs):
        around = [a.test for a in unit.names.enclosing(found.value, cst.If, cst.While) if isinstance(a, _TESTED)]
        come = not any(timed.is_local(unit, test) for test in around if test not in (found.value, *agreed))
        if isinstance(found.node, _TESTED) and found.hangs and come:
            agreed.append(found.value)
            yield Gather(found.value, (), _OF_MAIN, form=Form.RECEIVE)
        elif found.hangs:
            yield undecided(unit, found, _OWN_CLOCK, _DECIDED)


def undecided(unit: Unit, found: Decision, why: str, remedy: str) -> Finding:
    """The finding for a decision on a value that differs; ``why`` goes on from the value."""
    cause = f"{found.what} {_told(unit, found.value)}, {why}{found.then}"
    severity = Severity.BLOCKED if found.hangs else Severity.REVIEW
    return Finding("local-decision", found.node, cause, remedy, severity)


def _branching(unit: Unit, node: cst.If | cst.While, joint: Joint) -> Decision | None:
    """What a condition decides that all processes must do alike; None where they may part."""
    branches = [node.body, *([node.orelse] if node.orelse is not None else [])]
    runs = any(joint.runs(branch) is not None for branch in branches)
    if runs or any(_changes_rate(branch) for branch in branches) or leaves(unit, node, branches, joint):
        return Decision(node.test, node, "whether this step continues depends on", ": the processes would hang")
    if any(map(joint.saves, branches)):
        then = ": the main process decides"
        return Decision(node.test, node, "whether a checkpoint is saved depends on", then, hangs=False)
    if any(_chooses_loss(joint.state, unit, branch) for branch in branches):
        then = ": their losses may differ"
        return Decision(node.test, node, "the choice of the loss depends on", then, hangs=False)
    return None


def _turning(
    unit: Unit, loop: cst.For, joint: Joint, differs: Callable[[Unit, cst.CSTNode], bool], split: bool
) -> Decision | None:
    """What a loop goes through, where that decides how many steps all processes take together."""
    what, then = "how many steps this loop takes depends on", ": the processes would hang"
    if loop in joint.equality.shared:
        return Decision(loop.iter, loop, what, then) if filters(joint.state, loop) else None
    if not differs(unit, loop.iter) or joint.runs(loop.body) is None:
        return None
    found = turns(joint.state, unit, loop)
    if found is Turns.ROWS and not all(_has_one_size(joint, batch) for batch in _batches(joint, loop)):
        found = Turns.UNCLEAR
    if found is Turns.UNCLEAR:
        return Decision(loop.iter, loop, what, f"{then}, if the numbers differ", hangs=False)
    return Decision(loop.iter, loop, what, then) if found is Turns.OWN or (found is Turns.ROWS and split) else None


def _batches(joint: Joint, loop: cst.For) -> Iterator[Origin]:
    """The batches that what a loop goes through is made of."""
    for node in descendants(loop.iter):
        yield from origins(joint.state.values.get(node), Role.BATCH)


def _asks_rows(joint: Joint, unit: Unit, test: cst.BaseExpression) -> bool:
    """Whether all that is one process's own in a condition is the number of rows of a batch that has always as many
    rows on all processes: of a loader with batches of one size, which fills up a short last one."""
    names = joint.equality.local_names(unit, test)
    if any(layouts.counts_chosen(test) for layouts in layouts_of(joint.state).around(unit, test)):
        return False
    return bool(names) and all(_is_row_count(joint, unit, name) for name in names)


def _is_row_count(joint: Joint, unit: Unit, name: cst.Name) -> bool:
    parents = unit.names.parents
    if (shape := _first_of(unit, name)) is not None:  # ``rows, width = x.shape``
        inner = joint.equality.local_names(unit, shape)
        return len(inner) == 1 and _is_of_one_size(joint, inner[0])
    values = plain_values(unit.names, name)
    if len(values) == 1:  # ``rows = x.size(0)``
        inner = joint.equality.local_names(unit, values[0])
        return len(inner) == 1 and _is_row_count(joint, unit, inner[0])
    if not _is_of_one_size(joint, name):
        return False
    parent = parents[name]
    if isinstance(parent, cst.Arg):
        call = parents[parent]
        return isinstance(call, cst.Call) and method_name(call) == "len"
    if not isinstance(parent, cst.Attribute) or parent.attr.value not in ("size", "shape"):
        return False
    sizes = parents[parent] if parent.attr.value == "size" else parent
    if isinstance(sizes, cst.Call) and sizes.args:
        return is_zero(sizes.args[0].value)
    at = parents[sizes]
    index = at.slice[0].slice if isinstance(at, cst.Subscript) and len(at.slice) == 1 else None
    return isinstance(index, cst.Index) and is_zero(index.value)


def _first_of(unit: Unit, name: cst.Name) -> cst.BaseExpression | None:
    """The sizes of a tensor of which a variable is given the first alone."""
    binding = unit.names.binding(name)
    definitions = binding.definitions if binding is not None else ()
    counts = row_counts(unit, unit.names.statement(definitions[0])) if len(definitions) == 1 else ()
    found = (c.assign.value for c in counts if c.binding is binding and c.form == "first of sizes")
    return next(found, None)


def _is_of_one_size(joint: Joint, name: cst.Name) -> bool:
    batches = origins(joint.state.values.get(name), Role.BATCH)
    return bool(batches) and all(_has_one_size(joint, batch) for batch in batches)


def _has_one_size(joint: Joint, batch: Origin) -> bool:
    """Whether a prepared loader gives a batch, with as many rows on all processes."""
    call = batch.source.node if batch.source is not None else None
    prepared = {o for loop in joint.equality.shared for o in joint.reach.loaders(loop)}
    if batch.source not in prepared or not isinstance(call, cst.Call) or any(arg.star for arg in call.args):
        return False
    collate = keyword(call, "collate_fn", 6)
    return keyword(call, "batch_sampler", 4) is None and (collate is None or keeps_rows(joint.reach, collate))


def _of_rows(unit: Unit, node: cst.If) -> Finding:
    """What is said of a step that is left out where a batch is short: all processes leave it out, or none."""
    return Finding(
        "local-decision",
        node,
        f"whether this step continues depends on {_told(unit, node.test)}: a short last batch is filled up on N "
        "processes, so that all of them train on it; with split batches each process has its shard of the rows, "
        "and never as many as the script's batch",
        "for the same steps use drop_last=True; with split batches leave out this condition",
        Severity.REVIEW,
    )


def _told(unit: Unit, node: cst.CSTNode) -> str:
    """The code of a value, where it is short enough for a sentence."""
    text = unit.names.one_line(node)
    return f"`{text}`" if len(text) <= _LONGEST else "a value"


def _chooses_loss(state: State, unit: Unit, branch: cst.CSTNode) -> bool:
    """Whether a branch gives a loss another value."""
    for node in descendants(branch):
        targets = [t.target for t in node.targets] if isinstance(node, cst.Assign) else []
        targets += [node.target] if isinstance(node, cst.AugAssign) else []
        for target in targets:
            binding = unit.names.binding(target) if isinstance(target, cst.Name) else None
            if binding is not None and origins(state.binding(binding), Role.LOSS):
                return True
    return False


def _rates(unit: Unit, reach: Reach) -> Iterator[tuple[cst.BaseExpression, cst.CSTNode]]:
    """The values that become a learning rate: ``group["lr"] = ...``."""
    for node in unit.names.every(cst.Assign, cst.AugAssign):
        if isinstance(node, (cst.Assign, cst.AugAssign)) and unit.names.function(node) in reach.reachable:
            if _is_rate(node):
                yield node.value, node


def _is_rate(node: cst.CSTNode) -> bool:
    targets = [t.target for t in node.targets] if isinstance(node, cst.Assign) else []
    targets += [node.target] if isinstance(node, cst.AugAssign) else []
    for target in targets:
        index = target.slice[0].slice if isinstance(target, cst.Subscript) else None
        word = index.value if isinstance(index, cst.Index) else None
        if isinstance(word, cst.SimpleString) and word.evaluated_value in ("lr", "momentum", "weight_decay"):
            return True
    return False


def _changes_rate(branch: cst.CSTNode) -> bool:
    return any(_is_rate(node) for node in descendants(branch))


def leaves(unit: Unit, node: cst.CSTNode, branches: Sequence[cst.CSTNode], joint: Joint) -> bool:
    """Whether a branch of a statement leaves a loop, a function or the program while all processes work together."""
    words = {word for branch in branches for word in _jumps(branch, inner=isinstance(node, cst.While))}
    if any(_ends(joint.state, part) for branch in branches for part in descendants(branch)):
        loops = [a for a in unit.names.enclosing(node, cst.For, cst.While) if isinstance(a, (cst.For, cst.While))]
        if any(joint.runs(loop.body) is not None for loop in loops):
            return True
    if "loop" in words:
        loop = next(unit.names.enclosing(node, cst.For, cst.While), None)
        if isinstance(loop, (cst.For, cst.While)):
            return joint.runs(loop.body) is not None or loop in joint.equality.shared
    if "consumer" in words:
        function = unit.names.function(node)
        sites = [(joint.state.calls[site].unit, site) for site in joint.reach.sites(function)]
        if any(_steps_with(joint, home, site) for home, site in sites):
            return True
    if "function" in words:
        code = unit.names.function(node)
        body = code.body if isinstance(code, (cst.FunctionDef, cst.Lambda)) else code
        return joint.runs(body) is not None
    return False


def _steps_with(joint: Joint, unit: Unit, site: cst.Call) -> bool:
    """Whether a loop goes through what a generator yields, and all processes work together in its turns."""
    for around, below in unit.names.outwards(site):
        if isinstance(around, cst.For):
            return below is around.iter and (around in joint.equality.shared or joint.runs(around.body) is not None)
    return False


def _ends(state: State, node: cst.CSTNode) -> bool:
    """Whether a call ends the process without an error that would end the others: ``exit()``, ``sys.exit()``."""
    if not isinstance(node, cst.Call):
        return False
    record = state.calls.get(node)
    name = outside_name(record) if record is not None else ""
    return name in ("sys.exit", "os._exit") or (isinstance(node.func, cst.Name) and node.func.value in ("exit", "quit"))


def _jumps(node: cst.CSTNode, inner: bool) -> Iterator[str]:
    if isinstance(node, cst.Return):
        yield "function"
    elif isinstance(node, cst.Yield):
        yield "consumer"
    elif isinstance(node, (cst.Break, cst.Continue)) and not inner:
        yield "loop"
    if isinstance(node, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
        return
    inner = inner or isinstance(node, (cst.For, cst.While))
    for child in children(node):
        yield from _jumps(child, inner)
