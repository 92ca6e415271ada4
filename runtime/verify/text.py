"""The verdict as plain text, for `torchlift verify`."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from .overview import VerdictRow, conclusion, left_out, rows
from .verdict import Outcome, Verdict

_LEAST, _ROOM = 20, 40
"""Lines are never wrapped at fewer columns; details get a column of their own if it has so many."""


def as_text(verdict: Verdict, width: int = 120) -> str:
    """The conclusion, the table, the curves, and what was made equal for the comparison."""
    return "\n".join(_lines(verdict, max(width, _LEAST))) + "\n"


def _lines(verdict: Verdict, width: int) -> Iterator[str]:
    yield from wrap(conclusion(verdict), width)
    yield ""
    if verdict.original_error is not None:
        failure = verdict.original_error
        yield failure.traceback.rstrip()
        if failure.error not in failure.traceback:
            yield from ("", failure.error)
        return
    yield from _table(rows(verdict.promises), width)
    yield from wrap(left_out(verdict.promises), width)
    yield ""
    if verdict.drawing:
        yield from verdict.drawing
        yield ""
    if verdict.notes:
        yield "For the comparison:"
    for note in verdict.notes:
        yield from wrap(f"- {note}", width, subsequent_indent="  ")
    yield from (f"kept: {run.scratch} ({run.name})" for run in verdict.runs if run.scratch)


def _table(found: list[VerdictRow], width: int) -> Iterator[str]:
    """The table that `migrate --verify` shows as well: what is broken first, with its line and its cause."""
    words = ["BROKEN" if row.outcome is Outcome.BROKEN else row.outcome.value for row in found]
    head = ("verdict", "procs", "promise")
    cells = [head, *((word, row.on, row.promise) for word, row in zip(words, found, strict=True))]
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    first, indent = sum(sizes[:2]) + 4, sum(sizes) + 6
    columned = width - indent >= _ROOM
    for row, (word, on, promise) in zip([None, *found], cells, strict=True):
        detail = "detail" if row is None else row.detail
        start = f"{word:<{sizes[0]}}  {on:<{sizes[1]}}  "
        if columned:
            texts = wrap(detail, width - indent) or [""]
            yield f"{start}{promise:<{sizes[2]}}  {texts[0]}".rstrip()
            yield from (f"{'':>{indent}}{text}" for text in texts[1:])
        elif row is not None:
            said = f"{promise}: {detail}" if detail else promise
            yield from wrap(start + said, width, subsequent_indent=" " * min(first, width // 3))
        if row is not None:
            yield from _below(row, width)


def _below(row: VerdictRow, width: int) -> Iterator[str]:
    """The line that a broken promise points to, the one where its cause is, and that cause in words."""
    if row.at:
        yield from _code(f"{row.at}, in the {row.side} script", row.at, row.code, width)
    if row.origin:
        yield from _code(f"{row.origin}, where this comes from", row.origin, row.origin_code, width)
    if row.cause:
        yield from _inside(f"likely cause: {row.cause}", width)


def _code(said: str, place: str, code: str, width: int) -> Iterator[str]:
    yield from _inside(f"--> {said}", width)
    if code:
        line = f"    {place.replace(' ', ':').rpartition(':')[2]} | {code}"
        yield line if len(line) <= width else f"{line[: width - 3]}..."


def _inside(text: str, width: int) -> list[str]:
    return wrap(text, width, initial_indent="    ", subsequent_indent="      ")
