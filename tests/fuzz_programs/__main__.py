"""
Programs of a grammar, migrated and verified: `make fuzz-programs`.

Each seed is a program. What is wrong with it is shrunk, and counted by kind. Exit status: 0 where no program has a
defect, 1 where one has.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

from .choices import Choices
from .judging import HELD, REFUSED, TOLD, Judge, Judged
from .program import program
from .shrinking import simplest

_JUDGE: list[Judge] = []
"""The judge of this process."""


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the programs, print the tally and every defect, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make fuzz-programs", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=3000, help="how many seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--procs", default="1,2", help="on how many processes each is run")
    parser.add_argument("--show", type=int, help="print the program of a seed, judge it, and shrink it")
    parser.add_argument("--keep", type=Path, help="a folder for the programs that are not right, by seed")
    parser.add_argument("--unshrunk", action="store_true", help="leave defects as they are found")
    parser.add_argument("--plant", nargs=2, metavar=("OLD", "NEW"), help="change what is emitted: a fault to be found")
    asked = parser.parse_args(argv)
    judge = partial(Judge, tuple(int(word) for word in asked.procs.split(",")), asked.plant)
    if asked.show is not None:
        return _show(asked.show, judge())
    tally: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], int] = {}
    found: dict[int, Judged] = {}
    with ProcessPoolExecutor(asked.jobs, initializer=_begin, initargs=(judge,)) as pool:
        seeds = range(asked.first, asked.first + asked.count)
        running = {pool.submit(_judged, seed): seed for seed in seeds}
        for done in as_completed(running):
            seed, judged = running[done], Judged(*done.result())
            found[seed] = judged
            if asked.keep and judged.kind != HELD:
                asked.keep.mkdir(parents=True, exist_ok=True)
                name = f"{judged.kind.replace(' ', '_')}_{seed}"
                (asked.keep / f"{name}.py").write_text(program(Choices(seed)))
                (asked.keep / f"{name}.txt").write_text(f"{judged.signature}\n{judged.detail}\n")
    for seed in sorted(found):
        key = found[seed].kind, found[seed].signature
        tally[key] += 1
        first.setdefault(key, seed)
    defects = [key for key in first if found[first[key]].is_defect]
    for line in _told(tally, first):
        print(line)
    if defects and not asked.unshrunk:
        one = judge()
        for key in defects:
            print()
            _show(first[key], one)
    return int(bool(defects))


def _told(tally: Counter[tuple[str, str]], first: dict[tuple[str, str], int]) -> Iterator[str]:
    kinds = Counter[str]()
    for (kind, _), count in tally.items():
        kinds[kind] += count
    for kind in (HELD, TOLD, REFUSED, *sorted(set(kinds) - {HELD, TOLD, REFUSED})):
        yield f"{kind}: {kinds[kind]}"
        for key, count in tally.most_common():
            if key[0] == kind and key[1]:
                yield f"    {count:5} {key[1]} (seed {first[key]})"
    yield f"{kinds.total()} programs"


def _begin(judge: Callable[[], Judge]) -> None:
    _JUDGE.append(judge())


def _judged(seed: int) -> tuple[Any, ...]:
    return tuple(_JUDGE[0](program(Choices(seed))))


def _show(seed: int, judge: Judge) -> int:
    """Print one seed's program, as simple as it can be with the same verdict."""
    choices = Choices(seed)
    judged = judge(program(choices))
    kept, judged = simplest(choices.taken, judged, judge)
    print(f"seed {seed}: {judged.kind}: {judged.signature}\n{judged.detail}\n{kept}\n")
    print(program(Choices(fixed=kept, simplest=True)))
    return int(judged.is_defect)


if __name__ == "__main__":
    sys.exit(main())
