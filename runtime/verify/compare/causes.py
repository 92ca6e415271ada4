"""The likeliest cause of a broken promise, from what is broken beside it and from the line that it points to."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..overview import FOLLOWS
from ..verdict import Outcome, Promise
from .devices import CPU_BATCH
from .origins import origin_of, prepared_at, rate_set_at, read_unwaited
from .training import BEFORE, UNLIKE

_GATHER = (
    "it is computed from the rows of one process: call `accelerator.gather_for_metrics(...)` on what it is computed "
    "from, or `accelerator.reduce(...)` on a sum or a count"
)
_GUARD = "a guard is missing: print with `accelerator.print(...)`, or put `if accelerator.is_main_process:` above it"
_SAVE = "a guard is missing: save with `accelerator.save(...)`, or put `if accelerator.is_main_process:` above it"
_HANDED = "the loss is not handed over: write `accelerator.backward(loss)` for `loss.backward()`"
_ROWS = (
    "the data, its split or its order is made differently: compare the lines that make this loader and its data set "
    "(a random split, a sampler, `drop_last`)"
)
_LOADER = "this loader is not given to `accelerator.prepare(...)`"
_MODEL = "the model is not given to `accelerator.prepare(...)`"
_OWN_WEIGHTS = (
    "the weights are changed outside of `optimizer.step()` by a value of one process, or the optimizer's settings "
    "differ between processes"
)
_FIRST_WEIGHTS = (
    "`accelerator.prepare(...)` gives all processes the weights of process 0: the model is not given to it, or its "
    "weights are changed after it by a value of one process"
)
_TWICE = "the loss is divided or multiplied by hand, and `accelerator.backward` does it too"
_RATE = (
    "`scheduler.step()` is called another number of times, or the scheduler was built with `len(loader)` after "
    "`prepare`, which is shorter there"
)
_SET_RATE = (
    "the learning rate is set from a value that is not the original's: a figure of one process's own rows, or a count "
    "of its steps"
)
_OWN_RATE = (
    "a process trains at a learning rate of its own: compute it from values that are equal on all processes, such as a "
    "figure that is gathered or reduced"
)
_UNWRITTEN = (
    "another process may not have written this file completely: call `accelerator.wait_for_everyone()` before the line "
    "that reads it"
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
_UNCLEAR, _NOT_PREPARED, _DIVERGED = "UnclearBatchError", "NotPreparedError", "DivergenceError"
_NOT_THERE = re.compile(r"FileNotFoundError|EOFError|UnpicklingError|PytorchStreamReader|SafetensorError")
_OF_A_STEP = ("samples", "rates", "ranks", "losses", "gradients", "weights")
"""Promises about one step, in the order in which a break of one leads to a break of the next."""
_PLAIN = re.compile(r"\.backward\(\s*(?:\)|\w+\s*=)")
"""A backward pass that is called on the loss: the accelerator's is given the loss."""


def explained(
    promises: Sequence[Promise],
    code_of: Callable[[Promise], str],
    text_of: Callable[[Promise], tuple[str, int]] = lambda promise: ("", 0),
    before: Sequence[Promise] = (),
) -> list[Promise]:
    """
    Broken promises with the text of their line and their likeliest cause.

    Args:
        promises: of one comparison.
        code_of: what the line says that a promise points to.
        text_of: the migrated text with that line, and the line's number.
        before: of the other comparisons; what is wrong on one process is no fault of several.
    """
    alone = {one.id for one in before if one.processes == 1 and one.outcome is Outcome.BROKEN}
    found = [
        _with_cause(replace(promise, code=code_of(promise) if promise.at else ""), promises, promise.id in alone)
        if promise.outcome is Outcome.BROKEN
        else promise
        for promise in promises
    ]
    found = [_followed(one, found) for one in found]
    return [_with_origin(one, code_of, *text_of(one)) if one.at and one.side == "migrated" else one for one in found]


def _followed(promise: Promise, promises: Sequence[Promise]) -> Promise:
    """What a file holds, by the figure that is printed too, where that is wrong and the file has no line of its own."""
    holds = _holds(promise) if promise.id == "files" else " differs" in promise.detail
    if promise.id not in ("files", "checkpoints") or not holds:
        return promise
    printed = next((p for p in promises if p.id == "numbers" and p.processes == promise.processes and p.cause), None)
    return (
        promise
        if printed is None or promise.cause not in ("", _GATHER, printed.cause)
        else replace(promise, cause=_after(promise, {"numbers": printed}, "numbers"))
    )


