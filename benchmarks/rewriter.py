"""The command `migrate` as whole processes, beside a plain LibCST parse with one visitor pass. CPU time, medians."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from .measure import COMMANDS, ROOT, Row, Sample, in_turn, milliseconds, within

TITLE = "The rewriter: CPU time of whole processes"

_VISIT = """
import sys, libcst
class Count(libcst.CSTVisitor):
    def visit_Call(self, node): pass
libcst.parse_module(open(sys.argv[1]).read()).visit(Count())
"""

_HELPER = '''
class Block{n}(nn.Module):
    """A block that the script defines and does not use."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, 4 * width)
        self.second = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = F.gelu(self.first(self.norm(x)))
        return x + self.second(y)

'''

_PLAIN = '''"""Module {n}: nothing to train."""
import json
from dataclasses import dataclass


@dataclass
class Record{n}:
    name: str
    values: list

    def mean(self):
        return sum(self.values) / max(1, len(self.values))


def load(path):
    with open(path) as file:
        return [Record{n}(**entry) for entry in json.load(file)]


def save(records, path):
    with open(path, "w") as file:
        json.dump([record.__dict__ for record in records], file)
    print("saved", len(records))
'''


def long_script() -> str:
    """The fixture in MNIST's shape, made 300 lines long."""
    text = (ROOT / "fixtures" / "mnist_functions" / "before.py").read_text()
    head, mark, tail = text.partition("\ndef train(")
    count = 0
    while (head + mark + tail).count("\n") < 300 - _HELPER.count("\n"):
        head += _HELPER.format(n=count)
        count += 1
    return head + mark + tail


def huge_script(lines: int) -> str:
    """The same, as long as is wanted: a file with everything in it."""
    text = (ROOT / "fixtures" / "mnist_functions" / "before.py").read_text()
    head, mark, tail = text.partition("\ndef train(")
    each = _HELPER.count("\n")
    blocks = (lines - text.count("\n")) // each
    return head + "".join(_HELPER.format(n=n) for n in range(blocks)) + mark + tail


def many_files(folder: Path, which: str = "after", count: int = 1000) -> None:
    """Files, a thousand: 50 training scripts, migrated (``after``) or not (``before``), and 950 that train nothing."""
    afters = sorted((ROOT / "fixtures").glob("*/after.py"))
    scripts = [path.with_name(f"{which}.py") for path in afters]
    for number in range(count):
        path = folder / f"package{number // 50}" / f"module{number}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        if number % 20 == 0:
            shutil.copy(scripts[number // 20 % len(scripts)], path)
        else:
            path.write_text(_PLAIN.format(n=number))


def rows(rounds: int = 11) -> list[Row]:
    """Measure."""
    migrate = str(COMMANDS / "migrate")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "fixtures" / "inference_only" / "before.py", folder / "nothing.py")
        (folder / "long.py").write_text(long_script())
        (folder / "half.py").write_text(huge_script(5_000))
        (folder / "huge.py").write_text(huge_script(10_000))
        many_files(folder / "many")
        many_files(folder / "raw", "before")
        many_files(folder / "part", count=500)
        long = in_turn(
            {
                "half": [migrate, "half.py"],
                "huge": [migrate, "huge.py"],
                "raw": [migrate, "raw"],
                "audit": [migrate, "--audit", "many"],
                "audit of half": [migrate, "--audit", "part"],
            },
            folder,
            3,
        )
        taken = in_turn(
            {
                "pass": [sys.executable, "-c", "pass"],
                "nothing": [migrate, "nothing.py"],
                "long": [migrate, "long.py"],
                "visit": [sys.executable, "-c", _VISIT, "long.py"],
                "many": [migrate, "--check", "many"],
                "cold": [migrate, "--check", "--no-cache", "many"],
                "explain": [migrate, "--explain", "local-decision"],
            },
            folder,
            rounds,
        )
    count = long_script().count("\n")
    return [
        within(
            "migrate, a file with nothing to do",
            taken["nothing"].cpu,
            0.060,
            f"({_times(taken, 'nothing', 'pass')} python -c pass)",
        ),
        within(
            f"migrate, a script of {count} lines, diff shown",
            taken["long"].cpu,
            1.5 * taken["visit"].cpu,
            f"({_times(taken, 'long', 'visit')} LibCST's own parse and pass)",
        ),
        within(
            "migrate, a file of 10,000 lines",
            long["huge"].cpu,
            10.0,
            f"({_times(long, 'huge', 'half')} one of 5,000; {long['huge'].peak >> 20} MiB at its peak)",
        ),
        within("migrate, 1,000 files, 50 of them to migrate, diff shown", long["raw"].cpu, 10.0),
        within(
            "migrate --audit, 1,000 files, 50 of them training",
            long["audit"].cpu,
            10.0,
            f"({_times(long, 'audit', 'audit of half')} 500 files with 25)",
        ),
        within("migrate --check, 1,000 files, none to change, 50 of them migrated, known", taken["many"].cpu, 0.500),
        within("the same, looked at for the first time", taken["cold"].cpu, 5.0, "(100 ms for each migrated script)"),
        within("migrate --explain local-decision", taken["explain"].cpu, 0.150),
        Row("beside: LibCST, parse and one visitor pass, the same script", milliseconds(taken["visit"].cpu)),
        Row("beside: python -c pass", milliseconds(taken["pass"].cpu)),
    ]


def _times(taken: dict[str, Sample], one: str, other: str) -> str:
    return f"{taken[one].cpu / taken[other].cpu:.1f} x"
