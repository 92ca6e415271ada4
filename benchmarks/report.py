"""Make docs/speed.md and docs/speed.svg from the kept results: `python -m benchmarks.report`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from .measure import RESULTS, ROOT

PARTS = (
    "training",
    "memory",
    "sharding",
    "eight_bits",
    "evaluation",
    "step",
    "together",
    "xla",
    "gpu",
    "launch",
    "runtime_import",
    "rewriter",
)
COLOURS = {"torchlift": "#1f77b4", "raw torch": "#7f7f7f", "accelerate": "#ff7f0e", "fabric": "#9467bd"}
MOST = 5.0
"""Bars end here; longer ones say how long they are."""

HEAD = """# Speed

Made by `make bench` from `benchmarks/results`; do not edit. The plot shows times (and memory, where it says so) as
multiples of the runtime's own: what is longer than 1 is slower than torchlift, or takes more. Calls are made in turn,
so that all meet the same machine, and the fastest tenth is shown, because other load makes a measurement longer and
never shorter. Steps of models of 25 million parameters come first: each is timed right before or after one of the
others, in eight runs; the value shown is the median of the runs' median ratios, with the bounds that it is between
(95 % each).
With more processes than free cores even that is rough: judge by ratios, and run it where it matters to you. Peers that
are not installed are left out.

![times beside raw torch, Accelerate and Fabric](speed.svg)
"""


def results() -> dict[str, Any]:
    """What has been kept, by name."""
    paths = {name: RESULTS / f"{name}.json" for name in PARTS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def tables(found: dict[str, Any]) -> Iterator[str]:
    """The tables, in markdown."""
    words = {True: "within", False: "over", None: ""}
    for kept in found.values():
        yield f"## {kept['title']}\n\n{kept['where']}\n"
        yield "| what | measured | budget | |\n|---|---|---|---|"
        yield from (f"| {r['what']} | {r['measured']} | {r['budget']} | {words[r['within']]} |" for r in kept["rows"])
        yield ""


def plot(found: dict[str, Any]) -> str:
    """Horizontal bars, a group for each measurement, as SVG."""
    groups = [row for kept in found.values() for row in kept["rows"] if len(row["figures"]) > 1]
    parts, y, left, unit = [], 34, 270, 84
    for name, at in zip(COLOURS, range(left, 900, 110), strict=False):
        parts.append(f'<rect x="{at}" y="8" width="10" height="10" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{at + 15}" y="17">{escape(name)}</text>')
    for row in groups:
        middle = y + 7 * len(row["figures"]) + 4
        parts.append(f'<text x="{left - 10}" y="{middle}" text-anchor="end">{escape(row["what"])}</text>')
        mine = row["figures"]["torchlift"]
        for name, figure in row["figures"].items():
            times = figure / mine
            width = round(unit * min(times, MOST))
            label = f"{times:.2f}" if times < 10 else f"{times:.0f}"
            parts.append(f'<rect x="{left}" y="{y}" width="{width}" height="12" fill="{COLOURS[name]}"/>')
            parts.append(f'<text x="{left + width + 5}" y="{y + 10}">{label} x</text>')
            y += 14
        y += 12
    body = "\n".join(parts)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {y}" width="780" height="{y}"'
    return (
        f'{head} font-family="sans-serif" font-size="11" fill="#333">\n'
        f'<rect width="780" height="{y}" fill="white"/>\n{body}\n'
        f'<line x1="{left + unit}" x2="{left + unit}" y1="28" y2="{y - 8}" stroke="#333" stroke-dasharray="2 3"/>\n'
        "</svg>\n"
    )


def main() -> None:
    """Write both files."""
    found = results()
    (ROOT / "docs" / "speed.md").write_text("\n".join([HEAD, *tables(found)]))
    (ROOT / "docs" / "speed.svg").write_text(plot(found))


if __name__ == "__main__":
    main()
