"""
Decisions that could fall differently on each process: a step skipped, a loop left, a rate lowered on a value of one's
own shard of the data.

The others would wait for the one that left, or train on with another rate. Where the value is a loss, it is averaged
over the processes first; a script whose decisions depend on anything else is not migrated until a person has said how
the processes decide together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from ...facts.reasons.decisions import Agreement, Decided, Differs, Doubt, LocalDecision
from ...facts.roles import Origin, Role
from ...facts.torch_api import process_calls, surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.met import Met
from ..dataflow.values import CallRecord, State, Unit, origins
from ..syntax.names import LONGEST
from ..syntax.nodes import keyword
from ..syntax.spots import Spots
from ..syntax.walk import children, descendants, nodes_in
from ..training.own_rates import own_rates
from ..training.step_counts import limits
from ..training.training import Training
from .collated_rows import keeps_rows
from .divergence import Equality
from .turns import Turns, counted_by, filters, turns

_CHOOSING = (cst.If, cst.While, cst.IfExp, cst.BooleanOperation, cst.Match)
"""What runs a part of itself, or not, by a value."""
Loop = cst.For | cst.CompFor
Choosing = cst.If | cst.While | cst.IfExp | cst.BooleanOperation | cst.Match
_SETTINGS = ("lr", "momentum", "weight_decay")
_OTHER_CODE = (cst.FunctionDef, cst.Lambda, cst.ClassDef)


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
        self._taking = Met(reach, (r.node for r in state.calls.values() if _takes_weights(r)))
        self._branchings: dict[cst.CSTNode, Decision | None] = {}
        self._jumps: dict[tuple[cst.CSTNode, bool], frozenset[str]] = {}

    def runs(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The first thing that all must do together among what runs with a node."""
        return self._together.first(node)

    def saves(self, node: cst.CSTNode) -> bool:
        """Whether a checkpoint is saved by what runs with a node."""
        return self._saving.first(node) is not None

    def saves_weights(self, node: cst.CSTNode) -> bool:
        """Whether what runs with a node saves weights: if they are sharded, each process gives its part of them."""
        return self.saves(node) and self._taking.first(node) is not None

    def rates(self, unit: Unit) -> Spots:
        """Where a module sets a learning rate."""
        kinds = (cst.Assign, cst.AugAssign, cst.Call)
        return self._spots(
            "rates",
            unit,
            lambda: (r.node for r in own_rates(self.reach, unit, list(unit.names.every(*kinds)), _SETTINGS)),
        )

    def losses(self, unit: Unit) -> Spots:
        """Where a module gives a loss another value."""
        kinds = (cst.Assign, cst.AugAssign)
        return self._spots(
            "losses", unit, lambda: (n for n in unit.names.every(*kinds) if _gives_loss(self.state, unit, n))
        )

    def ends(self, unit: Unit) -> Spots:
        """Where a module ends the process."""
        return self._spots("ends", unit, lambda: (call for call in unit.names.calls if _ends(self.state, call)))

    def _spots(self, what: str, unit: Unit, find: Callable[[], Iterable[cst.CSTNode]]) -> Spots:
        return self.state.once((Joint, what, unit.names), lambda: Spots(unit.names, find()))

    def jumps(self, node: cst.CSTNode, inner: bool) -> frozenset[str]:
        """What is left by the jumps in some code, as ``jumps`` says it."""
        if (node, inner) not in self._jumps:
            found = dict.fromkeys(_jump(node, inner))
            if not isinstance(node, _OTHER_CODE):
                within = inner or isinstance(node, (cst.For, cst.While))
                found.update(dict.fromkeys(word for child in children(node) for word in self.jumps(child, within)))
            self._jumps[node, inner] = frozenset(found)
        return self._jumps[node, inner]

    def branching(self, unit: Unit, node: Choosing) -> Decision | None:
        """What a condition decides that all processes must do alike; None where they may part."""
        if node not in self._branchings:
            self._branchings[node] = _branching(unit, node, self)
        return self._branchings[node]


def joint_of(equality: Equality) -> Joint:
    """What all must do together, with what is equal on them: one for all that ask."""
    state, training = equality.state, equality.training
    return state.once((Joint, equality), lambda: Joint(state, equality.reach, training, equality))


def _takes_weights(record: CallRecord) -> bool:
    return method_name(record.node) == "state_dict" and bool(origins(record.receiver, Role.MODEL))


