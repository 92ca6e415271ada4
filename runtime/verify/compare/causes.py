"""The likeliest cause of a broken promise, from what is broken beside it and from the line that it points to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..overview import FOLLOWS
from ..verdict import Outcome, Promise
from .origins import origin_of

_GATHER = (
    "it is computed from the rows of one process: call `accelerator.gather_for_metrics(...)` on what it is computed "
    "from, or `accelerator.reduce(...)` on a sum or a count"
)
_GUARD = "a guard is missing: print with `accelerator.print(...)`, or put `if accelerator.is_main_process:` above it"
_SAVE = "a guard is missing: save with `accelerator.save(...)`, or put `if accelerator.is_main_process:` above it"
_HANDED = "the loss is not handed over: write `accelerator.backward(loss)` for `loss.backward()`"
_ROWS = "the processes read other rows than the original (see the samples)"
_LOADER = "this loader is not given to `accelerator.prepare(...)`"
_MODEL = (
    "the model is not given to `accelerator.prepare(...)`, or its weights are changed outside of `optimizer.step()` by "
    "a value of one process"
)
_TWICE = "the loss is divided or multiplied by hand, and `accelerator.backward` does it too"
_RATE = (
    "`scheduler.step()` is called another number of times, or the scheduler was built with `len(loader)` after "
    "`prepare`, which is shorter there"
)
_WAIT = (
    "not all processes come to this line: it is under a guard (`if accelerator.is_main_process:`), or under a "
    "condition on a value that differs between processes"
)
_WRAPPED = "save `accelerator.get_state_dict(model)`"
_DEVICE = (
    "one of the tensors is made on the CPU: give it `device=accelerator.device`; or the model is not given to "
    "`accelerator.prepare(...)`"
)
_UNCLEAR, _NOT_PREPARED = "UnclearBatchError", "NotPreparedError"
_OF_A_STEP = ("ranks", "rates", "losses", "gradients", "weights")
"""Promises about one step, in the order in which a break of one leads to a break of the next."""
_PLAIN = re.compile(r"\.backward\(\s*(?:\)|\w+\s*=)")
"""A backward pass that is called on the loss: the accelerator's is given the loss."""


def explained(
    promises: Sequence[Promise],
    code_of: Callable[[Promise], str],
    text_of: Callable[[Promise], tuple[str, int]] = lambda promise: ("", 0),
) -> list[Promise]:
    """
    Broken promises with the text of their line and their likeliest cause.

    Args:
        promises: of one comparison.
        code_of: what the line says that a promise points to.
        text_of: the migrated text with that line, and the line's number.
    """
    found = [
        _with_cause(replace(promise, code=code_of(promise) if promise.at else ""), promises)
        if promise.outcome is Outcome.BROKEN
        else promise
        for promise in promises
    ]
    return [_with_origin(one, *text_of(one)) if one.cause == _GATHER and one.at else one for one in found]


def _with_origin(promise: Promise, text: str, line: int) -> Promise:
    """A wrong figure with the line that makes it, and what is missing there."""
    origin = origin_of(text, line) if promise.side == "migrated" else None
    if origin is None:
        return promise
    parts = " and ".join(f"`{part}`" for part in origin.parts)
    cause = f"`{origin.name}` is computed from {parts}, of the rows of one process: {origin.missing}"
    place = f"{promise.at[: -len(str(line))]}{origin.line}"
    return replace(promise, cause=cause, origin=place, origin_code=text.split("\n")[origin.line - 1].strip())


def _with_cause(promise: Promise, promises: Sequence[Promise]) -> Promise:
    beside = {
        other.id: other
        for other in promises
        if other.outcome is Outcome.BROKEN and other.processes == promise.processes and other is not promise
    }
    return replace(promise, cause=_cause(promise, beside))


def _cause(promise: Promise, beside: dict[str, Promise]) -> str:
    several = promise.processes > 1
    match promise.id:
        case "runs":
            if _NOT_PREPARED in promise.figure or _NOT_PREPARED in promise.detail:
                return _after(promise, beside, "ranks") or _MODEL
            return _HANDED if _UNCLEAR in promise.figure and _by_itself(promise.code) else ""
        case "waits":
            return _WAIT
        case "samples":
            return _LOADER if "the loader is not sharded" in promise.detail else ""
        case "ranks":
            return _MODEL
        case "losses" | "weights" | "gradients":
            return _of_training(promise, beside)
        case "rates":
            return _RATE
        case "numbers":
            return _after(promise, beside, "weights", "losses") or (_GATHER if several else "")
        case "lines":
            return _GUARD if "also prints it" in promise.detail else ""
        case "files":
            if "is written by processes" in promise.detail:
                return _SAVE
            return _after(promise, beside, "weights", "losses") or (_GATHER if several and _holds(promise) else "")
        case "checkpoints":
            return _WRAPPED if "a wrapper was saved" in promise.detail else _after(promise, beside, "weights")
        case "devices":
            return _DEVICE
    return ""


def _holds(promise: Promise) -> bool:
    """It is about what a file holds, not about whether it is there."""
    return promise.detail.startswith(f"{promise.figure}: ")


def _of_training(promise: Promise, beside: dict[str, Promise]) -> str:
    if "samples" in beside and (beside["samples"].step or 0) <= (promise.step or math.inf):
        return _ROWS
    if promise.processes > 1 and _by_itself(promise.code):
        return _HANDED
    if "once too often" in promise.detail:
        return _TWICE
    found = sorted((beside[id].step or 0, _OF_A_STEP.index(id)) for id in _OF_A_STEP if id in beside)
    first = next(iter(found), (promise.step or 0, 0))
    if first >= (promise.step or 0, _OF_A_STEP.index(promise.id)):
        return ""
    return _after(promise, beside, _OF_A_STEP[first[1]])


def _after(promise: Promise, beside: dict[str, Promise], *ids: str) -> str:
    """It follows from another promise that is broken, the first of some."""
    for id in ids:
        if id in beside:
            step = f", from step {beside[id].step} on" if beside[id].step else ""
            return f'{FOLLOWS}, "{beside[id].promise}"{step}'
    return ""


def _by_itself(code: str) -> bool:
    """A backward pass that does not go through the accelerator."""
    return _PLAIN.search(code) is not None
