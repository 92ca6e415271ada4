"""What was found in one module of a program, before it is known where the accelerator reaches."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TypeVar

import libcst as cst

from ..analysis.compiled.deferred import deferred
from ..analysis.compiled.steps import compiled_steps
from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import method_name, outside_name
from ..analysis.dataflow.values import CallRecord, Unit, origins
from ..analysis.devices.data_rows import rows_at_rest
from ..analysis.devices.device_fields import follows_field
from ..analysis.devices.host_tensors import hosted
from ..analysis.devices.legacy import legacy_tensors
from ..analysis.devices.moves import Mover
from ..analysis.devices.scattered import applied, scattered
from ..analysis.devices.visible_gpus import chooses, left_to_launcher
from ..analysis.diagnostics.behaviour import story
from ..analysis.diagnostics.remarks import of_apex
from ..analysis.diagnostics.weighted_figures import weighted_figures
from ..analysis.distributed.wrapper_reads import WrapperReads
from ..analysis.effects import checkpoints
from ..analysis.effects.effects import output
from ..analysis.effects.existing_guards import Together
from ..analysis.effects.file_caches import asked_apart
from ..analysis.effects.temporary_files import left_files
from ..analysis.layouts import metrics
from ..analysis.layouts.agreed_decisions import counted_together, decisions
from ..analysis.layouts.batch_artifacts import dropped_batches, early_lengths, filled_batches
from ..analysis.layouts.batch_figures import BatchFigure, told
from ..analysis.layouts.batch_numbers import batch_numbers
from ..analysis.layouts.by_hand.plan import ShardedBatches
from ..analysis.layouts.collated_rows import left_out
from ..analysis.layouts.decisions import joint_of
from ..analysis.layouts.divergence import Equality
from ..analysis.layouts.evaluated_sums import filled, summed_first
from ..analysis.layouts.handed_loaders import handed_loaders
from ..analysis.layouts.joined_metrics import joined_metrics
from ..analysis.layouts.loss_reductions import open_losses
from ..analysis.layouts.losses import Reducer, closures, printed, weights
from ..analysis.layouts.own_counts import means_by_rows, own_counts
from ..analysis.layouts.own_weights import own_weights
from ..analysis.layouts.row_places import placed_rows
from ..analysis.layouts.shown_rows import one_share
from ..analysis.layouts.sums_of_means import mean_of_batches, not_summed, own_rows_under
from ..analysis.layouts.swallowed_errors import swallowed_errors
from ..analysis.layouts.tied_shapes import tied_shapes
from ..analysis.layouts.unclear_losses import unclear_losses
from ..analysis.precision.scalers import ScalerUse
from ..analysis.sharding.survival import survival
from ..analysis.syntax.definitions import bindings_value
from ..analysis.syntax.walk import descendants
from ..analysis.training.gradient_path import backward_operand
from ..analysis.training.hand_schedules import early_horizons
from ..config import Strategy
from ..facts.checkpoints import StateDict, Wait
from ..facts.effects import EffectKind, Folder, Received
from ..facts.legacy import Legacy
from ..facts.module import Behaviour, Count, Form, Gather, MixedPrecision
from ..facts.placement import Move, Placement
from ..facts.reasons import Reason
from ..facts.reasons.devices import LentWrapper
from ..facts.reasons.distributed import NoPrefix
from ..facts.reasons.metrics import OwnTotal
from ..facts.roles import Role
from ..facts.torch_api import process_calls
from ..findings import Finding, Severity
from ..wording import worded
from .at_once import at_once
from .device_reads import vanishing
from .former_wrappers import with_announcements
from .found_anyway import found_anyway
from .prepare import PreparePlan
from .program import ProgramFacts
from .wrapped import hidden, kept_before

_OF_LOSSES = frozenset({"weighted-mean", "in-batch-pairs"})
"""Findings that say already how a loss is no mean over the rows."""
_ASKED = frozenset({"backward", "clip_grad_norm_", "clip_grad_value_"})


T = TypeVar("T")


class Collected:
    """What was found in one module, before it is known where the accelerator reaches."""

    def __init__(
        self, program: ProgramFacts, unit: Unit, plan_: PreparePlan, evaluations: list[metrics.Evaluation], mover: Mover
    ) -> None:
        state, reach, training = program.state, program.reach, program.training
        self.program, self.unit, self.plan = program, unit, plan_
        self.behaviour: tuple[Behaviour, ...] = ()
        self.pins = mover.pins(unit)
        at_rest = list(rows_at_rest(mover, unit))
        self.placements = [*mover.placements(unit), *self.pins, *hosted(mover, unit)]
        self.placements += [p for p in at_rest if isinstance(p, Placement)]
        self.arrivals = [a for u, a in plan_.arrivals if u is unit]
        anyway = found_anyway(program, unit)
        chosen = anyway.chosen
        self.visible = [s for s in chosen if unit.names.function(s) not in program.shared]
        self.lent_choices = [s for s in chosen if s not in self.visible and chooses(unit, s)]
        self.legacy = legacy_tensors(state, unit, mover)
        self.hand = program.hand
        threads = with_announcements(state, unit, mover.unwrapped(unit, process_calls.wrappers("threads")))
        self.wrappers = [*threads, *applied(mover, unit)]
        self.unwrapped = mover.unwrapped(unit, process_calls.wrappers("processes")) if self.hand is not None else []
        gone = process_calls.wrappers("threads")
        gone |= process_calls.wrappers("processes") if self.hand is not None else frozenset()
        self.inner_models = mover.inner(unit, gone)
        self.twofold = list(mover.twofold(self.inner_models))
        self.of_wrappers = mover.of_wrappers(unit, gone)
        reads = WrapperReads(state, reach, gone)
        self.wrapper_reads, self.for_wrappers = list(reads.of(unit)), list(reads.only_for_wrappers(unit))
        probes = {record.node for record in training.probes}
        asked = [c for c in unit.names.calls if c in state.calls and called_name(state.calls[c]) in _ASKED]
        self.calls = [c for c in asked if c not in probes and not self._is_own_code(state.calls[c])]
        understood = [e for e in evaluations if e.unit is unit and e.understood]
        cut = program.batches if isinstance(program.batches, ShardedBatches) else ShardedBatches()
        own = [loop for loop in training.train_loops if loop not in cut.loops]
        self.loops = [*own, *(e.loop for e in understood)]
        self.hand_batches = [batch for u, batch in cut.batches if u is unit]
        self.row_counts = [count for u, count in cut.counts if u is unit]
        moved = {placement.node for placement in self.placements}
        edited = {n for batch in self.hand_batches for n in (batch.node, *batch.reads)}
        handed = scattered(mover, unit, gone, edited)
        self.scattered = [each for each in handed if each.node not in moved]
        around = (wrapper for wrapper in self.wrappers if wrapper.move is not Move.CALL)
        lent = ((w, program.shared.get(unit.names.function(w.node))) for w in around)
        self.scattered += [LentWrapper(wrapper.node, user) for wrapper, user in lent if user is not None]
        self.placements += [each for each in self.scattered if isinstance(each, Placement)]
        self.gathers = [g for e in understood for g in (e.gather, *e.parts) if g is not None]
        totals = anyway.totals
        each_step = [a for a in totals if isinstance(a, Gather)]
        self.gathers += [*(g for u, g in cut.gathers if u is unit and not _joined(unit, g, each_step)), *each_step]
        self.figures = [figure for e in understood for figure in e.figures]
        self.figures += [a for a in totals if isinstance(a, BatchFigure)]
        self.averages = [a for a in totals if isinstance(a, Count) and not program.config.keep_global_batch]
        taken = list(checkpoints.state_dicts(state, unit, reach, plan_.prepared))
        alone = [s for s in taken if checkpoints.after_exception(unit, s.call) is not None]
        self.state_dicts = [s for s in taken if s not in alone]
        # in code that other programs use as well, states stay as they are
        states = [s.call for s in self.state_dicts if unit.names.function(s.call) not in program.shared]
        joined = settled_here(self.gathers).union(states)
        self.output = output(state, unit, reach, training, Together(state, reach, training, joined))
        unsaid = {n for w in self.wrappers for n in vanishing(w)}
        self.effects = [effect for effect in self.output.effects if effect.node not in unsaid]
        self.handles = self.output.handles
        self.gathers = metrics.outside_guards(self.gathers, self.effects)
        self.folders: list[Folder] = list(anyway.folders)
        answers = [answer for other, answer in program.received if other is unit]
        self.received = [a for a in answers if isinstance(a, Received)]
        self.saves = list(checkpoints.saves(state, unit, reach, plan_.prepared))
        wrapped = [s for s in taken if reads.wraps(unit, s.model) is not False]
        self.prefixed = [s.call for s in wrapped if not self._plain(s)]
        self.loads = list(anyway.loads)
        self.read_back: list[Wait] = []
        saved = {s.call for s in self.state_dicts}
        plain = checkpoints.plain_models(state, unit, reach, plan_.stands, saved)
        wraps = not program.abilities.transparent_models
        seen = list(hidden(state, unit, reach, training, plan_.stands)) if wraps else []
        seen += kept_before(state, unit, reach, training, plan_.stands) if wraps else ()
        hides = [a for a in seen if not isinstance(a, Finding)]
        self.plain_models = list(dict.fromkeys([*plain, *hides])) if wraps else []
        compiles = bool(program.config.device)
        self.deferred = list(deferred(state, unit, reach, training)) if compiles else []
        later = {one.call for one in self.deferred if program.config.enables("deferred_reads")}
        reasons = [a for a in totals if not isinstance(a, (Gather, BatchFigure, Count))]
        self.findings: list[Reason] = [
            *(f for u, f in program.blocked if u is unit),
            *(f for u, f in plan_.findings if u is unit),
            *(a for a in reasons if not self._is_filled_exactly(a)),
            *left_to_launcher(state, unit, reach, self.visible, program.shared, program.config.launched),
            *anyway.contradictions,
            *(f for u, f in program.weighted if u is unit),
            *(survival(state, unit, reach, training, plan_.stands) if self._shards() else ()),
            *(compiled_steps(state, unit, reach, training, later) if program.config.device else ()),
            *self.twofold,
            *anyway.remarks,
            *(finding for u, finding in cut.findings if u is unit),
            *self.output.findings,
            *left_files(reach, unit),
            *(a for a in at_rest if not isinstance(a, Placement)),
            *(checkpoints.of_this_process(unit, s) for s in alone),
            *(a for a in seen if isinstance(a, Finding)),
            *(a for a in answers if not isinstance(a, Received)),
        ]
        told = {reason.node for reason in self.findings if worded(reason).id == "once"}
        self.findings += [f for f in anyway.unseen if f.node not in told]
        if program.settled:
            self._as_it_is()

    def _shards(self) -> bool:
        return self.program.config.strategy is Strategy.FSDP

    def _plain(self, state: StateDict) -> bool:
        """Whether a state has the keys of the model inside a wrapper: it is taken of that, or of a model for which the
        condition around it found no wrapper, and otherwise takes that of the model inside."""
        inner = {s.call for s in self.state_dicts if s.model in self.inner_models}
        if state.call in inner or self._is_inner(state.model):
            return True
        for around in self.unit.names.enclosing(state.call, cst.If, cst.IfExp):
            if around.orelse is not None:
                mine = around.body in (state.call, *self.unit.names.ancestors(state.call))
                if not inner.isdisjoint(descendants(around.orelse if mine else around.body)):
                    return True
        return False

    def _is_inner(self, model: cst.BaseExpression) -> bool:
        """Whether what is read is the model inside a wrapper: ``plain``, of ``model.module if wrapped else model``."""
        names = self.unit.names
        binding = names.binding(model) if isinstance(model, cst.Name) else None
        values = bindings_value(names, binding) if binding is not None else [model]
        return any(part in self.inner_models for value in values for part in descendants(value))

    def _is_filled_exactly(self, reason: Reason) -> bool:
        """Whether a finding speaks of padded shards, and none is: with the global batch kept."""
        return worded(reason).id == "filled-batch" and self.program.config.keep_global_batch

    def _as_it_is(self) -> None:
        """Leave alone what the author of a distributed script has settled already: who prints, what is summed."""
        unit, program = self.unit, self.program
        prefixed = self.prefixed if self.hand is not None else []
        downloads = [effect for effect in self.effects if self.hand is not None and at_once(program, unit, effect)]
        self.gathers, self.effects, self.handles = [], downloads, []
        self.folders, self.received, self.saves, self.state_dicts, self.loads = [], [], [], [], []
        self.plain_models, self.read_back, self.prefixed = [], [], []
        self.findings = [
            *(f for u, f in program.blocked if u is unit),
            *(f for u, f in self.plan.findings if u is unit),
            *(NoPrefix(call) for call in prefixed),
            *self.twofold,
            *(f for u, f in (self.hand.told if self.hand is not None else ()) if u is unit),
            *found_anyway(program, unit).contradictions,
            *of_apex(program.state, unit),
        ]

    def written(self) -> list[cst.CSTNode]:
        """The statements by which the main process alone writes."""
        statement = self.unit.names.statement
        return [e.node for e in self.effects if e.kind is EffectKind.WRITE] + [statement(s.call) for s in self.saves]

    def leave_to_turn(self, inside: Container[Code], asked: Container[Code]) -> None:
        """
        What runs while one process goes ahead of the others needs nothing more; a turn within a turn would hang.

        Args:
            inside: code that runs in such turns alone.
            asked: code that does so where the others ask first whether it was done. It still guards what it writes, and
                nobody can wait for anybody there.
        """
        function = self.unit.names.function
        found = (f for f in self.output.findings if worded(f).id == "once")
        once = [(f, function(f.node)) for f in found if f.node is not None]
        told = {id(f) for f, code in once if code in inside or code in asked}
        self.findings = [f for f in self.findings if id(f) not in told]
        here = [e for e in self.effects if function(e.node) in asked]
        for effect in here:
            self.effects.remove(effect)
            if effect.kind is EffectKind.FETCH:
                self.effects.append(effect._replace(kind=EffectKind.WRITE))
            elif effect.kind is not EffectKind.DOWNLOAD:
                self.effects.append(effect)
        self.read_back = [w for w in self.read_back if function(w.node) not in asked]
        self.effects = [e for e in self.effects if function(e.node) not in inside]
        self.saves = [s for s in self.saves if function(s.call) not in inside]
        self.read_back = [w for w in self.read_back if function(w.node) not in inside]

    def leave_to_askers(self) -> None:
        """Let nobody wait where each process decides by itself, by a question for a file, whether it comes there."""
        for wait in self.read_back:
            asked = self.program.file_questions.before(wait.node)
            if asked is not None:
                self.findings.append(asked_apart(wait.node, asked))
                self.read_back = [other for other in self.read_back if other is not wait]

    def decide(self, equality: Equality) -> None:
        """Add what makes decisions equal on all processes, and findings for those that cannot be."""
        if self.program.settled:
            return
        state, reach, training = self.program.state, self.program.reach, self.program.training
        split = self.program.config.keep_global_batch
        answers: list[Gather | Reason] = []
        if not self.program.adopted:  # who works with an accelerator has decided how his processes decide
            answers += decisions(state, self.unit, reach, training, equality, split=split)
        reducer = Reducer(state, training, equality)
        for record in training.backwards:
            if record.unit is self.unit:
                answers.extend(weights(state, reducer, record, backward_operand(record)))
        answers.extend(closures(state, self.unit, training))
        answers.extend(own_weights(reducer, self.unit))
        answers.extend(self._printed(reducer))
        known = {gather.node for gather in self.gathers}
        cut = [a for a in answers if isinstance(a, Gather) and self.program.gradient_path.cuts(self.unit, a)]
        answers = [*(a for a in answers if a not in cut), *(_trained_on(a.node) for a in cut)]
        found = {a.node: a for a in answers if isinstance(a, Gather) and a.node not in known}
        self.gathers.extend(found.values())
        alike = (f for f in self.findings if isinstance(f, OwnTotal))
        left = [f for f in alike if counted_together(reducer, self.unit, f.node, self.gathers)]
        self.findings = [f for f in self.findings if f not in left]
        self.findings.extend(a for a in answers if not isinstance(a, Gather))
        self.findings.extend(swallowed_errors(self.unit, joint_of(equality)))
        self.findings.extend(left_out(reach, self.unit, training, equality.shared))
        self.findings.extend(one_share(state, self.unit, equality, self.effects))
        self.findings.extend(handed_loaders(state, self.unit, reach, equality.shared, self.before_prepare))
        whole = self.gathers if split else ()
        self.findings.extend(weighted_figures(reach, self.unit, training, equality.shared, whole))
        path = self.program.gradient_path
        self.findings.extend(batch_numbers(reach, self.unit, training, path, equality.shared, self.gathers))
        if self.program.config.tells:
            self.behaviour = tuple(story(state, self.unit, reach, training, equality, self.gathers))
        if self.program.config.keep_global_batch:
            self.findings.extend(tied_shapes(self.unit, reach, training))
            self.findings.extend(own_rows_under(state, self.unit, equality.shared))
            self.findings.extend(placed_rows(reach, self.unit, training, path, equality.shared))
            if not any(worded(reason).id in _OF_LOSSES for reason in self.findings):
                self.findings.extend(unclear_losses(state, self.unit, training, equality.shared))
        else:
            self.findings.extend(open_losses(self.program.loss_reductions, self.unit, training))
            means = dict(means_by_rows(reach, self.unit, equality.shared, self.gathers))
            added = dict(mean_of_batches(reach, self.unit, equality.shared))
            if self.program.abilities.adds_means:
                self.gathers = summed_first(state, self.unit, added, self.gathers)
                self.averages.extend(filled(self.unit, added, self.gathers))
            means.update(not_summed(added, self.gathers))
            sums = {*means, *added}
            self.findings.extend(told(self.figures, sums))
            self.findings.extend(means.values())
            self.findings.extend(own_counts(reach, self.unit, equality.shared, self.gathers, self.before_prepare))
            early = list(early_lengths(state, self.unit, equality.shared, self.before_prepare))
            self.findings.extend(early)
            self.findings.extend(early_horizons(reach, self.unit, training, self.loops, self.before_prepare))
            self.averages = [a for a in self.averages if a.node not in means] if not early else []
            self.findings.extend(filled_batches(reach, self.unit, training, self.gathers, means))
            self.findings.extend(joined_metrics(state, self.unit, reach, equality.shared, self.gathers))
            if not self.program.abilities.fills_turns:
                self.findings.extend(dropped_batches(reach, self.unit, training, equality.shared))

    def _is_own_code(self, record: CallRecord) -> bool:
        """Whether a call only has the name of a backward pass, and runs the program's own code: an inverse, say."""
        return record not in self.program.training.backwards and bool(self.program.reach.called(record.node))

    def before_prepare(self, call: cst.Call) -> bool:
        """Whether a call that is given a loader comes before what prepares that, here or in a function."""
        program = self.program
        held = origins(program.state.values.get(call.args[0].value), Role.LOADER)
        found = (self.plan.stands.get(loader) for loader in held)
        return any(one is not None and checkpoints.in_front(one, self.unit, program.reach, call) for one in found)

    def _printed(self, reducer: Reducer) -> Iterable[Gather]:
        """Losses of a step that are printed, where the step's batch is cut: that of one process is a part of them."""
        loops = self.program.batches.loops if isinstance(self.program.batches, ShardedBatches) else []
        inside = {node for loop in loops if loop in self.unit.names.parents for node in descendants(loop)}
        for effect in self.effects:
            if effect.kind is EffectKind.PRINT and effect.node in inside:
                because = "{} is printed, and each process holds only its shard"
                yield from printed(reducer, self.unit, self.unit.names.parents[effect.node], because)

    def guards(self) -> Iterator[cst.CSTNode]:
        """What needs nothing of the accelerator but which process this is, or that all wait: ``PartialState()`` says it
        where the accelerator is not."""
        yield from (e.node for e in self.effects)
        yield from (h.call for h in self.handles)
        yield from (r.source for r in self.received)
        yield from (wait.node for wait in self.read_back)
        yield from (load.call for load in self.loads if load.only_waits)
        for save in self.saves:
            if self.program.abilities.transparent_models or not save.whole:
                if checkpoints.as_write(self.unit, save) is not None:
                    yield save.call

    def needs(self, apart: Container[cst.CSTNode] = ()) -> Iterable[tuple[Code, cst.CSTNode]]:
        """The code in which the accelerator is needed, and for what; without some nodes that are no reason."""
        names = self.unit.names
        found: list[cst.CSTNode] = [c for c in self.calls if names.function(c) in self.program.reach.reachable]
        found += [g.node for g in self.gathers if g.form is not Form.RECEIVE]
        found += [b.node for b in self.hand_batches]
        found += [a.loop.iter for a in self.arrivals]
        found += [e.node for e in self.effects]
        found += [h.call for h in self.handles]
        found += [r.source for r in self.received]
        found += list(self.plain_models)
        found += [*self.precision().regions, *self.precision().makers]
        found += [s.call for s in self.saves]
        found += [wait.node for wait in self.read_back]
        found += [ld.call for ld in self.loads if ld.brings]
        found = [node for node in found if node not in apart]
        found += [s.call for s in self.state_dicts]
        moves = [p for p in self.placements if p.move in (Move.RETARGET, Move.PLACE) and not p.spare]
        moves = [p for p in moves if not self._given_with_default(p) and not follows_field(p, self.program.given)]
        found += [p.node for p in moves if not self.program.settings.constants.followed(p) and p.node not in apart]
        found += [t.node for t in self.legacy if not t.placed and t.use is not Legacy.UNSURE]
        found += [p.node for u, p in self.hand.pieces if u is self.unit and p.needed] if self.hand is not None else []
        needing = set()
        for node in found:
            around = (node, *names.ancestors(node)) if isinstance(node, cst.BaseExpression) else descendants(node)
            needing.add(names.function(node))
            yield names.function(node), next((n for n in around if isinstance(n, cst.Call)), node)
        for unit, prepare in self.plan.prepares:
            if unit is self.unit:
                needing.add(names.function(prepare.wraps or prepare.node))
                yield names.function(prepare.wraps or prepare.node), prepare.wraps or prepare.node
        for load in self.loads:  # the accelerator does not come to a function for weights that are copied
            if load.needed and not load.brings and names.function(load.call) in needing:
                yield names.function(load.call), load.call

    def _given_with_default(self, placement: Placement) -> bool:
        """Whether a move goes to a parameter that calls may leave out: it follows what it is given, and is no reason to
        bring the accelerator."""
        call = placement.node
        aims = [arg.value for arg in call.args] if isinstance(call, cst.Call) and placement.target is None else []
        bindings = [self.unit.names.binding(aim) for aim in aims if isinstance(aim, cst.Name)]
        params = [d for b in bindings if b is not None and len(b.definitions) == 1 for d in b.definitions]
        return any(isinstance(param, cst.Param) and param.default is not None for param in params)

    def settle_loads(self, here: Callable[[cst.CSTNode], bool]) -> None:
        """Load to the CPU what is copied, where the accelerator does not come."""
        self.loads = [ld._replace(on_host=True) if ld.copied and not here(ld.call) else ld for ld in self.loads]

    def precision(self) -> MixedPrecision:
        """What mixed precision is in the module, as far as it is kept."""
        found = self.program.settings.precision
        if found is None:
            return MixedPrecision()
        use = found.scalers.get(self.unit, ScalerUse())

        def own(pairs: Iterable[tuple[Unit, T]]) -> tuple[T, ...]:
            return tuple(node for unit, node in pairs if unit is self.unit)

        return MixedPrecision(
            regions=own(pair for region in found.regions for pair in region.entered),
            makers=own(pair for region in found.regions for pair in region.made),
            branches=own((b.unit, (b.node, b.on)) for b in found.branches),
            made_early=own(pair for region in found.regions for pair in region.removed),
            removed=tuple(use.removed),
            steps=tuple(use.steps),
            scales=tuple(use.scales),
            parameters=tuple(use.parameters),
            arguments=tuple(use.arguments),
        )


def _trained_on(node: cst.CSTNode) -> Finding:
    return Finding(
        "local-decision",
        node,
        "a condition reads a value that is part of the backward pass, and each process would decide on its own shard",
        "decide on accelerator.reduce(value.detach()), and keep the value itself for the backward pass",
        Severity.BLOCKED,
        case="trained-value",
    )


def settled_here(gathers: Iterable[Gather]) -> set[cst.CSTNode]:
    """The nodes at which metrics are made those of all processes."""
    return {node for gather in gathers for node in (gather.node, *gather.inline)}


def called_name(record: CallRecord) -> str:
    """The last name of what is called: that of the outside function where an alias hides it."""
    return outside_name(record).rpartition(".")[2] or method_name(record.node)


def _joined(unit: Unit, gather: Gather, others: Sequence[Gather]) -> bool:
    """Whether what is gathered after a loop has been set to the rows of all processes in the loop: nothing is gathered
    twice."""
    inside = (other for other in others if gather.node in unit.names.ancestors(other.node))
    return any(set(gather.names) <= set(other.set_anew) for other in inside)
