"""The verdict for a person: a table of promises, the loss curves, what was fixed for the comparison, and the
conclusion."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from ..verify.handover import NOT_COMPARED, SeenPromise, SeenVerdict
from .text import counted

_STYLES = {"broken": "bold red", "not testable": "yellow", "held": "green"}
"""In the order in which outcomes are listed."""
_HEAD = ("promise", "on", "verdict", "detail")
_LEAST = 30
"""Details have so many columns at least, on whatever terminal."""


def verdict_text(verdict: SeenVerdict, *, color: bool = False, width: int = 120) -> str:
    """Return the whole text, for stderr."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=color, no_color=not color, width=width, highlight=False)
    if verdict.original_error:
        console.print(
            "The original script fails, so there is nothing to compare the migrated script with:\n", markup=False
        )
        console.print(Text(verdict.original_error.rstrip()), soft_wrap=True)
    else:
        for row in _table(verdict, width):
            console.print(row, soft_wrap=True)
        console.print()
        for line in verdict.drawing:
            console.print(Text(line), soft_wrap=True)
        if verdict.drawing:
            console.print()
        for note in (*verdict.notes, *unforeseen(verdict)):
            console.print(Text(f"- {note}"))
    for folder in verdict.kept:
        console.print(Text(f"kept: {folder}"), soft_wrap=True)
    console.print(Text(last_word(verdict), style="bold" if color else ""))
    return out.getvalue()


def _table(verdict: SeenVerdict, width: int) -> Iterator[Text]:
    """The rows of the table that `torchlift verify` prints: what is broken first, with its line and its cause."""
    found = worst_first(verdict)
    rows = [(p.promise, str(p.processes), p.outcome.upper() if p.outcome == "broken" else p.outcome) for p in found]
    columns = [max(map(len, column)) for column in zip(_HEAD[:3], *rows, strict=True)]
    yield from _row(_HEAD[:3], _HEAD[3], columns, width, ("bold",) * 4)
    for promise, row in zip(found, rows, strict=True):
        detail = f"step {promise.step}: {promise.detail}" if promise.step else promise.detail
        yield from _row(row, detail, columns, width, ("", "", _STYLES[promise.outcome], ""))
        for text in below(promise):
            for line in wrap(text, max(width, _LEAST), initial_indent="    ", subsequent_indent="      "):
                yield Text(line)


def worst_first(verdict: SeenVerdict) -> list[SeenPromise]:
    """The promises, those that are broken first."""
    order = list(_STYLES)
    return sorted(verdict.promises, key=lambda promise: order.index(promise.outcome))


def _row(row: Sequence[str], detail: str, columns: Sequence[int], width: int, styles: Sequence[str]) -> Iterator[Text]:
    indent = sum(columns) + 2 * len(columns)
    for number, text in enumerate(wrap(detail, max(width - indent, _LEAST)) or [""]):
        line = Text(" " * indent if number else "")
        for cell, size, style in () if number else zip(row, columns, styles, strict=False):
            line.append(f"{cell:<{size}}", style).append("  ")
        line.append(text, styles[-1])
        line.rstrip()
        yield line


def below(promise: SeenPromise) -> list[str]:
    """The line that a broken promise points to, and its likeliest cause."""
    place = f"{promise.side} {promise.at}: {promise.code}".removesuffix(": ") if promise.at else ""
    cause = f"likely cause: {promise.cause}" if promise.cause else ""
    return [text for text in (place, cause) if text]


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


def last_word(verdict: SeenVerdict) -> str:
    """Return the conclusion in one line."""
    if verdict.original_error:
        return "Not verified: fix the original first, so that it runs with the same arguments."
    if verdict.status == NOT_COMPARED:
        return "Not verified: there was no run of the original to compare with."
    count = Counter(promise.outcome for promise in verdict.promises)
    facts = [f"{counted(count['held'], 'promise')} held"]
    facts += [f"{count[word]} {word}" for word in ("broken", "not testable") if count[word]]
    return f"Verified ({verdict.mode}): {', '.join(facts)}."
