"""What is known of a program as a whole, before its modules are gone through one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import External, Function, State, Unit, origins
from ..analysis.devices.constants import Constant, Constants, constants, lent
from ..analysis.devices.device_fields import device_fields, given_fields
from ..analysis.devices.device_flags import Flag
from ..analysis.devices.device_names import DeviceName, device_names
from ..analysis.devices.visible_gpus import is_environment
from ..analysis.diagnostics.differences import weighted
from ..analysis.diagnostics.refusals import refusals
from ..analysis.distributed.distribution import by_hand
from ..analysis.distributed.guards import Guards
from ..analysis.distributed.manual_ddp import ByHand
from ..analysis.distributed.rank_questions import RankQuestions
from ..analysis.distributed.row_sources import row_sources
from ..analysis.distributed.sampled_loaders import settled
from ..analysis.distributed.tracing import Tracer
from ..analysis.effects.file_caches import FileQuestions
from ..analysis.effects.folders import received
from ..analysis.layouts.by_hand.plan import ShardedBatches, batches_by_hand
from ..analysis.layouts.by_hand.trainings import trainings
from ..analysis.layouts.by_hand.trial import Obstacle
from ..analysis.layouts.loss_reductions import LossReductions
from ..analysis.layouts.random_splits import unseeded
from ..analysis.precision.precision import PrecisionSetting
from ..analysis.syntax.nodes import parameters
from ..analysis.syntax.scopes import Binding
from ..analysis.training.gradient_path import GradientPath
from ..analysis.training.training import Training, find, updated_by_hand
from ..config import Config, Target
from ..facts.abilities import ACCELERATE, TORCHLIFT
from ..facts.accelerate_names import PREPARES
from ..facts.effects import Received
from ..facts.module import Unsynced
from ..facts.reasons import Reason
from ..facts.roles import Origin, Role
from ..facts.torch_api import process_calls
from .accelerate_imports import Swaps, swaps
from .accumulation import Window
from .holders import Holders
from .shared_code import shared_code

_ABILITIES = {Target.TORCHLIFT: TORCHLIFT, Target.ACCELERATE: ACCELERATE}
_NAMES = ("accelerator", "torchlift_accelerator", *(f"torchlift_accelerator_{n}" for n in range(2, 99)))
"""The accelerator's name in emitted code: the first that the script does not use."""


@dataclass(eq=False)
class AcceleratorSettings:
    """The arguments of the accelerator's constructor, and what they depend on: one plan's, while others are tried."""

    constants: Constants
    """Devices that modules keep for everybody."""
    flag: Flag | None = None
    """The script's own condition for the CPU."""
    precision: PrecisionSetting | None = None
    window: Window | None = None
    unsynced: tuple[Unit, Unsynced] | None = None