def _with_origin(promise: Promise, code_of: Callable[[Promise], str], text: str, line: int) -> Promise:
    """A wrong figure with the line that makes it, and what is missing there."""
    if promise.origin:
        return replace(promise, origin_code=code_of(replace(promise, at=promise.origin)))
    if promise.cause in (_RATE, _OWN_RATE):
        set_at, scheduled = rate_set_at(text)
        if promise.cause == _RATE and not scheduled:
            promise = replace(promise, cause=_SET_RATE if set_at is not None else "")
        return promise if set_at is None else _pointing(promise, text, line, set_at)
    if promise.cause == _FIRST_WEIGHTS and (number := prepared_at(text)):
        return _pointing(promise, text, line, number)
    if promise.cause != _GATHER:
        return promise
    origin = origin_of(text, line)
    if origin is None:
        read = read_unwaited(text, line)
        return promise if read is None else _pointing(replace(promise, cause=_UNWRITTEN), text, line, read)
    parts = " and ".join(f"`{part}`" for part in origin.parts)
    cause = f"`{origin.name}` is computed from {parts}, of the rows of one process: {origin.missing}"
    return _pointing(replace(promise, cause=cause), text, line, origin.line)


def _pointing(promise: Promise, text: str, line: int, number: int) -> Promise:
    """A promise with a second line of the file that it points to."""
    return replace(
        promise,
        origin=f"{promise.at[: -len(str(line))]}{number}",
        origin_code=text.split("\n")[number - 1].strip(),
    )


def _with_cause(promise: Promise, promises: Sequence[Promise], alone: bool) -> Promise:
    beside = {
        other.id: other
        for other in promises
        if other.outcome is Outcome.BROKEN and other.processes == promise.processes and other is not promise
    }
    return replace(promise, cause=_cause(promise, beside, promise.processes > 1 and not alone))


def _cause(promise: Promise, beside: dict[str, Promise], several: bool) -> str:
    """``several``: it is broken on several processes alone."""
    match promise.id:
        case "runs":
            if _NOT_PREPARED in promise.figure or _NOT_PREPARED in promise.detail:
                return _after(promise, beside, "ranks") or _MODEL
            if _DIVERGED in promise.figure or _DIVERGED in promise.detail:
                return _after(promise, beside, "ranks")
            if several and _NOT_THERE.search(f"{promise.figure} {promise.detail}"):
                return _UNWRITTEN
            return _HANDED if _UNCLEAR in promise.figure and _by_itself(promise.code) else ""
        case "steps":
            return _after(promise, beside, "samples")
        case "waits":
            return _WAIT
        case "samples":
            return _LOADER if "the loader is not sharded" in promise.detail else _ROWS
        case "ranks":
            return _of_ranks(promise, beside)
        case "losses" | "weights" | "gradients":
            return _of_training(promise, beside)
        case "rates":
            return _OWN_RATE if " on process " in promise.detail else _RATE
        case "numbers":
            return _after(promise, beside, "weights", "losses") or promise.cause or (_GATHER if several else "")
        case "lines":
            return _GUARD if "also prints it" in promise.detail else ""
        case "files":
            if "is written by processes" in promise.detail:
                return _SAVE
            after = _after(promise, beside, "weights", "losses") or promise.cause
            return after or (_GATHER if several and _holds(promise) else "")
        case "checkpoints":
            return _WRAPPED if "a wrapper was saved" in promise.detail else _after(promise, beside, "weights")
        case "devices":
            return _LOADER if promise.figure == CPU_BATCH else _DEVICE
    return ""


def _holds(promise: Promise) -> bool:
    """It is about what a file holds, not about whether it is there."""
    return promise.detail.startswith(f"{promise.figure}: ")


def _of_ranks(promise: Promise, beside: dict[str, Promise]) -> str:
    if BEFORE in promise.detail:
        return _FIRST_WEIGHTS
    if UNLIKE in promise.detail:
        return _MODEL
    rates = beside.get("rates")
    follows = rates is not None and (rates.step or 0) <= (promise.step or math.inf)
    return _after(promise, beside, "rates") if follows else _OWN_WEIGHTS


def _of_training(promise: Promise, beside: dict[str, Promise]) -> str:
    if "samples" in beside and (beside["samples"].step or 0) <= (promise.step or math.inf):
        return _after(promise, beside, "samples")
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
