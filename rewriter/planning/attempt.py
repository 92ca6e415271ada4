"""One attempt at a plan: all that is found with some evaluations left whole, and the accelerator's way to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.values import Unit, origins
from ..analysis.devices.constants import Constants
from ..analysis.devices.cpu_only import cpu_only, made_in_forward
from ..analysis.devices.device_attributes import given_aims, kept_device
from ..analysis.devices.device_flags import Flag, always_cpu, cpu_flag, unread
from ..analysis.devices.fed_before_move import fed_before_move
from ..analysis.devices.gpu_numbers import spread
from ..analysis.devices.kept_choices import kept_choice
from ..analysis.devices.moved_batches import moved_batches
from ..analysis.devices.moves import Mover
from ..analysis.devices.resting_models import placed_models
from ..analysis.distributed.apart import left_on_cpu, met_apart
from ..analysis.effects.checkpoints import in_front
from ..analysis.effects.existing_guards import guarded, in_turn
from ..analysis.effects.read_back import ReadBack
from ..analysis.layouts.by_hand.plan import ShardedBatches
from ..analysis.layouts.divergence import Equality
from ..analysis.layouts.metrics import Evaluation
from ..analysis.layouts.noisy_passes import agreements_on_noise
from ..analysis.layouts.random_evaluations import agreements
from ..analysis.syntax.walk import descendants
from ..facts.effects import EffectKind
from ..facts.module import Gather
from ..facts.placement import Move, Placement
from ..facts.reasons import Reason
from ..facts.reasons.devices import RowAtRest
from ..facts.roles import Origin, Role
from .collected import Collected
from .device_reads import vanishing
from .prepare import plan
from .prepared_names import held_last
from .program import AcceleratorSettings, ProgramFacts
from .settled_way import MOVES, SettledWay


class Attempt:
    """
    What comes of some evaluations; the settings of the program are those of the last attempt.

    Args:
        program: what is known before.
        evaluations: its evaluations, those that are left whole among them.
    """

    def __init__(self, program: ProgramFacts, evaluations: Sequence[Evaluation]) -> None:
        self.program, self.evaluations = program, list(evaluations)
        self.state, self.reach, self.training = program.state, program.reach, program.training
        self.settings = program.settings = AcceleratorSettings(Constants(self.state))
        self.plan = plan(self.state, self.reach, self.training, self.evaluations, self._loaders())
        mover = self._mover()
        self.parts = {unit: Collected(program, unit, self.plan, self.evaluations, mover) for unit in self.reach.units}
        self._place(mover)
        self._wait_for_files()
        self._decide()
        self._choose_cpu()
        self.way = SettledWay(program, list(self.parts.values()), self.plan).find()
        self._tell_lost_flag()

    def _loaders(self) -> set[Origin] | None:
        """The loaders to prepare, where the script shares the rows by itself; None where prepare shares them."""
        program = self.program
        if not program.settled:
            return None
        return program.hand.sharded if program.hand is not None and program.abilities.keeps_samplers else set()

    def _mover(self) -> Mover:
        return Mover(
            self.state,
            self.reach,
            self.training,
            prepared=self.plan.prepared,
            arriving={loader for _, found in self.plan.arrivals for loader in self.reach.loaders(found.loop)},
            stands=self.plan.stands,
            existing=self.program.adopted,
            shared=self.program.shared,
            whole=self.plan.copied,
        )

    def _place(self, mover: Mover) -> None:
        """Add the moves of models that no statement of the script moves, or that it moves too late."""
        for placement in placed_models(mover, self._early):
            self.parts[self.reach.unit_of(placement.node, self.reach.units[0])].placements.append(placement)
        if not self.program.adopted:
            for unit, placement in fed_before_move(mover, self.reach, self.training, self._early):
                self.parts[unit].placements.append(placement)

    def _tell(self, found: Iterable[tuple[Unit, Reason]]) -> None:
        for unit, finding in found:
            self.parts[unit].findings.append(finding)

    # Files ------------------------------------------------------------------------------------------------------------

    def _wait_for_files(self) -> None:
        """Let all processes wait for what one of them writes, and none inside the turn of another."""
        turns = [e for part in self.parts.values() for e in part.effects if e.kind is EffectKind.DOWNLOAD]
        if not self.program.settled:
            files = self._read_back([e.node for e in turns])
            for unit, part in self.parts.items():
                part.read_back = files.waits(unit)
            self._tell((*files.unsure(), *files.without_wait()))
        inside = self._run_in_turn([e.node for e in turns if not e.guarded])
        asked = self._run_in_turn([e.node for e in turns]) - inside
        for part in self.parts.values():
            part.leave_to_turn(inside, asked)
            part.leave_to_askers()

    def _read_back(self, turns: Sequence[cst.CSTNode]) -> ReadBack:
        parts, training = self.parts, self.training
        written = {unit: part.written() for unit, part in parts.items()}
        loads = {unit: [at for ld in part.loads if (at := ld.waits_before)] for unit, part in parts.items()}
        together = [gather.node for part in parts.values() for gather in part.gathers]
        together += [record.node for record in (*training.backwards, *training.steps)]
        uncertain = (ld.waits_before for part in parts.values() for ld in part.loads if not ld.written)
        perhaps = {node for node in uncertain if node is not None}
        return ReadBack(self.state, self.reach, written, turns, loads, together, perhaps)

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

    # What all processes decide alike ----------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Make what all processes decide alike equal on them, or say what is not."""
        held = self.state.loaders.items()
        shared = [loop for loop, loaders in held if any(self._is_shared(loop, loader) for loader in loaders)]
        gathers = self._gathers()
        cut = self.program.batches.shards if isinstance(self.program.batches, ShardedBatches) else ()
        equality = Equality(self.state, self.reach, self.training, shared, gathers, cut, early=self._reads_early)
        for part in self.parts.values():
            part.decide(equality)
        self._tell(self._apart(equality, gathers))
        self._tell(self._on_cpu())
        if self.program.settled:
            return
        own = self._gathers()
        self._agree(agreements(self.state, self.reach, self.training, equality, own, self._open))
        self._agree(agreements_on_noise(self.training, equality, self._gathers(), self._early, self._open))

    def _agree(self, answers: Iterable[tuple[Unit, Gather | Reason]]) -> None:
        for unit, answer in answers:
            if isinstance(answer, Gather):
                self.parts[unit].gathers.append(answer)
            else:
                self.parts[unit].findings.append(answer)

    def _gathers(self) -> list[tuple[Unit, Gather]]:
        return [(unit, gather) for unit, part in self.parts.items() for gather in part.gathers]

    def _is_shared(self, loop: cst.CSTNode, loader: Origin) -> bool:
        prepared = loader in self.plan.prepared and loop not in self.plan.copied
        return prepared and not self._reads_early(loop, loader)

    def _apart(self, equality: Equality, gathers: Iterable[tuple[Unit, Gather]]) -> Iterator[tuple[Unit, Reason]]:
        """Findings for what all processes must do together, and only some of them come to."""
        if self.program.adopted:
            return
        backwards = [(record.unit, record.node) for record in self.training.backwards]
        steps = [(record.unit, record.node) for record in self.training.steps]
        loops = [(self.reach.unit_of(loop, self.reach.units[0]), loop) for loop in equality.shared]
        whole = [(unit, gather.node) for unit, gather in gathers]
        # what a script that distributes itself steps and reads on one process is its author's affair
        together = backwards if self.program.settled else (*backwards, *steps, *loops, *whole)
        yield from met_apart(self.program.guards, together)

    def _on_cpu(self) -> Iterator[tuple[Unit, Reason]]:
        """Findings for what stays whole by the script's own will, and is moved by nobody."""
        if self.program.adopted:
            return
        alone = {evaluation.loop: evaluation.because for evaluation in self.evaluations if evaluation.alone}
        prepared, moved = self.plan.prepared, moved_batches(self.state, self.reach)
        coming = {arrival.loop for _, arrival in self.plan.arrivals}
        for loop in (*self.training.train_loops, *self.training.eval_loops):
            because = alone.get(loop, "it has no DistributedSampler" if self.program.hand is not None else "")
            if because and isinstance(loop, cst.For):
                unit = self.reach.unit_of(loop, self.reach.units[0])
                still = held_last(self.state, unit, loop.iter, Role.LOADER) - prepared - moved
                if still and loop not in coming:
                    yield unit, left_on_cpu(unit, loop, because)

    # The script's own choice of the CPU -------------------------------------------------------------------------------

    def _choose_cpu(self) -> None:
        """Find the condition under which the script keeps to the CPU, and say what of it is not followed."""
        program, placed = self.program, [(u, p) for u, part in self.parts.items() for p in part.placements]
        flag, told = cpu_flag(self.state, self.reach, placed)
        if flag is None and program.existing is None:
            flag = self._kept_flag([placement for _, placement in placed])
            told = [*told, *(flag.told if flag is not None else ())]
        moving = [(unit, placement) for unit, placement in placed if placement.move in MOVES]
        told = [*told, *(spread(moving) if not program.adopted and program.hand is None else ())]
        asks = program.existing is None and flag is None and not moving
        stays = cpu_only(self.state, self.reach, self.training, self._early, self.plan.prepared) if asks else None
        if stays is not None:
            hosted = [placement.node for _, placement in placed if placement.move is Move.HOST]
            flag, told = always_cpu(stays.unit), [*told, (stays.unit, stays.told(hosted))]
            for part in self.parts.values():  # all is on the CPU already
                spared = [p for p in part.placements if p.move is Move.HOST or p.beside is not None]
                part.placements = [p for p in part.placements if p not in spared and p not in part.scattered]
                part.findings = [found for found in part.findings if not isinstance(found, RowAtRest)]
                part.scattered = []
        self.settings.flag = flag
        self._tell(told)
        if flag is None and not asks and program.existing is None:
            self._tell(made_in_forward(self.state, self.reach, self.training, self.plan.prepared))

    def _kept_flag(self, placements: Sequence[Placement]) -> Flag | None:
        """The condition under which an object keeps the CPU as its device."""
        gone = {node for placement in placements for node in vanishing(placement)}
        aims = given_aims(self.state, self.reach, gone | self._places(placements))
        kept = kept_device(self.state, self.reach, gone, aims, self.plan.code)
        if kept is not None:
            return kept
        aims |= self._places(placements, of_all=True)
        chosen = kept_choice(self.state, self.reach, self.program.fields, aims)
        reads = (read for _, name in self.program.devices for read in name.binding.reads)
        if chosen is not None and not aims.isdisjoint(reads):
            return chosen._replace(settled=False)  # the script moves things to another device, too
        return chosen

    def _places(self, placements: Sequence[Placement], *, of_all: bool = False) -> set[cst.CSTNode]:
        """What names the devices of the moves that stay, of models or of all."""
        calls = [p.node for p in placements if p.move is Move.RETARGET and isinstance(p.node, cst.Call)]
        moved = [c for c in calls if of_all or origins(self.state.calls[c].receiver, Role.MODEL)]
        return {node for call in moved for arg in call.args for node in descendants(arg)}

    def _tell_lost_flag(self) -> None:
        """Say where the accelerator is made without the condition by which the script keeps to the CPU."""
        flag, home = self.settings.flag, self.way.home
        if flag is not None and flag.text and home is not None and "cpu" not in dict(home[1].arguments):
            lost = unread(self.state, flag)
            if lost is not None:
                self._tell([(self.reach.unit_of(flag.test, flag.unit), lost)])

    # Before prepare ---------------------------------------------------------------------------------------------------

    def _reads_early(self, node: cst.CSTNode, loader: Origin) -> bool:
        """Whether a node reads a loader only before its ``prepare``: the batches are whole."""
        stands = self.plan.stands.get(loader)
        unit = self.reach.unit_of(node, self.reach.units[0])
        return stands is not None and in_front(stands, unit, self.reach, node)

    def _early(self, call: cst.Call, model: Origin) -> bool:
        """Whether a model is still on the CPU where it is called: before its ``prepare``, or without one."""
        stands, unit = self.plan.stands.get(model), self.state.calls[call].unit
        return stands is None or in_front(stands, unit, self.reach, call)

    def _open(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether all processes run a piece of code that no file outside the program calls."""
        return unit.names.function(node) not in self.program.shared and not guarded(self.state, unit, node)
