"""
Run `migrate` over the public programs of the ledger, and compare with what is recorded: `make public PUBLIC=FOLDER`.

Exit status: 0 where nothing became worse and all is judged, 1 where not, 3 where the run could not be made.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .answers import ROOT, Answer, Kept, ask, difference, is_verified, key_of, recorded
from .judging import judge
from .ledger import LEDGER, Entry, Ledger, LedgerError
from .standing import COLUMNS, Compared, Standing, compare, rates

_LINES = 400
"""So many lines of one difference are shown."""


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say, and return the exit status."""
    asked = _arguments(argv)
    try:
        if asked.entry:
            ledger = Ledger.read(asked.ledger)
            said = {"verdict": asked.verdict, "why": asked.why, "by": asked.by}
            print(judge(ledger, Kept(asked.kept), asked.entry, **said, today=date.today()))
            ledger.write(asked.ledger)
            return 0
        return _check(Ledger.read(asked.ledger), asked.ledger) if asked.check else _run(asked)
    except LedgerError as error:
        print(f"public: {error}", file=sys.stderr)
        return 3


def _check(ledger: Ledger, path: Path) -> int:
    """Check a ledger by itself, without checkouts: its form, its recipes, and that every answer in it has been read."""
    if path.read_text(encoding="utf-8") != ledger.text():
        raise LedgerError(f"{path} is not in the form in which it is written; let public-judge write it")
    recipes = set(re.findall(r"@recipe\ndef (\w+)", Path(__file__).with_name("data.py").read_text(encoding="utf-8")))
    for entry in ledger.entries.values():
        if unknown := {str(asked.get("make")) for asked in entry.data} - recipes:
            raise LedgerError(f"{entry.name}: no recipe {unknown.pop()!r} in data.py")
        if not entry.is_judged:
            raise LedgerError(f"{entry.name}: its answer is unjudged; run make public, read it, make public-judge")
    found = rates(Compared(entry, recorded(entry), Standing.SAME) for entry in ledger.entries.values())
    print(f"{len(ledger.entries)} entries, all judged", *found.sentences(), sep="\n")
    return 0


def _run(asked: argparse.Namespace) -> int:
    if not asked.folder or not Path(asked.folder).is_dir():
        raise LedgerError(f"the folder of checkouts {asked.folder!r} is not there; say make public PUBLIC=FOLDER")
    ledger = Ledger.read(asked.ledger)
    entries = list(_chosen(ledger, asked.shard, asked.only))
    python = None if asked.quick else Path(asked.python)
    if python is not None and not python.exists():
        raise LedgerError(f"{python} is not there: --verify runs public programs with it; make public creates it")
    kept = Kept(asked.kept)
    workers = max(1, (os.cpu_count() or 1) // (1 if asked.quick else 2))
    compared = list(_compared(entries, Path(asked.folder).resolve(), kept, python, workers))
    _report(sorted(compared, key=lambda one: one.entry.name), kept)
    return int(any(one.standing in (Standing.WORSE, Standing.UNJUDGED) for one in compared))


def _chosen(ledger: Ledger, shard: str, only: str) -> Iterator[Entry]:
    number, _, count = (shard or "1/1").partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise LedgerError(f"SHARD is K/N, for instance 1/4, and not {shard!r}")
    names = sorted(name for name in ledger.entries if only in name)
    if not names:
        raise LedgerError(f"no entry has {only!r} in its name")
    for name in names[int(number) - 1 :: int(count)]:
        yield ledger.entries[name]


def _compared(
    entries: Sequence[Entry], folder: Path, kept: Kept, python: Path | None, workers: int
) -> Iterator[Compared]:
    """Ask about all entries side by side; an answer that the same tool has given before is not asked for again."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with ThreadPoolExecutor(workers) as pool, Progress(*columns, console=console) as progress:
        bar = progress.add_task("public programs", total=len(entries))
        running = {pool.submit(_answer, entry, folder, kept, python): entry for entry in entries}
        try:
            for done in as_completed(running):
                progress.update(bar, advance=1, description=running[done].name)
                yield compare(running[done], done.result())
        except KeyboardInterrupt:
            for waiting in running:
                waiting.cancel()
            raise


def _answer(entry: Entry, folder: Path, kept: Kept, python: Path | None) -> Answer:
    last = kept.last(entry)
    if last is not None and last.key == key_of(entry) and last.outcome != "left out":
        if python is None or last.verify is not None or last.outcome != "migrates" or not is_verified(entry, last):
            return last
    answer = ask(entry, folder, kept, python)
    kept.keep(entry, answer)
    return answer


def _report(compared: Sequence[Compared], kept: Kept) -> None:
    for standing in (Standing.WORSE, Standing.UNJUDGED, Standing.BETTER, Standing.LEFT_OUT):
        for one in compared:
            if one.standing is standing:
                print(f"{standing.value}: {one.entry.name}: {one.why}")
                if standing in (Standing.WORSE, Standing.UNJUDGED):
                    print("\n".join(_shown(one, kept)))
    found = rates(compared)
    print(f"\n{'':>10} {''.join(f'{name:>20}' for name in COLUMNS)}")
    for outcome, row in sorted(found.table.items()):
        print(f"{outcome:>10} {''.join(f'{row.get(name, 0):>20}' for name in COLUMNS)}")
    counts = [sum(one.standing is standing for one in compared) for standing in Standing]
    print(", ".join(f"{count} {standing.value}" for count, standing in zip(counts, Standing, strict=True)))
    print("\n".join(found.sentences()))


def _shown(one: Compared, kept: Kept) -> Iterator[str]:
    """What a reader needs for a verdict: the difference of the emitted text, and the findings."""
    before = kept.texts(one.entry.hash) if one.entry.hash else None
    if one.entry.hash and before is None:
        yield "    (the text that was judged was not emitted on this machine: this is the whole migration)"
    lines = (difference(before, one.answer.texts) if before is not None else one.answer.diff).splitlines()
    yield from (f"    {line}" for line in lines[:_LINES])
    if len(lines) > _LINES:
        yield f"    ... {len(lines) - _LINES} more lines"
    yield from (f"    {line}" for line in one.answer.said)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.public", description=__doc__)
    parser.add_argument("folder", nargs="?", default="", help="checkouts: FOLDER/OWNER/NAME, bare or with a work tree")
    parser.add_argument("--quick", action="store_true", help="the emitted text alone, without --verify")
    parser.add_argument("--shard", default="", metavar="K/N", help="only the K-th of N parts")
    parser.add_argument("--only", default="", metavar="TEXT", help="only entries that have TEXT in their names")
    parser.add_argument("--check", action="store_true", help="read the ledger alone, and say whether it is whole")
    parser.add_argument("--python", default=str(ROOT / ".venv-public/bin/python"), help="what runs public programs")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--kept", type=Path, default=ROOT / ".public", help="where answers are kept between runs")
    judging = parser.add_argument_group("to judge one answer that a run has shown")
    judging.add_argument("--entry", default="")
    judging.add_argument("--verdict", default="")
    judging.add_argument("--why", default="")
    judging.add_argument("--by", default="")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
