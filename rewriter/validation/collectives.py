"""No collective may run on only some of the processes: it hangs, or is matched with another collective."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.training.training import method_name
from .guards import TURNS, Guards
from .program import EmittedProgram
from .violation import Violation

COLLECTIVES = frozenset(
    "prepare prepare_model gather gather_for_metrics reduce broadcast broadcast_object_list pad_across_processes "
    "wait_for_everyone backward clip_grad_norm_ clip_grad_value_ save_state save_model get_state_dict "
    "main_process_first local_main_process_first".split()
)
"""Methods of the accelerator that all processes must call together."""


def apart(program: EmittedProgram, guards: Guards) -> Iterator[Violation]:
    """The collectives that not every process calls."""
    for record in program.accelerated:
        name = method_name(record.node)
        if name in COLLECTIVES:
            guard = guards.of(record.unit, record.node)
            if guard is not None and not (name in TURNS and isinstance(guard.node, cst.With)):
                # with nested blocks, the first process leaves the inner one when the others enter the outer one
                words = f"`{name}` waits for all processes, but only some of them come to it"
                yield Violation("collective-apart", program.at(record), words, guard)
