"""The verdict as plain text, for `torchlift verify`."""

from __future__ import annotations

from collections.abc import Iterator

from .verdict import ORIGINAL_FAILS, Outcome, Verdict

_MARKS = {Outcome.HELD: "held", Outcome.BROKEN: "BROKEN", Outcome.UNTESTABLE: "not testable"}


def as_text(verdict: Verdict) -> str:
    """A table, the curves, what was held still, and the last word."""
    return "\n".join(_lines(verdict)) + "\n"


def _lines(verdict: Verdict) -> Iterator[str]:
    if verdict.original_error is not None:
        yield "The original script fails, so there is nothing to compare the migrated script with:"
        yield ""
        yield verdict.original_error.traceback.rstrip()
        yield ""
        yield verdict.original_error.error
        return
    width = max((len(p.promise) for p in verdict.promises), default=0)
    for processes in dict.fromkeys(p.processes for p in verdict.promises):
        yield f"on {processes} process{'' if processes == 1 else 'es'}"
        for promise in verdict.promises:
            if promise.processes == processes:
                step = f"step {promise.step}: " if promise.step else ""
                line = f"  {promise.promise:<{width}}  {_MARKS[promise.outcome]:<12}  {step}{promise.detail}"
                yield line.rstrip()
        yield ""
    if verdict.drawing:
        yield from verdict.drawing
        yield ""
    yield from (f"- {note}" for note in verdict.notes)
    yield from (f"kept: {run.scratch} ({run.name})" for run in verdict.runs if run.scratch)
    yield ""
    yield last_word(verdict)


def last_word(verdict: Verdict) -> str:
    """One line about everything."""
    if verdict.status == ORIGINAL_FAILS:
        return "Nothing could be compared." if verdict.promises else "The original script fails."
    count = {outcome: sum(p.outcome is outcome for p in verdict.promises) for outcome in Outcome}
    parts = [f"{count[Outcome.HELD]} promises held"]
    parts += [f"{count[Outcome.BROKEN]} broken"] if count[Outcome.BROKEN] else []
    parts += [f"{count[Outcome.UNTESTABLE]} not testable"] if count[Outcome.UNTESTABLE] else []
    seconds = sum(run.seconds for run in verdict.runs)
    return f"{', '.join(parts)} ({verdict.mode} mode, {verdict.device}, runs of {seconds:.0f} s together)."
