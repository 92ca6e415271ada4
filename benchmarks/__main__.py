"""Measure what is named on the command line, or everything: `python -m benchmarks [rewriter] [step] ...`."""

from __future__ import annotations

import sys
from importlib import import_module

from . import report
from .measure import RESULTS, ROOT, keep, show

ALL = (
    "rewriter",
    "runtime_import",
    "launch",
    "step",
    "training",
    "memory",
    "sharding",
    "eight_bits",
    "evaluation",
    "together",
    "xla",
    "gpu",
)


def main(names: list[str]) -> int:
    """Measure, print and keep."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"benchmarks: there is no {unknown[0]!r}. There are: {', '.join(ALL)}", file=sys.stderr)
        return 3
    over = 0
    for name in names or ALL:
        module = import_module(f".{name}", __package__)
        rows = module.rows()
        if not rows:
            print(f"{name}: nothing that it measures is here; what was kept before stays")
            continue
        show(module.TITLE, rows)
        keep(name, module.TITLE, rows)
        over += sum(row.within is False for row in rows)
    report.main()
    exceeded = f"{over or 'no'} budget{'' if over == 1 else 's'} exceeded"
    print(f"kept in {RESULTS.relative_to(ROOT)} and docs/speed.md; {exceeded}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
