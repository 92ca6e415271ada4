"""The verdict as plain text, for `torchlift verify`."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from .verdict import ORIGINAL_FAILS, Outcome, Promise, Verdict

_MARKS = {Outcome.BROKEN: "BROKEN", Outcome.UNTESTABLE: "not testable", Outcome.HELD: "held"}
"""In the order in which they are listed."""
_HEAD = ("promise", "on", "verdict", "detail")
_LEAST = 30
"""Details have so many columns at least, on whatever terminal."""


def as_text(verdict: Verdict, width: int = 120) -> str:
    """A table, the curves, what was held still, and the last word."""
    return "\n".join(_lines(verdict, width)) + "\n"


def _lines(verdict: Verdict, width: int) -> Iterator[str]:
    if verdict.original_error is not None:
        yield "The original script fails, so there is nothing to compare the migrated script with:"
        yield ""
        yield verdict.original_error.traceback.rstrip()
        yield ""
        yield verdict.original_error.error
        return
    yield from _table(verdict, width)
    yield ""
    if verdict.drawing:
        yield from verdict.drawing
        yield ""
    yield from (f"- {note}" for note in verdict.notes)
    yield from (f"kept: {run.scratch} ({run.name})" for run in verdict.runs if run.scratch)
    yield ""
    yield last_word(verdict)


def _table(verdict: Verdict, width: int) -> Iterator[str]:
    """The rows of the table that `migrate --verify` shows as well: what is broken first, with line and cause."""
    found = sorted(verdict.promises, key=lambda promise: list(_MARKS).index(promise.outcome))
    rows = [(p.promise, str(p.processes), _MARKS[p.outcome]) for p in found]
    columns = [max(map(len, column)) for column in zip(_HEAD[:3], *rows, strict=True)]
    indent = sum(columns) + 2 * len(columns)
    for row, detail, below in [
        (_HEAD[:3], _HEAD[3], []),
        *zip(rows, map(_detail, found), map(_below, found), strict=True),
    ]:
        first = "".join(f"{cell:<{size}}  " for cell, size in zip(row, columns, strict=True))
        texts = wrap(detail, max(width - indent, _LEAST)) or [""]
        for number, text in enumerate(texts):
            yield f"{' ' * indent if number else first}{text}".rstrip()
        for text in below:
            yield from wrap(text, max(width, _LEAST), initial_indent="    ", subsequent_indent="      ")


def _detail(promise: Promise) -> str:
    return f"step {promise.step}: {promise.detail}" if promise.step else promise.detail


def _below(promise: Promise) -> list[str]:
    """The line that a broken promise points to, and its likeliest cause."""
    place = f"{promise.side} {promise.at}: {promise.code}".removesuffix(": ") if promise.at else ""
    cause = f"likely cause: {promise.cause}" if promise.cause else ""
    return [text for text in (place, cause) if text]


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
