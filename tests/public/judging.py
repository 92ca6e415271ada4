"""Take one verdict into the ledger: of the answer that the last run has shown, and of no other."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import date

from .answers import ROOT, Kept, key_of
from .ledger import VERDICTS, First, Ledger, LedgerError, Verdict, flaws


def judge(ledger: Ledger, kept: Kept, name: str, *, verdict: str, why: str, by: str, today: date) -> str:
    """
    Enter a verdict on today's answer.

    Args:
        ledger: is changed in place.
        kept: the answers of the last run.
        name: of the entry.
        verdict: one of `VERDICTS`.
        why: what was read and seen, in a sentence.
        by: who has read it; git's user where nothing is said.
        today: the date of the verdict.

    Returns:
        a sentence that says what was entered.

    Raises:
        LedgerError: there is no such entry or verdict, no run has shown today's answer, or the two do not go together.
    """
    entry = ledger.entries.get(name)
    if entry is None:
        close = [known for known in ledger.entries if name in known][:3]
        raise LedgerError(f"no entry {name!r}" + (f"; is it {' or '.join(close)}?" if close else ""))
    if verdict not in VERDICTS:
        raise LedgerError(f"VERDICT is one of {', '.join(VERDICTS)}, and not {verdict!r}")
    answer = kept.last(entry)
    if answer is None or answer.key != key_of(entry):
        raise LedgerError(f"{name}: no run has shown what the tool answers today; run make public first, and read it")
    if not answer.hash:
        raise LedgerError(f"{name}: there is nothing to judge: {answer.outcome}: {answer.why}")
    reader = (
        by
        or subprocess.run(
            ["git", "-C", str(ROOT), "config", "user.name"], capture_output=True, text=True, check=False
        ).stdout.strip()
    )
    same = answer.hash == entry.hash
    judged = replace(
        entry,
        outcome=answer.outcome,
        findings=answer.findings,
        hash=answer.hash,
        verify=answer.verify or (entry.verify if same else None),
        verdict=Verdict(verdict=verdict, hash=answer.hash, by=reader, why=why, date=today.isoformat()),
        first=entry.first or First(verdict=verdict, date=today.isoformat()),
    )
    if flaw := next(flaws(judged), None):
        raise LedgerError(f"{name}: {flaw}")
    ledger.entries[name] = judged
    return f"{name}: {verdict} ({answer.outcome}, {answer.hash})"
