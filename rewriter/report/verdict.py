"""The verdict for a person: a table of promises, the loss curves, what was fixed for the comparison, and the
conclusion."""

from __future__ import annotations

import io
from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..verify.handover import NOT_COMPARED, SeenPromise, SeenVerdict
from .text import counted

_STYLES = {"held": "green", "broken": "bold red", "not testable": "yellow"}


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
        console.print(_table(verdict))
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


def _table(verdict: SeenVerdict) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for name in ("promise", "on", "verdict", "detail"):
        table.add_column(name, overflow="fold")
    for promise in verdict.promises:
        style = _STYLES.get(promise.outcome, "")
        outcome = promise.outcome.upper() if promise.outcome == "broken" else promise.outcome
        table.add_row(promise.promise, str(promise.processes), Text(outcome, style=style), Text(_detail(promise)))
    return table


def _detail(promise: SeenPromise) -> str:
    return f"step {promise.step}: {promise.detail}" if promise.step else promise.detail


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
