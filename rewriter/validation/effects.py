"""Files are written once: by the main process only, or through the accelerator."""

from __future__ import annotations

from collections.abc import Iterator

from ..analysis.dataflow.callees import outside_names
from ..analysis.dataflow.code_place import CodePlace
from ..analysis.distributed.guards import Guards
from ..analysis.effects import checkpoints
from ..facts.effects import EffectKind
from ..facts.torch_api import process_calls
from .program import EmittedProgram
from .violation import Violation

_ONCE = (EffectKind.WRITE, EffectKind.DOWNLOAD, EffectKind.COMMAND)


def is_distributed(program: EmittedProgram) -> bool:
    """Whether the original already ran on several processes: then its author decided which process writes."""
    calls = (name for record in program.state.calls.values() for name in outside_names(record))
    return bool(program.accelerated) or any(process_calls.distributes(name) for name in calls)


def repeated(program: EmittedProgram, guards: Guards) -> Iterator[Violation]:
    """The writes that every process makes."""
    for unit in program.reach.units:
        for effect in program.outputs[unit].effects:
            if effect.kind in _ONCE and not effect.optional and not guards.always(unit, effect.node):
                words = "every process does this, and once is enough"
                yield Violation("effect-once", CodePlace(unit, effect.node), words)
        for save in checkpoints.saves(program.state, unit, program.reach, set()):
            if not guards.always(unit, save.call):
                yield Violation("effect-once", CodePlace(unit, save.call), "every process writes this file")