class ProgramFacts:
    """What holds for all modules of one program: its training, how it is distributed, what refuses it."""

    def __init__(self, state: State, config: Config) -> None:
        self.state, self.config = state, config
        self.reach = Reach(state)
        self.training: Training = find(state, self.reach)
        self.existing = self._existing()
        swapped = self.existing is not None and config.target is Target.TORCHLIFT
        self.swaps = swaps(state, self.reach.units) if swapped else Swaps()
        self.abilities = _ABILITIES[config.target]
        self.shared = shared_code(self.reach)
        self.optional: set[Code] = set()
        """Those of them that may get the accelerator as a last parameter which nobody else has to give."""
        self.trainers: set[Code] = set()
        """The constructors among these: whoever calls them, their objects prepare what they train."""
        self.hand = self._by_hand()
        self.settled = self.hand is not None or (
            self.existing is not None and (settled(state) or self._makes_batches())
        )
        """The script was written for several processes: who prints and what is summed is left to its author."""
        self.adopted = self.existing is not None and (self.settled or self._prepares())
        """The script works with its own accelerator already, and has made its own moves."""
        self.batches = self._batches()
        """How the batches are cut that no loader yields; None where loaders feed the training."""
        obstacle = self.batches if isinstance(self.batches, Obstacle) else None
        self.blocked = list(refusals(state, self.reach, self.training, self.hand, obstacle))
        self.fields = [field for unit in self.reach.units for field in device_fields(state, unit)]
        self.redefined: set[str] = set()
        """Attributes that hold the accelerator's device, wherever they are set."""
        found = [(unit, name) for unit in self.reach.units for name in device_names(state, unit)]
        self.devices: list[tuple[Unit, DeviceName]] = [
            (unit, name) for unit, name in found if name.binding.scope.function.node in self.reach.reachable
        ]
        """The variables that hold the device that the script chose."""
        self.given = given_fields(self.reach, self.fields, {name.binding for _, name in self.devices})
        """Attributes that hold what a caller gives: the accelerator's device, where the caller has it."""
        self.tops: list[Constant] = constants(state, self.reach, self.devices)
        self.lent = {top.name.binding for top in self.tops if lent(top)}
        self.settings = AcceleratorSettings(Constants(state))
        self.draws = unseeded(state, self.reach) if self.existing is None and self.hand is None else []

    @cached_property
    def holders(self) -> Holders:
        """The classes of the program, and who could keep the accelerator for which of their methods."""
        return Holders(self.state, self.reach)

    @cached_property
    def rows(self) -> set[cst.CSTNode]:
        """The calls of whose values the rows of loaders may be made."""
        return row_sources(self.state, self.reach)

    @cached_property
    def gradient_path(self) -> GradientPath:
        """What a backward pass may flow through."""
        return GradientPath(self.reach, self.training)

    @cached_property
    def loss_reductions(self) -> LossReductions:
        """What the losses are over the rows of a batch."""
        return LossReductions(self.state)

    @cached_property
    def file_questions(self) -> FileQuestions:
        """The questions for files that each process asks for itself."""
        return FileQuestions(self.reach, self.training)

    @cached_property
    def received(self) -> list[tuple[Unit, Received | Reason]]:
        """Names of folders that the main process makes and hands to the others."""
        return list(received(self.state, self.reach))

    @cached_property
    def weighted(self) -> list[tuple[Unit, Reason]]:
        """Losses that are normalised by something else than the number of rows."""
        return list(weighted(self.state, self.reach, self.training))

    @cached_property
    def guards(self) -> Guards:
        """The code that not every process comes to, by the script's own conditions."""
        return Guards(self.state, self.reach, RankQuestions(Tracer(self.state, self.reach)))

    @cached_property
    def given_away(self) -> set[Code]:
        """
        The functions that code outside the program may run, in whatever process, and what they call.

        What the command line alone starts is not among them: it runs in the script's own process.
        """
        state, started = self.state, self.state.commands
        handed = {
            thing.node
            for node, slot in (state.values.items() if started else ())
            for thing in slot.things
            if isinstance(thing, Function) and thing.node in started and not self._is_called(node)
        }
        known = (f for f in state.escaped if f in self.reach.reachable and (f not in started or f in handed))
        return {code for function in known for code in self.reach.below(function)}

    def _is_called(self, node: cst.CSTNode) -> bool:
        """Whether an expression is what a call calls."""
        parents = (unit.names.parents.get(node) for unit in self.reach.units)
        return any(isinstance(parent, cst.Call) and parent.func is node for parent in parents)

    @cached_property
    def environment(self) -> list[tuple[Unit, cst.CSTNode]]:
        """The assignments that set a variable of the environment, perhaps for what the accelerator starts."""
        return [
            (unit, node)
            for unit in self.reach.units
            for node in unit.names.every(cst.Assign)
            if any(isinstance(t.target, cst.Subscript) and is_environment(unit, t.target.value) for t in node.targets)
        ]

    def _by_hand(self) -> ByHand | None:
        """How the script distributes itself, where the accelerator is to take its place."""
        if self.existing is not None or not self.config.enables("hand_written_ddp"):
            return None
        return by_hand(self.state, self.reach, self.training, self.abilities, self.shared)

    def _batches(self) -> ShardedBatches | Obstacle | None:
        training = self.training
        if not training.backwards:
            return None
        if training.train_loops:
            return self._batches_beside_loaders()
        if self.hand is not None or (self.existing is not None and self._makes_batches()):
            # each process makes batches of its own already, and goes on as its author has decided
            steps = (step for each in trainings(self.state, self.reach, training) for step in each.steps)
            training.train_loops.update(dict.fromkeys(steps))
            return None
        found = batches_by_hand(self.state, self.reach, training, self.abilities.shards_batches)
        if isinstance(found, ShardedBatches):
            training.train_loops.update(dict.fromkeys(found.loops))
            if not training.optimizers:
                updated_by_hand(self.state, self.reach, training)
        return found

    def _batches_beside_loaders(self) -> ShardedBatches | None:
        """How the batches are cut of a training that has no loader, in a program where another has one: a head that is
        trained on features. What cannot be cut, each process trains on as a whole."""
        if self.hand is not None or (self.existing is not None and not self._cuts()):
            return None
        found = batches_by_hand(self.state, self.reach, self.training, self.abilities.shards_batches)
        if not isinstance(found, ShardedBatches):
            return None
        self.training.train_loops.update(dict.fromkeys(found.loops))
        return found

    def _cuts(self) -> bool:
        """Whether the script cuts batches for the processes by itself."""
        return any(method_name(call) == "shard_batch" for unit in self.reach.units for call in unit.names.calls)

    def _makes_batches(self) -> bool:
        """Whether the script makes its batches by hand, and cuts none of them for the processes."""
        return bool(self.training.backwards) and not self.training.train_loops and not self._cuts()

    def _prepares(self) -> bool:
        """Whether the script has something prepared by itself; else its accelerator is all that there is so far."""
        records = self.state.calls.values()
        return any(method_name(r.node) in PREPARES and origins(r.receiver, Role.ACCELERATOR) for r in records)

    def _existing(self) -> tuple[Unit, Origin] | None:
        for record in self.state.calls.values():
            for origin in origins(record.result, Role.ACCELERATOR):
                if not process_calls.only_says_which(origin.qualified) and not _stands_in(record.unit, origin.node):
                    return record.unit, origin
        return None

    @cached_property
    def name(self) -> str:
        """The name of the accelerator in the program."""
        if self.existing is None:
            bindings = (
                b for u in self.reach.units for scope in u.names.scopes.values() for b in scope.bindings.values()
            )
            taken = {binding.name for binding in bindings if not self._is_lent(binding)}
            return next(name for name in _NAMES if name not in taken)
        unit, origin = self.existing
        for binding in unit.names.scope.bindings.values():
            if origin in self.state.binding(binding).things:
                return binding.name
        for scope in unit.names.scopes.values():
            for binding in scope.bindings.values():
                if origin in self.state.binding(binding).things:
                    return binding.name
        return _NAMES[0]

    def _is_lent(self, binding: Binding) -> bool:
        """Whether a variable is a parameter for an accelerator that no call gives: its function may make one."""
        things = [
            thing for thing in self.state.binding(binding).things if not (isinstance(thing, External) and thing.is_none)
        ]
        made = [thing.node for thing in things if isinstance(thing, Origin) and thing.role is Role.ACCELERATOR]
        first = self.reach.units[0]
        lent = all(_stands_in(self.reach.unit_of(node, first), node) for node in made)
        return lent and len(made) == len(things) and any(isinstance(d, cst.Param) for d in binding.definitions)


def _stands_in(unit: Unit, made: cst.CSTNode) -> bool:
    """Whether an accelerator is made for callers of a function that give it none: ``if accelerator is None: ...``."""
    function, statement = unit.names.function(made), unit.names.statement(made)
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    target = small.targets[0].target if isinstance(small, cst.Assign) else None
    asked = next(unit.names.enclosing(made, cst.If), None)
    if not isinstance(function, cst.FunctionDef) or not isinstance(target, cst.Name) or not isinstance(asked, cst.If):
        return False
    own = any(p.name.value == target.value and p.default is not None for p in parameters(function))
    return own and asked.test.deep_equals(cst.parse_expression(f"{target.value} is None"))