def _is_collective(record: CallRecord) -> bool:
    return method_name(record.node) in process_calls.together() and bool(origins(record.receiver, Role.ACCELERATOR))


@dataclass(frozen=True)
class Decision:
    """Something that all processes must decide alike."""

    value: cst.BaseExpression
    """What it depends on."""
    node: cst.CSTNode
    what: Decided
    """What depends on it."""
    hangs: bool = True
    """The processes would hang, or train on with other rates; else only what is saved or chosen would differ."""
    weights: bool = False
    """It does not hang as long as no weights are sharded: it saves them."""
    doubt: Doubt = Doubt.NONE
    """Whether the processes decide differently at all."""


def deciding(
    unit: Unit, reach: Reach, joint: Joint, differs: Callable[[Unit, cst.CSTNode], bool], *, split: bool = False
) -> Iterator[Decision]:
    """The decisions of a module whose value ``differs``: steps, learning rates, checkpoints, the choice of a loss.

    ``split``: each batch is split between the processes, so that they may have different numbers of rows.
    """
    for node in unit.names.every(*_CHOOSING):
        if isinstance(node, _CHOOSING) and unit.names.function(node) in reach.reachable:
            found = joint.branching(unit, node)
            if found is not None and differs(unit, found.value):
                yield found
    for node in unit.names.every(cst.For, cst.CompFor):
        if unit.names.function(node) in reach.reachable:
            yield from _turning(unit, node, joint, differs, split)
    for record in joint.training.ticks:
        for arg in record.node.args if record.unit is unit else ():
            if differs(unit, arg.value):
                yield Decision(arg.value, record.node, Decided.RATE)
    for value, node in _rates(unit, reach):
        if differs(unit, value):
            yield Decision(value, node, Decided.COMPUTED_RATE)


def undecided(
    unit: Unit,
    found: Decision,
    why: Differs,
    remedy: Agreement,
    source: cst.CSTNode | None = None,
    *,
    draw: str = "",
) -> LocalDecision:
    """The finding for a decision on a value that differs; ``source`` is where what differs comes from."""
    text = spelled(unit, found.value)
    return LocalDecision(found.node, found.value, text, found.what, found.hangs, found.doubt, why, remedy, source, draw)


def _branching(unit: Unit, node: Choosing, joint: Joint) -> Decision | None:
    """What a condition decides that all processes must do alike; None where they may part."""
    value, branches = _chosen(node)
    again = [value] if isinstance(node, cst.While) else []  # asked once more, after each turn
    runs = any(joint.runs(branch) is not None for branch in (*branches, *again))
    if runs or leaves(unit, node, branches, joint):
        return Decision(value, node, Decided.STEP)
    if any(map(joint.rates(unit).below, branches)):
        return Decision(value, node, Decided.CHANGED_RATE)
    if any(map(joint.saves, branches)):
        weights = any(map(joint.saves_weights, branches))
        return Decision(value, node, Decided.CHECKPOINT, hangs=False, weights=weights)
    if any(map(joint.losses(unit).below, branches)):
        return Decision(value, node, Decided.LOSS, hangs=False)
    return None


def _chosen(node: Choosing) -> tuple[cst.BaseExpression, list[cst.CSTNode]]:
    """The value by which something chooses, and the parts of it that run, or do not."""
    if isinstance(node, cst.BooleanOperation):
        return node.left, [node.right]
    if isinstance(node, cst.Match):
        return node.subject, [case.body for case in node.cases]
    return node.test, [node.body, *([node.orelse] if node.orelse is not None else [])]


def _turning(
    unit: Unit, loop: Loop, joint: Joint, differs: Callable[[Unit, cst.CSTNode], bool], split: bool
) -> Iterator[Decision]:
    """What a loop goes through, where that decides how many steps all processes take together."""
    if loop in joint.equality.shared:
        if filters(joint.state, loop):
            yield Decision(loop.iter, loop, Decided.LOOP)
        numbers = [number for _, number in limits(unit, loop.iter)]
        yield from (Decision(each, loop, Decided.LOOP) for each in numbers if differs(unit, each))
        return
    if not differs(unit, loop.iter) or not any(joint.runs(part) is not None for part in _turned(unit, loop)):
        return
    if not joint.equality.is_local(unit, loop.iter):  # by no row of a batch
        counted = list(counted_by(joint.state, loop.iter))
        yield from (Decision(each, loop, Decided.LOOP) for each in counted if differs(unit, each))
        return
    found = turns(joint.state, unit, loop)
    if found is Turns.ROWS and not all(has_one_size(joint, batch) for batch in _batches(joint, loop)):
        found = Turns.UNCLEAR
    if found is Turns.UNCLEAR:
        yield Decision(loop.iter, loop, Decided.LOOP, hangs=False, doubt=Doubt.NUMBERS)
    elif found is Turns.OWN or (found is Turns.ROWS and split):
        yield Decision(loop.iter, loop, Decided.LOOP)


