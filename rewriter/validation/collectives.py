"""No collective may run on only some of the processes: it hangs, or is matched with another collective."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.callees import method_name, outside_name
from ..analysis.distributed.guards import Guards
from ..analysis.effects.file_caches import FileQuestions
from ..facts.torch_api import process_calls
from .program import EmittedProgram
from .violation import Violation

INVARIANT = "collective-apart"


def apart(program: EmittedProgram, guards: Guards) -> Iterator[Violation]:
    """The collectives that not every process calls."""
    asking = FileQuestions(program.reach, program.training)
    for record in program.accelerated:
        name = method_name(record.node)
        if name in process_calls.together():
            guard = guards.of(record.unit, record.node)
            if guard is not None and not (name in process_calls.turns() and isinstance(guard.node, cst.With)):
                # with nested blocks, the first process leaves the inner one when the others enter the outer one
                words = f"`{name}` waits for all processes, but only some of them come to it"
                yield Violation(INVARIANT, program.at(record), words, guard)
            elif name == "wait_for_everyone":
                asked = asking.before(record.node)
                if asked is not None:
                    words = f"`{name}` waits for all processes, but each asks by itself for a file that leads to it"
                    yield Violation(INVARIANT, program.at(record), words, asked.place)


def parted_by_script(program: EmittedProgram, guards: Guards) -> Iterator[Violation]:
    """Where a script that is distributed by hand lets some processes wait: ``if rank != 0: dist.barrier()``, which the
    others do elsewhere."""
    for record in program.records:
        if outside_name(record) in _WAITS and (guard := guards.of(record.unit, record.node)) is not None:
            yield Violation(INVARIANT, program.at(record), "the script's own", guard)


_WAITS = frozenset({"torch.distributed.barrier", "torch.distributed.monitored_barrier"})
