"""The verdict for a person: the conclusion, the table of promises, the loss curves, and what was made equal for the
comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from ..verify.handover import SeenRow, SeenVerdict
from .text import visible

_STYLES = {"broken": "1;31", "not testable": "33", "held": "32"}
_LEAST, _ROOM = 20, 40
"""Lines are never wrapped at fewer columns; details get a column of their own if it has so many."""


def verdict_text(verdict: SeenVerdict, *, color: bool = False, width: int = 120) -> str:
    """Return the whole text, for stderr."""

    def paint(text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if color else text

    width = max(width, _LEAST)
    lines = [paint(line, "1") for line in wrap(verdict.conclusion, width)]
    lines.append("")
    if verdict.original_error:
        lines += map(visible, verdict.original_error.rstrip().split("\n"))
        return "\n".join(lines) + "\n"
    for outcome, line in _table(verdict.rows, width):
        word = outcome.upper() if outcome == "broken" else outcome
        lines.append(paint(word, _STYLES[outcome]) + line.removeprefix(word) if outcome else line)
    lines += wrap(verdict.left_out, width)
    lines.append("")
    if verdict.drawing:
        lines += [*verdict.drawing, ""]
    notes = [*verdict.notes, *not_foreseen(verdict)]
    lines += ["For the comparison:"] if notes else []
    for note in notes:
        lines += wrap(f"- {visible(note)}", width, subsequent_indent="  ")
    lines += [f"kept: {folder}" for folder in verdict.kept]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[SeenRow], width: int) -> Iterator[tuple[str, str]]:
    """The table that `torchlift verify` prints: each line, the first one of a row with its outcome."""
    words = [row.outcome.upper() if row.outcome == "broken" else row.outcome for row in rows]
    head = ("verdict", "procs", "promise")
    cells = [head, *((word, row.on, row.promise) for word, row in zip(words, rows, strict=True))]
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    first, indent = sum(sizes[:2]) + 4, sum(sizes) + 6
    columned = width - indent >= _ROOM
    for row, (word, on, promise) in zip([None, *rows], cells, strict=True):
        detail, outcome = ("detail", "") if row is None else (visible(row.detail), row.outcome)
        start = f"{word:<{sizes[0]}}  {on:<{sizes[1]}}  "
        texts: list[str] = []
        if columned:
            texts = wrap(detail, width - indent) or [""]
            texts = [f"{start}{promise:<{sizes[2]}}  {texts[0]}".rstrip(), *(" " * indent + t for t in texts[1:])]
        elif row is not None:
            said = f"{promise}: {detail}" if detail else promise
            texts = wrap(start + said, width, subsequent_indent=" " * min(first, width // 3))
        yield from ((outcome if not number else "", text) for number, text in enumerate(texts))
        yield from (("", text) for text in (_below(row, width) if row is not None else ()))


def _below(row: SeenRow, width: int) -> Iterator[str]:
    """The line that a broken promise points to, the one where its cause is, and that cause in words."""
    for said, place, code in pointed(row):
        yield from _inside(f"--> {said}", width)
        if code:
            line = f"    {number_of(place)} | {code}"
            yield line if len(line) <= width else f"{line[: width - 3]}..."
    if row.cause:
        yield from _inside(f"likely cause: {row.cause}", width)


def _inside(text: str, width: int) -> list[str]:
    return wrap(text, width, initial_indent="    ", subsequent_indent="      ")


def pointed(row: SeenRow) -> list[tuple[str, str, str]]:
    """The places that a broken promise points to: in words, by themselves, and what is there."""
    found = [(f"{row.at}, in the {row.side} script", row.at, row.code)] if row.at else []
    found += [(f"{row.origin}, where this comes from", row.origin, row.origin_code)] if row.origin else []
    return [(visible(said), place, visible(code)) for said, place, code in found]


def number_of(place: str) -> str:
    """The number of a line: of ``train.py:12``, and of ``train.ipynb:cell 3, line 12``."""
    return place.replace(" ", ":").rpartition(":")[2]


def not_foreseen(verdict: SeenVerdict) -> list[str]:
    """That the check before the run found nothing, in a line: of the promise that was broken first. The others follow
    from it."""
    first = next((row.promise for row in verdict.rows if row.outcome == "broken"), "")
    if not first or not verdict.check_passed:
        return []
    return [
        f'the check of the migrated program, before the runs, did not foresee "{first}". Where your script is not the '
        "cause, please report it, with the script"
    ]


def unforeseen(verdict: SeenVerdict) -> list[str]:
    """What the check of the migrated program has to do with the promises that are broken, as sentences."""
    if not verdict.check_passed:
        return []
    broken = {promise.promise: promise.foreseen_by for promise in verdict.promises if promise.outcome == "broken"}
    gaps: dict[tuple[str, ...], list[str]] = {}
    for words, invariants in broken.items():
        gaps.setdefault(invariants, []).append(f'"{words}"')
    return [
        f"{' and '.join(promises)}: "
        + (
            f"the check of the migrated program passed, although some invariant of it ({', '.join(invariants)}) should "
            "have found this. Please report this gap, with the script."
            if invariants
            else "no invariant of the check of the migrated program covers this."
        )
        for invariants, promises in gaps.items()
    ]