def _turned(unit: Unit, loop: Loop) -> Iterator[cst.CSTNode]:
    """What runs in each turn of a loop, or of a comprehension."""
    if isinstance(loop, cst.For):
        yield loop.body
        return
    comprehension = next(a for a in unit.names.ancestors(loop) if isinstance(a, cst.BaseComp))
    if isinstance(comprehension, cst.DictComp):
        yield comprehension.key
    yield comprehension.value if isinstance(comprehension, cst.DictComp) else comprehension.elt  # type: ignore


def _batches(joint: Joint, loop: Loop) -> Iterator[Origin]:
    """The batches that what a loop goes through is made of."""
    for node in descendants(loop.iter):
        yield from origins(joint.state.values.get(node), Role.BATCH)


def has_one_size(joint: Joint, batch: Origin) -> bool:
    """Whether a prepared loader gives a batch, with as many rows on all processes."""
    call = batch.source.node if batch.source is not None else None
    prepared = {o for loop in joint.equality.shared for o in joint.reach.loaders(loop)}
    if batch.source not in prepared or not isinstance(call, cst.Call) or any(arg.star for arg in call.args):
        return False
    collate = keyword(call, "collate_fn", 6)
    return keyword(call, "batch_sampler", 4) is None and (collate is None or keeps_rows(joint.reach, collate))


def spelled(unit: Unit, node: cst.CSTNode) -> str:
    """The code of a value, where it is short enough for a sentence; else the variables in it."""
    text = unit.names.one_line(node)
    if len(text) <= LONGEST:
        return f"`{text}`"
    names = (n for n in nodes_in(node, cst.Name) if n in unit.names.within and unit.names.binding(n) is not None)
    return f"an expression of {' and '.join(dict.fromkeys(f'`{name.value}`' for name in names))}"


def _gives_loss(state: State, unit: Unit, node: cst.Assign | cst.AugAssign) -> bool:
    """Whether a statement gives a loss another value."""
    targets = [t.target for t in node.targets] if isinstance(node, cst.Assign) else [node.target]
    for target in targets:
        binding = unit.names.binding(target) if isinstance(target, cst.Name) else None
        if binding is not None and origins(state.binding(binding), Role.LOSS):
            return True
    return False


def _rates(unit: Unit, reach: Reach) -> Iterator[tuple[cst.BaseExpression, cst.CSTNode]]:
    """The values that become a learning rate: ``group["lr"] = ...``."""
    every = unit.names.every(cst.Assign, cst.AugAssign, cst.Call)
    run = [node for node in every if unit.names.function(node) in reach.reachable]
    yield from ((rate.value, rate.node) for rate in own_rates(reach, unit, run, _SETTINGS))


def leaves(unit: Unit, node: cst.CSTNode, branches: Sequence[cst.CSTNode], joint: Joint) -> bool:
    """Whether a branch of a statement leaves a loop, a function or the program while all processes work together."""
    words = {word for branch in branches for word in joint.jumps(branch, inner=isinstance(node, cst.While))}
    if any(map(joint.ends(unit).below, branches)):
        loops = list(unit.names.enclosing(node, cst.For, cst.While))
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
    record = state.calls.get(node) if isinstance(node, cst.Call) else None
    return record is not None and surroundings.ends_process(outside_name(record))


def _jump(node: cst.CSTNode, inner: bool) -> Iterator[str]:
    if isinstance(node, cst.Return):
        yield "function"
    elif isinstance(node, cst.Yield):
        yield "consumer"
    elif isinstance(node, (cst.Break, cst.Continue)) and not inner:
        yield "loop"


def jumps(node: cst.CSTNode, inner: bool = False) -> Iterator[str]:
    """What is left by the jumps in some code; ``inner``: it is in a loop of its own."""
    yield from _jump(node, inner)
    if isinstance(node, _OTHER_CODE):
        return
    inner = inner or isinstance(node, (cst.For, cst.While))
    for child in children(node):
        yield from jumps(child, inner)
