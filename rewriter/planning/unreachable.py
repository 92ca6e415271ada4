"""What needs the accelerator where it does not reach: a finding for each, and no edit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.values import Unit
from ..analysis.training.training import method_name
from ..facts.effects import Effect, EffectKind, Handle, Received
from ..facts.module import Gather, Prepare, Save
from ..findings import Finding, Severity
from .shared_code import together

_RULES = {EffectKind.DOWNLOAD: "downloads", EffectKind.FETCH: "downloads", EffectKind.BAR: "progress_bars"}
Here = Callable[[cst.CSTNode], bool]


def unreached_backwards(
    unit: Unit, reach: Reach, calls: Iterable[cst.Call], shared: Mapping[Code, str], here: Here
) -> Iterator[Finding]:
    """Backward passes to which the accelerator cannot be brought."""
    for call in calls:
        code = unit.names.function(call)
        if code not in reach.reachable or method_name(call) != "backward" or here(call):
            continue
        if code in shared:
            yield together(call, shared[code], "the function around this backward pass")
            continue
        dead = _dead_caller(reach, code)
        if dead is not None:
            yield _blocked(
                call, f"the accelerator cannot be brought to this backward pass: {dead}, which nothing calls, calls "
                "the function around it as well, and would be left without one",
                f"take {dead} away, or call it: all calls of a function are changed together",
            )  # fmt: skip
            continue
        yield _blocked(
            call, "the accelerator cannot be brought to this backward pass: not all ways in which the function around "
            "it is called, or its object is made, are known",
            "call it by name, and make its object in plain sight behind the line that makes the accelerator; or "
            "migrate it by hand",
        )  # fmt: skip


def _dead_caller(reach: Reach, code: Code) -> str | None:
    """The name of a function that reaches some code, and that the program never runs."""
    for caller in reach.above(code):
        if caller not in reach.reachable and isinstance(caller, cst.FunctionDef):
            return caller.name.value
    return None


def unreached_effects(
    effects: Iterable[Effect],
    handles: Iterable[Handle],
    received: Iterable[Received],
    here: Here,
) -> Iterator[Finding]:
    """Prints, writes and names of folders that every process makes."""
    for effect in effects:
        if not here(effect.node) and not effect.optional:
            yield Finding(
                _RULES.get(effect.kind, "main_process"), effect.node,
                f"every process {effect.verb} this: the accelerator does not exist here",
                "call it behind the line that makes the accelerator, or guard it by hand", Severity.REVIEW,
            )  # fmt: skip
    for handle in handles:
        if not here(handle.call):
            yield Finding(
                "once", handle.call, f"{handle.because}: the accelerator does not exist here",
                "make it behind the line that makes the accelerator, or guard it by hand", Severity.REVIEW,
            )  # fmt: skip
    for name in received:
        if not here(name.node):
            yield Finding(
                "directories", name.source, f"{name.because}: the accelerator does not exist here",
                "make the name behind the line that makes the accelerator, and hand it out with "
                "broadcast_object_list", Severity.REVIEW,
            )  # fmt: skip


def unreached_saves(saves: Iterable[Save], here: Here) -> Iterator[Finding]:
    """Checkpoints that every process writes."""
    for save in saves:
        if not here(save.call):
            yield Finding(
                "checkpoint_save", save.call, "every process writes this file: the accelerator does not reach here",
                "save through accelerator.save(...)", Severity.BLOCKED,
            )  # fmt: skip


def unreached_work(prepares: Iterable[Prepare], gathers: Iterable[Gather], here: Here) -> Iterator[Finding]:
    """Places where something would be prepared, or a metric made whole."""
    for prepare in prepares:
        if not here(prepare.wraps or prepare.node):
            yield _blocked(
                prepare.node, "what training uses is built where the accelerator does not reach",
                "build it behind the line that makes the accelerator, in the same function",
            )  # fmt: skip
    for gather in gathers:
        if not here(gather.node):
            yield Finding(
                "metrics_gather", gather.node, "this figure stays that of one process's share of the data: the "
                "accelerator does not reach here",
                "gather it by hand where the accelerator is at hand", Severity.REVIEW,
            )  # fmt: skip


def _blocked(node: cst.CSTNode, message: str, remedy: str) -> Finding:
    return Finding("accelerator-out-of-reach", node, message, remedy, Severity.BLOCKED)
