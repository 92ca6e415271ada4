"""From a program to what is known of it: every analysis in its order, and the facts of each module at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.modules import taken
from ..analysis.dataflow.program_flow import solve
from ..analysis.dataflow.values import Klass, State, Unit, origins
from ..analysis.devices.constants import Constants
from ..analysis.devices.cpu_only import cpu_only
from ..analysis.devices.device_attributes import given_aims, kept_device
from ..analysis.devices.device_flags import always_cpu, cpu_flag, unread
from ..analysis.devices.fed_before_move import fed_before_move
from ..analysis.devices.gpu_numbers import spread
from ..analysis.devices.kept_choices import kept_choice
from ..analysis.devices.moved_batches import moved_batches
from ..analysis.devices.moves import Mover
from ..analysis.devices.resting_models import placed_models
from ..analysis.devices.use_before_prepare import Stands
from ..analysis.diagnostics.alike_draws import makes_alike
from ..analysis.diagnostics.nature import by_nature
from ..analysis.distributed.apart import condition, left_on_cpu, met_apart, said
from ..analysis.effects.checkpoints import in_front
from ..analysis.effects.existing_guards import guarded, in_turn
from ..analysis.effects.read_back import ReadBack
from ..analysis.effects.unused_code import may_run
from ..analysis.layouts import metrics
from ..analysis.layouts.by_hand.plan import ShardedBatches
from ..analysis.layouts.divergence import Equality
from ..analysis.layouts.random_evaluations import agreements
from ..analysis.precision.precision import ManualPrecision, PrecisionSetting
from ..analysis.syntax.definitions import attribute_assignments
from ..analysis.syntax.names import Names
from ..analysis.syntax.scopes import ScopeKind
from ..analysis.syntax.walk import descendants
from ..analysis.training.no_sync import unsynced_of
from ..config import Config
from ..facts.effects import EffectKind
from ..facts.module import Gather, ModuleFacts, Move, Unsynced
from ..facts.module_paths import ModulePaths
from ..facts.roles import Origin, Role
from ..findings import Finding, Severity
from .accelerator_path import Way
from .accumulation import Window, window_of
from .collected import Collected
from .device_reads import vanishing
from .early_draws import seeded_apart, too_early
from .holders import Holders, base_call, receiver
from .home import Homes, owner
from .late_draws import too_late
from .prepare import PreparePlan, plan
from .prepared_names import held_last
from .program import ProgramFacts
from .reached_module import ReachedModule, roles
from .routing import Router
from .shared_code import chooses_device, first_statement, may_be_given

_MOVES = frozenset({Move.STATEMENT, Move.LINK, Move.RETARGET})


class ParsedModule(NamedTuple):
    """A parsed module of a program: its import name, and its tree."""

    name: str
    tree: cst.Module


class Understood(NamedTuple):
    """What is known of a module, and its names resolved."""

    facts: ModuleFacts
    names: Names
    entry: bool = False
    """It is the script itself, not a module that others import."""
    taken: frozenset[str] = frozenset()
    """The names that other modules take from it."""
    idle: tuple[cst.FunctionDef | cst.If, ...] = ()
    """Its functions that the program does not run."""
    whole: frozenset[cst.CSTNode] = frozenset()
    """Where it asks for the length of a loader that is not prepared."""
    solved: State | None = None
    """The program that it is a module of."""
    unbuilt: frozenset[cst.Call] = frozenset()
    """What would make something that is different on each process, in code that the program never runs; and what is
    the same on all of them."""


def understand(
    modules: Sequence[ParsedModule],
    config: Config,
    layout: ModulePaths = ModulePaths(),  # noqa: B008 (frozen)
) -> list[Understood]:
    """What is known of each module of a program; the first is the entry script."""
    state = solve([(m.name, m.tree) for m in modules], config.assume, layout)
    program = _Analyses(state, config)
    units = program.reach.units
    known = []
    for facts, unit in zip(program.facts(), units, strict=True):
        names = taken(state, unit)
        entry = unit is units[0] and not names
        idle = tuple(program.reach.idle(unit))
        reach, named = program.reach, (call for call in unit.names.calls if by_nature(call) is not None)
        unbuilt = frozenset(c for c in named if not may_run(unit, reach, c) or makes_alike(state, reach, c))
        whole = frozenset(program.whole_loaders(unit))
        known.append(Understood(facts, unit.names, entry, names, idle, whole, state, unbuilt))
    return known


def _undecided(collected: dict[Unit, Collected]) -> bool:
    """Whether a decision would be one process's own, and processes could part by it."""
    found = (finding for part in collected.values() for finding in part.findings)
    return any(f.id == "local-decision" and f.severity is Severity.BLOCKED for f in found)


