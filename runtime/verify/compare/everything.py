"""All promises of one migrated run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath

from ..traces import RunTrace
from ..verdict import Outcome, Promise
from . import printed, samples, saved, training, waits
from .tolerances import PROMISES, About, Unstable

_ON_ONE: tuple[tuple[str, Callable[[About], Promise]], ...] = (
    ("runs", waits.runs),
    ("steps", training.steps),
    ("losses", training.losses),
    ("weights", training.weights),
    ("gradients", training.gradients),
    ("rates", training.rates),
    ("samples", samples.samples),
    ("numbers", printed.numbers),
    ("lines", printed.lines),
    ("files", saved.files),
    ("checkpoints", saved.checkpoints),
)
_TOGETHER: tuple[tuple[str, Callable[[About], Promise]], ...] = (("waits", waits.waits), ("ranks", training.ranks))
SHOWN = ("numbers", "lines", "files", "checkpoints")
"""Promises about what a script shows, and what may come from a clock."""
_FIGURES = ("losses", "weights", "gradients")
_AS_IS = (*_FIGURES, "steps", "rates", "samples", "numbers", "lines", "checkpoints")
"""As is, every process takes a whole batch, and noise is its own: what differs by nature is shown, not judged."""
_UP_TO_THERE = (*_FIGURES, "rates", "samples", "numbers", "ranks")
"""What is compared as far as a run has come."""
_WHOLE = ("steps", "lines", "files", "checkpoints")


def compare(about: About) -> list[Promise]:
    """The promises, in the order in which a reader wants them."""
    fails = waits.fell_apart(about.migrated) or waits.runs(about).outcome is Outcome.BROKEN
    return [_one(about, id, check, fails) for id, check in _checks(about.migrated.size == 1)]


def nothing(processes: int, why: str) -> list[Promise]:
    """The same promises, where there is nothing to compare with."""
    return [
        Promise(id=id, promise=PROMISES[id], processes=processes, outcome=Outcome.UNTESTABLE, detail=why)
        for id, _ in _checks(processes == 1)
    ]


def _checks(alone: bool) -> list[tuple[str, Callable[[About], Promise]]]:
    checks = list(_ON_ONE)
    if not alone:
        checks[1:1] = [_TOGETHER[0]]
        checks.insert(6, _TOGETHER[1])
    return checks


def _one(about: About, id: str, check: Callable[[About], Promise], fails: bool) -> Promise:
    """One promise. `fails`: the migrated run neither comes to its end nor is ended after enough steps."""
    promise = check(about)
    if promise.outcome is Outcome.UNTESTABLE:
        return promise
    if id in _WHOLE and not about.migrated.sound and (promise.outcome is Outcome.HELD or _incomplete(id, promise)):
        return about.untestable(id, "the migrated run did not finish")
    if promise.outcome is Outcome.HELD and id in _FIGURES and (why := about.uncut()):
        return about.untestable(id, why)
    if promise.outcome is Outcome.HELD:
        return _as_far(about, promise) if fails and id in _UP_TO_THERE and not promise.absent else promise
    if id in (*_FIGURES, "numbers", "checkpoints") and about.unstable.weights:
        return about.untestable(id, "two runs of the original itself differ")
    if not about.exact and not about.alone and id in _AS_IS and "also prints it" not in promise.detail:
        return about.untestable(id, f"as is: {promise.detail}")
    if id in (*_FIGURES, "samples", "steps", "rates") and not about.kept:
        return about.untestable(id, "the runtime cannot keep the global batch here")
    if about.kept_until is not None and id in _AS_IS and (promise.step or about.kept_until) >= about.kept_until:
        why = f"the runtime completes the short batch of step {about.kept_until} with rows from the start"
        if promise.step:
            why = f"the same up to step {promise.step - 1}; {why}"
        return about.untestable(id, why)
    if id in _FIGURES and about.by_nature():
        return about.untestable(id, about.by_nature())
    if id == "samples" and about.by_nature():
        return about.untestable(id, about.by_nature())
    if id in ("numbers", "files") and promise.at and (other := samples.evaluated(about)) is not None:
        return replace(promise, origin=other[0], cause=other[1])
    return promise


def _as_far(about: About, promise: Promise) -> Promise:
    """A promise that is held by a run that did not finish: said of the steps that it has made."""
    made = min(len(rank.of("step")) for rank in about.migrated.ranks)
    if not made and about.original.main.of("step"):
        return about.untestable(promise.id, "the migrated run ended before its first step")
    far = f"up to step {made}, where the run ended"
    return replace(promise, detail=f"{promise.detail}; {far}" if promise.detail else far)


def _incomplete(id: str, promise: Promise) -> bool:
    """Broken only because the run ended early."""
    if id == "files":
        return "processes" not in promise.detail
    if id == "checkpoints":
        return "is not saved" in promise.detail
    return "process" not in promise.detail or id == "steps"


def unstable(first: RunTrace, second: RunTrace) -> Unstable:
    """What differs between two runs of the original."""
    steps = zip(first.main.of("step"), second.main.of("step"), strict=False)
    names = {n for n in {*first.files, *second.files} if first.files.get(n) != second.files.get(n)}
    lines, numbers = printed.differing(first.main, second.main)
    texts = {n: second.files[n].text for n in names & first.files.keys() & second.files.keys()}
    return Unstable(
        lines=lines,
        numbers=numbers,
        texts={name: [text] for name, text in texts.items() if text is not None},
        weights=any(a["h"] != b["h"] for a, b in steps),
        files=frozenset(names),
        names=frozenset(set(first.files) ^ set(second.files)),
        homes=_homes(set(first.files), set(second.files)),
    )


def _homes(first: set[str], second: set[str]) -> dict[tuple[str, str], int]:
    """Where names of files vary from run to run."""
    folders = [{str(folder) for name in names for folder in PurePath(name).parents} for names in (first, second)]
    counts: dict[tuple[str, str], list[int]] = {}
    for which, names in enumerate((first - second, second - first)):
        for name in names:
            counts.setdefault(saved.homes_of(name, folders[0] & folders[1]), [0, 0])[which] += 1
    return {home: abs(a - b) for home, (a, b) in counts.items()}
