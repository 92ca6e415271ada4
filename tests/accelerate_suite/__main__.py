"""
Run Accelerate's own tests and two-process scripts against `torchlift.runtime`: `make test-accelerate CHECKOUT=FOLDER`;
with `XLA=2`, those that one process can run which drives two virtual devices of torch_xla.

Exit status: 0 where nothing became worse than the kept figures say, 1 where something did, 3 where the run could not be
made.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path

from .checkout import Checkout, CheckoutError
from .figures import Figures, compare
from .running import Runner
from .selection import LEFT_OUT, ON_XLA, SCRIPTS, SCRIPTS_ON_XLA, TESTS

ROOT = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say, and return the exit status."""
    asked = _arguments(argv)
    try:
        checkout = Checkout.at(asked.checkout, asked.commit)
        if asked.check:
            return 0
        if not asked.python.exists():
            raise CheckoutError(f"{asked.python} is not there; make test-accelerate creates it")
        kept = Figures.read(asked.figures)
    except CheckoutError as error:
        print(f"test-accelerate: {error}", file=sys.stderr)
        return 3
    now = _run(asked, checkout)
    _report(now)
    return _compare(asked, kept, now)


def _run(asked: argparse.Namespace, checkout: Checkout) -> Figures:
    runner = Runner(checkout.folder, asked.python.absolute(), asked.logs.resolve(), asked.xla)
    tests = {file: TESTS[file] for file in ON_XLA} if asked.xla else TESTS
    scripts = SCRIPTS_ON_XLA if asked.xla else SCRIPTS
    now = Figures(date.today().isoformat(), checkout.version, checkout.commit, checkout.digest)
    with ThreadPoolExecutor(asked.jobs) as threads:
        waiting = [
            threads.submit(runner.tests, file, names)
            for file, names in tests.items()
            if asked.only in file and checkout.has(file)
        ]
        waiting += [
            threads.submit(runner.script, script)
            for script in scripts
            if asked.only in script.name and checkout.has(script.path)
        ]
        try:
            for number, done in enumerate(as_completed(waiting), start=1):
                outcomes = done.result()
                now.add(outcomes)
                words = Counter(one.word for one in outcomes.values())
                told = ", ".join(f"{count} {word}" for word, count in words.items())
                print(f"{number}/{len(waiting)} {min(outcomes).partition('::')[0]}: {told}", flush=True)
        except KeyboardInterrupt:
            threads.shutdown(wait=False, cancel_futures=True)
            runner.stop()
            raise
    if asked.xla:
        return now
    known = {*TESTS, *LEFT_OUT, *(script.path for script in SCRIPTS)}
    _list("left out", [f"{file}: {why}" for file, why in LEFT_OUT.items() if checkout.has(file)])
    _list("not in this checkout", [file for file in TESTS if not checkout.has(file)])
    _list("in neither list of selection.py", sorted(set(checkout.candidates()) - known))
    return now


def _list(title: str, files: Sequence[str]) -> None:
    if files:
        print(f"\n{title}:", *files, sep="\n  ")


def _report(now: Figures) -> None:
    for group in ("tests", "scripts"):
        for word in ("passed", "skipped", "failed"):
            names = now.names(word, group)
            print(f"\n{group}: {len(names)} {word}")
            for name in names:
                reason = now.outcomes[name].reason
                print(f"  {name}" + (f": {reason}" if reason else ""))


def _compare(asked: argparse.Namespace, kept: Figures | None, now: Figures) -> int:
    print()
    if kept is None:
        print("no figures to compare with")
        change = None
    else:
        print(
            f"compared with the figures of {kept.date} (Accelerate {kept.version}, {kept.commit or 'commit unknown'})"
        )
        change = compare(kept, now, whole=not asked.only)
        for title, lines in (("worse", change.worse), ("better", change.better), ("not comparable", change.other)):
            print(f"{title}: {len(lines)}", *lines, sep="\n  ")
    for group in ("tests", "scripts"):
        print(f"{group}: " + ", ".join(f"{n} {word}" for word, n in now.counts(group).items()))
    worse = change is not None and bool(change.worse) and not asked.accept
    if worse:
        print(f"worse than before: the kept figures stay as they are. What each run printed is in {asked.logs}")
    elif asked.only and not (asked.accept and kept and kept.digest == now.digest):
        print("a part only: the kept figures stay as they are")
    else:
        if asked.only and kept:
            rest = {name: one for name, one in kept.outcomes.items() if asked.only not in name.partition("::")[0]}
            now.outcomes = {**rest, **now.outcomes}
        now.write(asked.figures)
        print(f"written: {asked.figures}")
    return int(worse)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="test-accelerate", description=__doc__)
    parser.add_argument("checkout", help="a checkout or an export of Accelerate")
    parser.add_argument("--check", action="store_true", help="look at the checkout only")
    parser.add_argument("--commit", default="", help="its commit, where the folder is an export and does not say it")
    parser.add_argument("--only", default="", help="files and scripts with this in their names")
    parser.add_argument("--jobs", type=int, default=1, help="how many files and scripts run at a time")
    parser.add_argument("--accept", action="store_true", help="keep the new figures although something is worse")
    parser.add_argument("--xla", type=int, default=0, help="on so many virtual devices of torch_xla")
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--logs", type=Path, default=ROOT / ".accelerate", help="where to write what each run prints")
    asked = parser.parse_args(argv)
    asked.figures = asked.figures or Path(__file__).with_name("figures_xla.json" if asked.xla else "figures.json")
    asked.python = asked.python or ROOT / (".venv-xla" if asked.xla else ".venv-accelerate") / "bin" / "python"
    return asked


if __name__ == "__main__":
    sys.exit(main())