class _Analyses(ProgramFacts):
    """The analyses of one program, in their order."""

    prepared: frozenset[Origin] | None = None
    """What is prepared, once that is decided."""
    stands: Mapping[Origin, Stands] = MappingProxyType({})
    """Where."""

    def whole_loaders(self, unit: Unit) -> Iterator[cst.CSTNode]:
        """Where a module asks for the length of a loader that is not prepared, or not yet; and of something else that
        has the name of a loader elsewhere: ``train = Rows()``, and later ``train = DataLoader(train)``."""
        if self.prepared is None or self.existing is not None:
            return
        for call in unit.names.calls:
            if isinstance(call.func, cst.Name) and call.func.value == "len" and len(call.args) == 1:
                held = origins(self.state.values.get(call.args[0].value), Role.LOADER)
                stands = [self.stands.get(loader) for loader in held]
                before = all(s is not None and s.follows(unit, call) for s in stands)
                if not held or before or self.prepared.isdisjoint(held):
                    yield call

    def facts(self) -> list[ModuleFacts]:
        """The facts of each module."""
        if not self.training.backwards or self._foreign():
            return [self._bare(unit) for unit in self.reach.units]
        evaluations = metrics.evaluations(self.state, self.reach, self.training) if not self.settled else []
        self._leave_shared(evaluations)
        self._leave_trained_on(evaluations)
        self._leave_alone(evaluations)
        collected, way = self._collected(evaluations)
        while lost := [e for e in evaluations if e.gather is not None and not _gathers(collected, way, e)]:
            for evaluation in lost:  # its loader stays whole, so that the metric is right on every process
                evaluation.leave("it has no access to the accelerator")
            collected, way = self._collected(evaluations)
        collected, way = self._decided(evaluations, collected, way)
        early = [*too_early(self.reach, way, self.draws, self.rows)]
        if self.existing is None and self.hand is None:
            given = {received.source for part in collected.values() for received in part.received}
            early += seeded_apart(self.state, self.reach, way, given, self.rows)
        for unit, finding in early:
            collected[unit].findings.append(finding)
        plan = collected[self.reach.units[0]].plan
        if self.existing is None and not self.settled:
            for unit, finding in too_late(self.state, self.reach, plan, self.rows):
                collected[unit].findings.append(finding)
        self.stands = plan.stands
        self.prepared = frozenset(o for part in collected.values() for o in part.plan.prepared)
        for part in collected.values():
            part.settle_loads(ReachedModule(part, way).here)
        left = {f.target.attr.value for f in self.fields if not ReachedModule(collected[f.unit], way).redefines(f)}
        self.redefined = {field.target.attr.value for field in self.fields} - left
        return [ReachedModule(collected[unit], way).facts() for unit in self.reach.units]

    def _leave_shared(self, evaluations: list[metrics.Evaluation]) -> None:
        """Leave the evaluation loops alone that files outside the program run as well, and that cannot gather there."""
        for evaluation in evaluations:
            code = evaluation.unit.names.function(evaluation.loop)
            user = self.shared.get(code)
            if user is None or not evaluation.understood:
                continue
            given = may_be_given(self.reach, self.shared, code)
            self.optional.update(given)
            if not given:
                evaluation.leave(f"{user} also runs it, with a loader that is not prepared")

    def _decided(
        self, evaluations: list[metrics.Evaluation], collected: dict[Unit, Collected], way: Way
    ) -> tuple[dict[Unit, Collected], Way]:
        """
        Leave the evaluations whole where that alone makes a decision equal on all processes: a schedule that follows
        a figure which cannot be gathered. Slower and right is better than refused.
        """
        shared = [e for e in evaluations if e.understood and (e.gather is not None or e.parts)]
        if not shared or not _undecided(collected):
            return collected, way
        before = [(e, e.gather, e.because) for e in shared]
        for evaluation in shared:
            evaluation.leave("a decision depends on one of its metrics, which could not be gathered")
        whole = self._collected(evaluations)
        if not _undecided(whole[0]):
            return whole
        for evaluation, gather, because in before:
            evaluation.gather, evaluation.understood, evaluation.because = gather, True, because
        return self._collected(evaluations)

    def _leave_trained_on(self, evaluations: list[metrics.Evaluation]) -> None:
        """Leave the evaluation loops alone whose tensors a backward pass flows through: an attack on the model."""
        for evaluation in evaluations:
            gathers = (g for g in (evaluation.gather, *evaluation.parts) if g is not None)
            if any(self.gradient_path.cuts(evaluation.unit, gather) for gather in gathers):
                evaluation.leave("a backward pass goes through the value that would be gathered")

    def _leave_alone(self, evaluations: list[metrics.Evaluation]) -> None:
        """Leave the evaluation loops alone that only one process runs, by the script's own condition on the rank."""
        for evaluation in evaluations if self.existing is None else ():
            asked = condition(self.guards, evaluation.unit, evaluation.loop)
            if asked is not None:
                evaluation.leave(f"only processes with {said(asked)} run this evaluation")
                evaluation.alone = True

    def _apart(self, equality: Equality, gathers: Iterable[tuple[Unit, Gather]]) -> Iterator[tuple[Unit, Finding]]:
        """Findings for what all processes must do together, and only some of them come to."""
        if self.existing is not None:
            return
        backwards = [(record.unit, record.node) for record in self.training.backwards]
        steps = [(record.unit, record.node) for record in self.training.steps]
        loops = [(self.reach.unit_of(loop, self.reach.units[0]), loop) for loop in equality.shared]
        whole = [(unit, gather.node) for unit, gather in gathers]
        # what a script that distributes itself steps and reads on one process is its author's affair
        yield from met_apart(self.guards, backwards if self.settled else (*backwards, *steps, *loops, *whole))

    def _on_cpu(self, plan_: PreparePlan, evaluations: list[metrics.Evaluation]) -> Iterator[tuple[Unit, Finding]]:
        """Findings for what stays whole by the script's own will, and is moved by nobody."""
        if self.existing is not None:
            return
        alone = {evaluation.loop: evaluation.because for evaluation in evaluations if evaluation.alone}
        prepared, moved = plan_.prepared, moved_batches(self.state, self.reach)
        coming = {arrival.loop for _, arrival in plan_.arrivals}
        for loop in (*self.training.train_loops, *self.training.eval_loops):
            because = alone.get(loop, "it has no DistributedSampler" if self.hand is not None else "")
            if because and isinstance(loop, cst.For):
                unit = self.reach.unit_of(loop, self.reach.units[0])
                still = held_last(self.state, unit, loop.iter, Role.LOADER) - prepared - moved
                if still and loop not in coming:
                    yield unit, left_on_cpu(unit, loop, because)

    def _collected(self, evaluations: list[metrics.Evaluation]) -> tuple[dict[Unit, Collected], Way]:
        """Everything found, and the accelerator's way to it."""
        plan_ = plan(self.state, self.reach, self.training, evaluations, self._loaders())
        mover = Mover(
            self.state,
            self.reach,
            self.training,
            prepared=plan_.prepared,
            arriving={loader for _, found in plan_.arrivals for loader in self.reach.loaders(found.loop)},
            stands=plan_.stands,
            existing=self.existing is not None,
            shared=self.shared,
        )
        collected = {unit: Collected(self, unit, plan_, evaluations, mover) for unit in self.reach.units}
        for placement in placed_models(mover, partial(self._early, plan_)):
            collected[self.reach.unit_of(placement.node, self.reach.units[0])].placements.append(placement)
        if self.existing is None:
            for unit, placement in fed_before_move(mover, self.reach, self.training, partial(self._early, plan_)):
                collected[unit].placements.append(placement)
        turns = [e for part in collected.values() for e in part.effects if e.kind is EffectKind.DOWNLOAD]
        if not self.settled:
            written = {unit: part.written() for unit, part in collected.items()}
            loads = {unit: [at for ld in part.loads if (at := ld.waits_before)] for unit, part in collected.items()}
            together = [g.node for part in collected.values() for g in part.gathers]
            together += [record.node for record in (*self.training.backwards, *self.training.steps)]
            uncertain = (ld.waits_before for part in collected.values() for ld in part.loads if not ld.written)
            perhaps = {node for node in uncertain if node is not None}
            files = ReadBack(self.state, self.reach, written, [e.node for e in turns], loads, together, perhaps)
            for unit, part in collected.items():
                part.read_back = files.waits(unit)
            for unit, finding in files.unsure():
                collected[unit].findings.append(finding)
        inside = self._run_in_turn([e.node for e in turns if not e.guarded])
        asked = self._run_in_turn([e.node for e in turns]) - inside
        for part in collected.values():
            part.leave_to_turn(inside, asked)
            part.leave_to_askers()
        early = partial(self._reads_early, plan_)
        shared = [
            loop
            for loop, held in self.state.loaders.items()
            if any(loader in plan_.prepared and not early(loop, loader) for loader in held)
        ]
        gathers = [(unit, gather) for unit, part in collected.items() for gather in part.gathers]
        cut = self.batches.shards if isinstance(self.batches, ShardedBatches) else ()
        equality = Equality(self.state, self.reach, self.training, shared, gathers, cut, early=early)
        for part in collected.values():
            part.decide(equality)
        for unit, finding in (*self._apart(equality, gathers), *self._on_cpu(plan_, evaluations)):
            collected[unit].findings.append(finding)
        if not self.settled:
            own = [(unit, gather) for unit, part in collected.items() for gather in part.gathers]
            for unit, answer in agreements(self.state, self.reach, self.training, equality, own, self._open):
                if isinstance(answer, Finding):
                    collected[unit].findings.append(answer)
                else:
                    collected[unit].gathers.append(answer)
        self.flag, told = cpu_flag(self.state, self.reach, [(u, p) for u, c in collected.items() for p in c.placements])
        if self.flag is None and self.existing is None:
            gone = {n for part in collected.values() for p in part.placements for n in vanishing(p)}
            aims = given_aims(self.state, self.reach, gone | self._places(collected))
            self.flag = kept_device(self.state, self.reach, gone, aims, plan_.code)
            aims |= self._places(collected, of_all=True)
            chosen = kept_choice(self.state, self.reach, self.fields, aims) if self.flag is None else None
            if chosen is not None and not aims.isdisjoint(r for _, name in self.devices for r in name.binding.reads):
                chosen = chosen._replace(settled=False)  # the script moves things to another device, too
            self.flag = self.flag or chosen
            told = [*told, *(self.flag.told if self.flag is not None else ())]
        placements = [(unit, p) for unit, part in collected.items() for p in part.placements if p.move in _MOVES]
        told = [*told, *(spread(placements) if self.existing is None and self.hand is None else ())]
        asks = self.existing is None and self.flag is None and not placements
        still = partial(self._early, plan_)
        stays = cpu_only(self.state, self.reach, self.training, still, plan_.prepared) if asks else None
        if stays is not None:
            hosted = [p.node for part in collected.values() for p in part.placements if p.move is Move.HOST]
            self.flag, told = always_cpu(stays.unit), [*told, (stays.unit, stays.told(hosted))]
            for part in collected.values():  # all is on the CPU already
                part.placements = [p for p in part.placements if p.move is not Move.HOST and p not in part.scattered]
                part.scattered = []
        for unit, finding in told:
            collected[unit].findings.append(finding)
        way, flag = self._way_with_settings(collected, plan_), self.flag
        if flag is not None and flag.text and way.home is not None and "cpu" not in dict(way.home[1].arguments):
            lost = unread(self.state, flag)
            if lost is not None:
                collected[self.reach.unit_of(flag.test, flag.unit)].findings.append(lost)
        return collected, way

    def _places(self, collected: dict[Unit, Collected], *, of_all: bool = False) -> set[cst.CSTNode]:
        """What names the devices of the moves that stay, of models or of all."""
        nodes = [p.node for part in collected.values() for p in part.placements if p.move is Move.RETARGET]
        calls = [node for node in nodes if isinstance(node, cst.Call)]
        moved = [c for c in calls if of_all or origins(self.state.calls[c].receiver, Role.MODEL)]
        return {node for call in moved for arg in call.args for node in descendants(arg)}

    def _reads_early(self, plan_: PreparePlan, node: cst.CSTNode, loader: Origin) -> bool:
        """Whether a node reads a loader only before its ``prepare``: the batches are whole."""
        stands = plan_.stands.get(loader)
        unit = self.reach.unit_of(node, self.reach.units[0])
        return stands is not None and in_front(stands, unit, self.reach, node)

    def _open(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether all processes run a piece of code that no file outside the program calls."""
        return unit.names.function(node) not in self.shared and not guarded(self.state, unit, node)

    def _early(self, plan_: PreparePlan, call: cst.Call, model: Origin) -> bool:
        """Whether a model is still on the CPU where it is called: before its ``prepare``, or without one."""
        stands, unit = plan_.stands.get(model), self.state.calls[call].unit
        return stands is None or in_front(stands, unit, self.reach, call)

    def _run_in_turn(self, downloads: list[cst.CSTNode]) -> set[Code]:
        """Functions that only run where one process goes ahead of the others: ``download()`` of a data set."""
        turns = {node for statement in downloads for node in descendants(statement)}
        found: set[Code] = set()

        def taken(site: cst.Call) -> bool:
            unit = self.state.calls[site].unit
            return site in turns or unit.names.function(site) in found or in_turn(self.state, unit, site)

        called = [code for unit in self.reach.units for code in unit.names.functions if self.reach.sites(code)]
        while more := [code for code in called if code not in found and all(map(taken, self.reach.sites(code)))]:
            found.update(more)
        return found

    def _way_with_settings(self, collected: dict[Unit, Collected], plan_: PreparePlan) -> Way:
        """The accelerator's way, with those settings of its constructor that can be written where it is made."""
        manual = ManualPrecision(self.state, self.reach, self.training) if self.existing is None else None
        self.precision, self.window = self._precision(manual, plan_.code), self._window(plan_.code)
        way = self._way_around_constants(collected, plan_)
        if not (self._has_precision(collected, way) and self._has_window(way)) and way.code is not plan_.code:
            self.precision, self.window = self._precision(manual, way.code), self._window(way.code)
            if self.precision is not None or self.window is not None:
                way = self._way(collected, plan_)
        if self.precision is not None and not self._has_precision(collected, way):
            self.precision, self.window = None, self._window(way.code)
            way = self._way(collected, plan_)
        if self.window is not None and not self._has_window(way):
            self.window = None
            way = self._way(collected, plan_)
        self.unsynced = self._unsynced(way)
        for unit, finding in (
            manual.told(self.precision, way.code, self.config.mixed_precision) if manual is not None else ()
        ):
            collected[unit].findings.append(finding)
        return way

    def _loaders(self) -> set[Origin] | None:
        """The loaders to prepare, where the script shares the rows by itself; None where prepare shares them."""
        if not self.settled:
            return None
        return self.hand.sharded if self.hand is not None and self.abilities.keeps_samplers else set()

    def _precision(self, manual: ManualPrecision | None, code: Code | None) -> PrecisionSetting | None:
        wanted = self.config.enables("autocast") and self.config.enables("grad_scaler")
        return manual.precision(code) if manual is not None and wanted else None

    def _window(self, code: Code | None) -> Window | None:
        return (
            window_of(self.state, self.reach, self.training, code, self.loss_reductions)
            if self._may_accumulate()
            else None
        )

    def _unsynced(self, way: Way) -> tuple[Unit, Unsynced] | None:
        """The backward passes that need not exchange gradients, where the script goes on counting its window."""
        switched = self.hand is not None and bool(self.hand.switches)
        if self.window is not None or not (switched or self._may_accumulate()):
            return None
        found = unsynced_of(self.state, self.reach, self.training)
        return found if found is not None and found[0].names.function(found[1].loop) in way.reaches else None

    def _may_accumulate(self) -> bool:
        """Whether the rule is on, and neither an accelerator nor a gradient scaler of the script's is in the way."""
        if self.existing is not None or self.hand is not None or not self.config.enables("accumulation"):
            return False
        scalers = any(origins(r.result, Role.SCALER) for r in self.state.calls.values())
        return not scalers or self.precision is not None

    def _has_precision(self, collected: dict[Unit, Collected], way: Way) -> bool:
        """Whether there is a setting, the accelerator reaches every region, and its home the names that it reads."""
        if self.precision is None:
            return False
        places = [pair for region in self.precision.regions for pair in (*region.entered, *region.made)]
        reached = all(ReachedModule(collected[unit], way).here(node) for unit, node in places)
        return reached and _ready(way, self.precision.names)

    def _has_window(self, way: Way) -> bool:
        if self.window is None:
            return False
        return self.window.unit.names.function(self.window.fact.loop) in way.reaches and _ready(way, self.window.names)

    def _foreign(self) -> bool:
        """Whether a refusal makes every other answer pointless."""
        whole = (
            "already-distributed",
            "framework-owns-loop",
            "no-entry-point",
            "computed-import",
            "no-data-parallel-axis",
            "unknown-loader",
        )
        return any(finding.id in whole for _, finding in self.blocked)

    def _bare(self, unit: Unit) -> ModuleFacts:
        findings = tuple(f for u, f in self.blocked if u is unit)
        return ModuleFacts(
            unit.names.module,
            self.name,
            self.abilities,
            self.existing is not None,
            findings=findings,
            roles=tuple(roles(self.state, unit)),
        )

    def _way_around_constants(self, collected: dict[Unit, Collected], plan_: PreparePlan) -> Way:
        """The accelerator's way, past the devices that modules keep for everybody."""
        asked, new = self.flag, self.existing is None
        code = plan_.code or self.reach.function_of(self.training.backwards[0].node)
        anchor, above = self.reach.unit(code), self.reach.above(code)
        placements = [p for part in collected.values() for p in part.placements]
        gone = {n for p in placements for n in vanishing(p)}
        kept = [top for top in self.tops if top.unit.names.module not in above]
        for _ in range(3):  # what the way takes with it may settle that it needs no flag, which may change the way
            self.constants = Constants(self.state, kept, self.reach, placements, gone)
            self.flag = asked or (self.constants.flag(anchor) if new else None)
            way = self._way(collected, plan_)
            taken_over = {*way.replaced, *(name.binding for _, name in way.redefined)}
            stay = [top for top in self.tops if new and top.name.binding not in taken_over]
            handed = {n for _, h in way.handings if h.replaces is not None for n in descendants(h.replaces)}
            if stay == kept and handed <= gone:
                break
            kept, gone = stay or kept, gone | handed
        return way

    def _way(self, collected: dict[Unit, Collected], plan_: PreparePlan) -> Way:
        needs: dict[Code, None] = {}
        essential: dict[Code, None] = {}
        own: dict[Code, None] = {}
        marked: set[cst.CSTNode] = set()
        for part in collected.values():
            for code, node in part.needs():
                needs[code] = None
                marked.add(node)
            optional = {e.node for e in part.effects if e.kind is not EffectKind.WRITE}
            essential.update(dict.fromkeys(code for code, node in part.needs(optional)))
            own.update(dict.fromkeys(code for code, node in part.needs(set(part.guards()))))
        devices = [(u, n) for u, n in self.devices if n.binding not in self.constants.bindings]
        if self.existing is not None:
            return self._existing_way()
        for code in (owner(name) for _, name in devices):
            if not self._is_replaced(code):
                needs[code] = own[code] = None
        holders = Holders(self.state, self.reach)
        placing = [unit.names.function(p.node) for unit, part in collected.items() for p in part.placements]
        placing += [*(owner(name) for _, name in self.devices), *(field.code for field in self.fields)]
        keepers = {found[1]: None for code in own if code in essential and (found := holders.method(code)) is not None}
        for klass in keepers:
            needs.update(dict.fromkeys(holders.inits(klass)))
            own.update(dict.fromkeys(holders.inits(klass)))
        for klass in self._trainers(holders, plan_):
            makers = holders.inits(klass) or self._builders(holders, klass, own)
            if klass.role is Role.MODEL:
                makers = self._of_module(holders, klass, own)
            self.trainers.update(init for init in makers if self._may_make_one(init))
        self.optional |= self.trainers
        guards = frozenset(code for code in needs if code not in own)
        homes = Homes(
            state=self.state,
            reach=self.reach,
            holders=holders,
            devices=devices,
            name=self.name,
            fields=self.fields,
            lent=self.lent,
            marked=frozenset(marked | {call for _, call in self.draws}),
            flag=self.flag,
            moves=any(p.move in _MOVES for part in collected.values() for p in part.placements),
            placing=tuple(dict.fromkeys(placing)),
            reads=frozenset().union(*(found.names for found in (self.precision, self.window) if found is not None)),
            starts=self.hand.starts if self.hand is not None else (),
            constructor=self.hand.constructor() if self.hand is not None else (),
        )
        homes.stamps = frozenset(
            part.unit.names.function(answer.node) for part in collected.values() for answer in part.received
        )
        anchor = plan_.code or (self.reach.function_of(self.training.backwards[0].node) if marked else None)
        return Router(homes, self.shared, keepers, self.optional, guards).route(
            needs, essential, anchor, [prepare for _, prepare in plan_.prepares]
        )

    def _is_replaced(self, code: Code) -> bool:
        """Whether what calls a function is the device that objects keep: the accelerator's takes the place of each."""
        values = {field.value for field in self.fields}
        sites = self.reach.sites(code)
        return bool(sites) and all(site in values for site in sites)

    def _builders(self, holders: Holders, klass: Klass, codes: Iterable[Code]) -> list[cst.FunctionDef]:
        """The methods that build the objects of a class which has no constructor, for some of its methods."""
        methods = [found[0] for code in codes if (found := holders.method(code)) is not None and found[1] is klass]
        return [one for method in methods if (one := holders.builder(method, klass)) is not None]

    def _of_module(self, holders: Holders, klass: Klass, codes: Iterable[Code]) -> list[cst.FunctionDef]:
        """The methods of a module of torch that train it, where no other file trains with it."""
        methods = {found[0]: found[1] for code in codes if (found := holders.method(code)) is not None}
        mine = [method for method, owner_ in methods.items() if owner_ is klass]
        named = any(m.name.value in self.reach.unit(m).place.shared for m in mine if m.name.value != "__init__")
        return [] if named else mine

    def _may_make_one(self, init: cst.FunctionDef) -> bool:
        """Whether a constructor that others call may make an accelerator for them: not where they choose the device."""
        chosen = chooses_device(self.state, self.reach.unit(init), init)
        return init in self.shared and first_statement(init) is not None and not chosen

    def _trainers(self, holders: Holders, plan_: PreparePlan) -> dict[Klass, None]:
        """The classes whose methods prepare something, or run a backward pass."""
        codes = [self.reach.function_of(record.node) for record in self.training.backwards]
        codes += [unit.names.function(prepare.node) for unit, prepare in plan_.prepares]
        return {found[1]: None for code in codes if (found := holders.method(code)) is not None}

    def _existing_way(self) -> Way:
        way = Way()
        early = set(self._before_kept())
        for unit in self.reach.units:
            for code, scope in unit.names.scopes.items():
                if scope.kind in (ScopeKind.FUNCTION, ScopeKind.MODULE) and code in self.reach.reachable:
                    binding = scope.lookup(self.name)
                    if binding is not None and origins(self.state.binding(binding), Role.ACCELERATOR):
                        way.reaches.add(code)
                    elif code not in early and (kept := self._kept_by(unit, code)) is not None:
                        way.reaches.add(code)
                        way.spelled[code] = kept
        return way

    def _before_kept(self) -> Iterator[Code]:
        """What the constructor of a base class runs, where the object keeps the accelerator only after that."""
        for unit in self.reach.units:
            for init in unit.names.functions:
                base = base_call(unit, init) if isinstance(init, cst.FunctionDef) else None
                if base is None or not isinstance(init, cst.FunctionDef) or init.name.value != "__init__":
                    continue
                kept = cst.Attribute(cst.Name(receiver(init)), cst.Name(self.name))
                stores = [a for a in attribute_assignments(unit.names, kept) if unit.names.function(a) is init]
                if stores and all(unit.names.order(base) < unit.names.order(store) for store in stores):
                    calls = (n for n in descendants(base) if isinstance(n, cst.Call))
                    yield from (code for call in calls for f in self.reach.called(call) for code in self.reach.below(f))

    def _kept_by(self, unit: Unit, code: Code) -> str | None:
        """What a method calls the object that keeps the accelerator."""
        method = Holders(self.state, self.reach).method(code)
        if method is None:
            return None
        name = receiver(method[0])
        holding = self.state.binding(unit.names.scopes[method[0]].bindings[name]).things
        kept = any(origins(self.state.field(thing, self.name), Role.ACCELERATOR) for thing in holding)
        return name if kept else None


def _gathers(collected: dict[Unit, Collected], way: Way, evaluation: metrics.Evaluation) -> bool:
    """Whether the gather of an evaluation loop can be written."""
    return evaluation.gather is not None and ReachedModule(collected[evaluation.unit], way).here(evaluation.gather.node)


def _ready(way: Way, names: Iterable[str]) -> bool:
    """Whether names have their values where the accelerator is made."""
    if way.home is None or way.code is None:
        return False
    unit, home = way.home
    bindings = (unit.names.scopes[way.code].lookup(name) for name in names)
    made = [d for b in bindings if b is not None for d in b.definitions if isinstance(d, cst.Name)]
    return all(unit.names.order(definition) < unit.names.order(home.node) for definition in made)
