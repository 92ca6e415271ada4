"""What needs the accelerator where it does not reach: a finding for each, and no edit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import Unit
from ..analysis.syntax.walk import descendants
from ..facts.accelerator import Prepare
from ..facts.checkpoints import Save, Wait
from ..facts.effects import Effect, EffectKind, Handle, Received
from ..facts.module import Form, Gather
from ..facts.reasons import about
from ..findings import Finding, Severity
from .shared_code import shared_by, together

UNREACHED = "accelerator-out-of-reach"
_RULES = {EffectKind.DOWNLOAD: "downloads", EffectKind.FETCH: "downloads", EffectKind.BAR: "progress_bars"}
Here = Callable[[cst.CSTNode], bool]


def unreached_backwards(
    unit: Unit, reach: Reach, calls: Iterable[cst.Call], shared: Mapping[Code, str], here: Here, *, existing: bool
) -> Iterator[Finding]:
    """Backward passes to which the accelerator cannot be brought; ``existing``: the script makes it by itself."""
    for call in calls:
        code = unit.names.function(call)
        if code not in reach.reachable or method_name(call) != "backward" or here(call):
            continue
        user = shared_by(reach, shared, code)
        if user is not None:
            yield together(call, user, f"the {'function' if code in shared else 'class'} around this backward pass")
            continue
        if code is unit.names.module:
            yield _at_top(call, existing=existing)
            continue
        dead = dead_caller(reach, code)
        if dead is not None:
            yield _blocked(
                call,
                f"the accelerator cannot be passed to this backward pass: {dead}, which nothing calls, also calls the "
                "function around it and would lack the new argument",
                f"remove {dead}, or call it: all calls of a function are changed together",
                case="dead-caller",
            )
            continue
        yield _blocked(
            call,
            "the accelerator cannot be passed to this backward pass: some calls of the function around it, or some "
            "places that create its object, are not known",
            "call the function by its name and create its object directly, after the line that creates the "
            "accelerator; or migrate it by hand",
            case="unknown-call",
        )


def _at_top(call: cst.Call, *, existing: bool) -> Finding:
    """What is said of a backward pass in no function."""
    if existing:
        return _blocked(
            call,
            "this backward pass comes before the line that creates the accelerator",
            "create the accelerator before the training",
            case="too-early",
        )
    return _blocked(
        call,
        "the accelerator cannot be created before this backward pass: what it trains is built in other code",
        "build the model, the optimizer and the loader in this file, before the training",
        case="too-early",
    )


def dead_caller(reach: Reach, code: Code) -> str | None:
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
    why: Callable[[cst.CSTNode], str],
) -> Iterator[Finding]:
    """Prints, writes and names of folders that every process makes; ``why``: what keeps the accelerator from a node."""
    away = [effect for effect in effects if not here(effect.node) and not effect.optional]
    within = {node for effect in away for node in descendants(effect.node) if node is not effect.node}
    for effect in away:
        if effect.node not in within:  # what is guarded with a statement around it has been named there
            yield Finding(
                _RULES.get(effect.kind, "main_process"),
                effect.node,
                f"every process {effect.verb} this, because {why(effect.node)}",
                "let it run after the line that creates the accelerator, or guard it by hand",
                Severity.REVIEW,
                case="out-of-reach",
            )
    for handle in handles:
        if not here(handle.call):
            yield Finding(
                "once",
                handle.call,
                f"{handle.because}, because {why(handle.call)}",
                "do this after the line that creates the accelerator, or guard it by hand",
                Severity.REVIEW,
                case="object",
            )
    for name in received:
        if not here(name.node):
            yield Finding(
                "directories",
                name.source,
                f"{name.because}, because {why(name.node)}",
                "make the name after the line that creates the accelerator, and broadcast it with "
                "broadcast_object_list",
                Severity.REVIEW,
                case="unused-name",
            )


def unreached_waits(waits: Iterable[Wait], here: Here) -> Iterator[Finding]:
    """Files that the main process alone writes, or takes away, where nobody can wait for the others."""
    for wait in waits:
        if not here(wait.node):
            yield Finding(
                "read-back",
                wait.node,
                f"{wait.because}, and no wait is added, because this code has no access to the accelerator: a process "
                "may be here before the others are done",
                "where the accelerator has been created before, write PartialState().wait_for_everyone() before this "
                "line; PartialState is imported from torchlift.runtime",
                Severity.REVIEW,
                case="out-of-reach",
            )


def unreached_saves(saves: Iterable[Save], here: Here) -> Iterator[Finding]:
    """Checkpoints that every process writes."""
    for save in saves:
        if not here(save.call):
            yield Finding(
                "checkpoint_save",
                save.call,
                "every process writes this file, because this code has no access to the accelerator",
                "save with accelerator.save(...)",
                Severity.BLOCKED,
                case="out-of-reach",
            )


def unreached_work(
    unit: Unit,
    prepares: Iterable[Prepare],
    gathers: Iterable[Gather],
    shared: Mapping[Code, str],
    here: Here,
    joined: Here,
    *,
    dead: bool,
) -> Iterator[Finding]:
    """
    Places where something would be prepared, or a metric made whole.

    Args:
        joined: where the processes are joined, with the accelerator or without.
        dead: a function that nothing calls keeps the accelerator from the training: that is said there.
    """
    for prepare in prepares:
        code = unit.names.function(prepare.wraps or prepare.node)
        if code in shared and not here(prepare.wraps or prepare.node):
            yield together(prepare.node, shared[code], "the function that builds this part of the training")
        elif not here(prepare.wraps or prepare.node) and not dead:
            yield _blocked(
                prepare.node,
                "this part of the training is built in code that has no access to the accelerator",
                "build it after the line that creates the accelerator, in the same function",
                case="built-elsewhere",
            )
    for gather in gathers:
        if gather.form is Form.RECEIVE:
            if not joined(gather.node):
                yield Finding(
                    "local-decision",
                    gather.node,
                    f"{about(gather.because, *(gather.names or gather.inline))}; this evaluation may run before the "
                    "accelerator exists",
                    "call it after the line that creates the accelerator",
                    Severity.BLOCKED,
                    case="early",
                )
        elif not here(gather.node):
            yield Finding(
                "metrics_gather",
                gather.node,
                "this figure covers only one process's shard of the data: this code has no access to the accelerator",
                "gather it by hand where the accelerator is available",
                Severity.REVIEW,
                case="out-of-reach",
            )


def unmoved(loop: cst.For) -> Finding:
    """A loop whose batches stay on the CPU, because the code around it does not know the device."""
    return Finding(
        "prepare",
        loop,
        "nothing moves the batches of this loop to a GPU, where the prepared model is: this code has no access to the "
        "accelerator",
        "call it after the line that creates the accelerator, or move its batches to the device of the model",
        Severity.REVIEW,
        case="not-moved",
    )


def _blocked(node: cst.CSTNode, message: str, remedy: str, *, case: str) -> Finding:
    return Finding(UNREACHED, node, message, remedy, Severity.BLOCKED, case=case)
