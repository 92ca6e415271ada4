"""
Batches that a script makes without a loader: random draws, slices, columns of a text, the whole data at once.

Where a batch comes from suggests where it can be cut into shards. A suggestion counts only if the interpreter, which
takes it for granted and goes through the whole training, finds that each loss is a mean or a sum over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from ....facts.module import Gather, HandBatch, ShardCount
from ....facts.reasons import Reason
from ....facts.reasons.batches import ShardedBatch, ShownShard
from ....facts.roles import Role
from ....facts.torch_api import questions
from ...dataflow.call_graph import Reach
from ...dataflow.callees import method_name, outside_names
from ...dataflow.values import CallRecord, State, Unit, origins
from ...syntax.scopes import Binding
from ...training.training import Training
from ..engine.layout import Layout, Partial, Shard, Unclear, inner
from ..loop_layouts import layouts_of
from .cuts import Cut
from .suggestions import Suggestions
from .trainings import HandTraining, of_each_model, trainings, unfed
from .trial import Obstacle, Trial, TrialOutcome


@dataclass
class ShardedBatches:
    """How the batches of a program are cut into shards."""

    batches: list[tuple[Unit, HandBatch]] = field(default_factory=list)
    counts: list[tuple[Unit, ShardCount]] = field(default_factory=list)
    loops: list[cst.CSTNode] = field(default_factory=list)
    shards: list[cst.CSTNode] = field(default_factory=list)
    """Expressions that give the rows of one process."""
    gathers: list[tuple[Unit, Gather]] = field(default_factory=list)
    """What is made in the training and read as a whole after it."""
    findings: list[tuple[Unit, Reason]] = field(default_factory=list)
    beside_loaders: bool = False
    """Another training of the program has its batches from a loader."""

    def add(self, other: ShardedBatches, loops: Sequence[cst.CSTNode]) -> None:
        """Take in the batches of another training."""
        self.batches += other.batches
        self.counts += other.counts
        self.shards += other.shards
        self.gathers += other.gathers
        self.findings += other.findings
        self.loops += loops


def batches_by_hand(state: State, reach: Reach, training: Training, able: bool) -> ShardedBatches | Obstacle | None:
    """
    How the batches of the trainings without a loader are cut; why they cannot be; None where there are none.

    Args:
        state: the solved program.
        reach: its call graph.
        training: what it trains.
        able: the runtime that the migrated script calls can cut batches.
    """
    found = ShardedBatches(beside_loaders=bool(training.train_loops))
    done = [r for r in state.calls.values() if method_name(r.node) == "shard_batch" and _is_ours(r)]
    played = next((r for r in state.calls.values() if any(map(questions.plays, outside_names(r)))), None)
    if played is not None:
        reason, keep = "an environment is played, and each process would play its own", "keep it on one device"
        return Obstacle(played.unit, played.node, reason, remedy=keep, plays=True)
    for each in unfed(reach, training, trainings(state, reach, training)):
        if done:
            found.loops += each.steps
            continue
        one = _of_one(state, reach, training, each, found.beside_loaders)
        if not isinstance(one, ShardedBatches):
            return one
        if not able:
            unit, batch = one.batches[0]
            return Obstacle(
                unit, batch.node, "Accelerate has no method for it", remedy="migrate with --target torchlift"
            )
        found.add(one, each.steps)
    return found if found.loops else None


def _of_one(
    state: State, reach: Reach, training: Training, whole: HandTraining, beside: bool
) -> ShardedBatches | Obstacle | None:
    """The cut of one training. Where a loop makes its models anew in each turn, its rows are cut in each turn, too; if
    they are made before that loop, then preferably there."""
    own = of_each_model(reach, training, whole)
    tried = _Planner(state, reach, own, beside=beside).run() if own is not None else None
    if isinstance(tried, ShardedBatches) and not any(batch.news for _, batch in tried.batches):
        return tried
    found = _Planner(state, reach, whole, beside=beside).run()
    return found if isinstance(found, ShardedBatches) or not isinstance(tried, ShardedBatches) else tried


def _is_ours(record: CallRecord) -> bool:
    return bool(origins(record.receiver, Role.ACCELERATOR))


class _Planner:
    """Looks for the cut of one training, and says what is written then."""

    def __init__(self, state: State, reach: Reach, training: HandTraining, *, beside: bool) -> None:
        self.state, self.reach, self.training, self.beside = state, reach, training, beside
        self.unit, self.loop = training.unit, training.loop
        self.code = training.code
        self.trial = Trial(state, reach, training)
        self.suggestions = Suggestions(state, reach, training, lambda cuts: self.trial.tried(cuts).held.given)

    def run(self) -> ShardedBatches | Obstacle | None:
        """The first suggestion that holds; else the reason why the last one does not."""
        obstacle: Obstacle | None = None
        followed = -1
        for cuts in filter(None, self.suggestions.all()):
            outcome = self.trial.tried(cuts)
            named = any(isinstance(cut.node, cst.Name) for cut in cuts)
            if outcome.obstacle is None and (named or not outcome.counts):
                return self._settled([*cuts, *outcome.beside], outcome)
            lost = outcome.obstacle or Obstacle(self.unit, outcome.counts[0][0], "no name has the shard where this is")
            rows = len([one for one in outcome.held.given.values() if isinstance(inner(one), Shard)])
            if lost.missed and obstacle is None:
                obstacle = lost
            elif rows > followed and not lost.missed:  # the suggestion that goes farthest has the best reason
                obstacle, followed = lost, rows
        return self.suggestions.unlike or obstacle

    def _settled(self, cuts: list[Cut], outcome: TrialOutcome) -> ShardedBatches:
        layouts_of(self.state).cut(self.unit, self.training.steps, outcome.held)
        found = ShardedBatches()
        names = [cut for cut in cuts if isinstance(cut.node, cst.Name)]
        if names and names[0].at is not None:
            texts = tuple(_name(cut.node).value for cut in names)
            found.batches.append((self.unit, HandBatch(names[0].at.body.body[0], _dim(names[0].layout), texts)))
        elif names:
            found.batches.append((self.unit, self._before_loop(names, outcome.counts)))
        for cut in cuts:
            batch = self._of_choice(cut)
            if cut not in names and (cut.unit, batch) not in found.batches:
                found.batches.append((cut.unit, batch))
        for size, _ in outcome.counts:
            if names:
                read = names[0].node
                assert isinstance(read, cst.Name)
                found.counts.append(
                    (self.unit, ShardCount(size, found.batches[0][1].renamed(read.value), _dim(names[0].layout)))
                )
        found.shards = [
            node
            for cut in cuts
            for node in (self.training.reads(_name(cut.node), cut.at.body) if cut.at is not None else [cut.node])
        ]
        for binding, _ in self.trial.left_over(outcome.held):
            because = "made of the rows of this process, and read as a whole after the training"
            found.gathers.append((self.unit, Gather(self.loop, (binding.name,), because)))
        for call in list(outcome.held.shown)[:1]:
            found.findings.append((self.reach.unit_of(call, self.unit), ShownShard(call)))
        unit, first = found.batches[0]
        losses = [inner(layout) for layout in outcome.held.backwards.values()]
        sums = any(isinstance(layout, Partial) and layout.op == "sum" for layout in losses)
        bent = any(isinstance(layout, Unclear) for layout in losses)
        found.findings.append(
            (unit, ShardedBatch(first.node, tuple(first.names), sums, cuts[0].source, bent, self.beside))
        )
        return found

    def _of_choice(self, cut: Cut) -> HandBatch:
        """The cut of a call; of one of several that may give a batch, where the batch has its name."""
        if cut.before is None:
            return HandBatch(cut.node, _dim(cut.layout))
        assign = self.unit.names.parents.get(cut.node)
        target = assign.targets[0].target if isinstance(assign, cst.Assign) else None
        parts = [each.value for each in target.elements] if isinstance(target, cst.Tuple) else [target]
        texts = tuple(self.unit.names.module.code_for_node(part) for part in parts if part is not None)
        return HandBatch(cut.before, _dim(cut.layout), texts)

    def _before_loop(self, cuts: list[Cut], counts: list[tuple[cst.CSTNode, cst.CSTNode]]) -> HandBatch:
        """One statement for all that is cut as a whole: before the loop, and before what has to know how many rows."""
        names = self.unit.names
        early = [size for size, _ in counts if names.function(size) is self.code]
        beside = [one for size in early if (one := self.trial.beside(size)) is not None]
        place = min([self.loop, *beside], key=names.order)
        bindings = list(dict.fromkeys(b for cut in cuts if (b := self.unit.names.binding(_name(cut.node))) is not None))
        reads = {cut.node for cut in cuts}
        order = self.unit.names.order
        others = [
            read
            for binding in bindings
            for read in binding.reads
            if read not in reads and (order(read) > order(self.loop) or self.unit.names.function(read) is not self.code)
        ]
        texts = tuple(binding.name for binding in bindings)
        own = all(binding.scope.function.node is self.code for binding in bindings)
        anew = all(self._is_bound_anew(binding) for binding in bindings)
        if not others and own and anew:
            return HandBatch(place, _dim(cuts[0].layout), texts)
        taken = {name for scope in self.unit.names.scopes.values() for name in scope.bindings}
        news = tuple(next(n for n in (f"{t}_shard", f"{t}_shard_", f"own_{t}_shard") if n not in taken) for t in texts)
        return HandBatch(place, _dim(cuts[0].layout), texts, news, tuple(_name(cut.node) for cut in cuts))

    def _is_bound_anew(self, binding: Binding) -> bool:
        """Whether each training has a variable of its own: what is cut once must not be cut again in the next one."""
        around, names = self.training.around, self.unit.names
        if around is None:
            return True
        before = (d for d in binding.definitions if names.order(d) < names.order(self.loop))
        return any(names.block(d) is around.body for d in before)


def _name(node: cst.CSTNode) -> cst.Name:
    assert isinstance(node, cst.Name)
    return node


def _dim(layout: Layout) -> int:
    found = inner(layout)
    return found.dim if isinstance(found, Shard) else 0
