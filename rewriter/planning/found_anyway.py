"""What is found in one module whatever is prepared and gathered: looked for once, however often a plan is tried."""

from __future__ import annotations

from ..analysis.dataflow.values import Unit
from ..analysis.devices.visible_gpus import visible_devices
from ..analysis.diagnostics.differences import same_noise, same_rows
from ..analysis.diagnostics.own_streams import own_streams
from ..analysis.diagnostics.refusals import contradictions
from ..analysis.diagnostics.remarks import remarks
from ..analysis.diagnostics.set_orders import set_orders
from ..analysis.effects import checkpoints
from ..analysis.effects.folders import folders
from ..analysis.effects.unseen import unseen
from ..analysis.layouts.by_hand.plan import ShardedBatches
from ..analysis.layouts.epochs.averages import averages
from ..analysis.training.cached_batches import kept_batches
from .program import ProgramFacts


class FoundAnyway:
    """What does not depend on a plan."""

    def __init__(self, program: ProgramFacts, unit: Unit) -> None:
        state, reach, training = program.state, program.reach, program.training
        self.chosen = visible_devices(unit, reach) if program.existing is None else []
        """The statements that choose GPUs for the process."""
        batches = program.batches if isinstance(program.batches, ShardedBatches) else ShardedBatches()
        done = () if batches.batches else batches.loops
        split, path = program.config.keep_global_batch, program.gradient_path
        abilities = program.abilities
        self.totals = list(averages(state, unit, reach, training, path, abilities, split=split, done=done))
        """What becomes of the figures of epochs."""
        self.folders = list(folders(state, unit, reach))
        self.loads = list(checkpoints.loads(state, unit, reach, training))
        self.contradictions = list(contradictions(state, unit, reach))
        self.remarks = [
            *kept_batches(state, unit, training),
            *remarks(state, unit, reach, training, split=split),
            *same_noise(state, unit, reach, training),
            *same_rows(state, unit, reach),
            *own_streams(state, unit, reach),
            *set_orders(state, unit, reach),
        ]
        self.unseen = list(unseen(state, unit, reach, training))


def found_anyway(program: ProgramFacts, unit: Unit) -> FoundAnyway:
    """What is found in a module of a program; one answer for all plans."""
    return program.state.once((FoundAnyway, unit.name), lambda: FoundAnyway(program, unit))
