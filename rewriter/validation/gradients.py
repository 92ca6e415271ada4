"""Every backward pass of the training uses the accelerator, and its path has no gathered or detached tensor."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.values import origins
from ..facts.roles import Role
from ..facts.torch_api import process_calls
from .program import EmittedProgram
from .violation import Violation


def backwards(program: EmittedProgram) -> Iterator[Violation]:
    """The backward passes that do not use the accelerator."""
    if not program.accelerated:
        return
    for record in program.training.backwards:
        if not origins(record.receiver, Role.ACCELERATOR):
            words = "this backward pass of the training does not go through the accelerator"
            yield Violation("backward", program.at(record), words, program.at(program.accelerated[0]))


def joined(program: EmittedProgram) -> Iterator[Violation]:
    """Collectives through which a backward pass would flow."""
    path = program.gradient_path.nodes
    for record in program.accelerated:
        if record.node in path and method_name(record.node) in process_calls.exchanging():
            words = f"`{method_name(record.node)}` joins the values of all processes on the path of a training loss"
            yield Violation("gradient-gathered", program.at(record), words, program.at(program.training.backwards[0]))


def cut(program: EmittedProgram) -> Iterator[Violation]:
    """Places where the path of a training loss ends in a value without a gradient."""
    for unit in program.reach.units:
        for call in unit.names.calls:
            if call in program.gradient_path.ends and isinstance(call.func, cst.Attribute):
                words = f"`{call.func.attr.value}` takes the gradient from a part of a training loss"
                yield Violation("gradient-cut", CodePlace(unit, call), words, program.at(program.training.backwards[0]))
