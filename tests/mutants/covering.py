"""Which tests execute a line, and how long each takes: one run of every test file, kept until something changes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .copies import TRACING, WORK, pytest, tidy
from .sources import ROOT, WINGS, statement

SUITES = {
    "rewriter": ("tests/rewriter", "tests/codemods", "tests/hazards", "tests/test_fixtures.py"),
    "runtime": ("tests/runtime",),
}
"""The tests that answer for a wing. What else executes it looks at something else, and takes minutes for it."""
_ELSEWHERE = ("tests/runtime/verify", "tests/hazards/test_on_two_processes.py")


PATIENCE = 30.0
"""A test that takes so many seconds, and ten times as long as without the mutation, does not end."""
ENOUGH = 60.0
"""So many seconds of tests are tried against one mutant: code that every program passes is executed by thousands."""


@dataclass(frozen=True)
class Chosen:
    """The tests that one mutant is tried against."""

    limits: dict[str, float]
    """The seconds that each may take, fastest first."""

    @property
    def files(self) -> list[str]:
        """The files that they are in."""
        return sorted({test.partition("::")[0] for test in self.limits})

    @property
    def key(self) -> str:
        """What a survivor has survived: these tests, in files that say this."""
        digest = hashlib.sha256("\n".join(sorted(self.limits)).encode())
        for file in self.files:
            digest.update((ROOT / file).read_bytes())
        return f"tests {digest.hexdigest()[:16]}"


@dataclass
class Traces:
    """What all test files have shown."""

    seconds: dict[str, float] = field(default_factory=dict)
    """How long a test takes that holds."""
    lines: dict[str, dict[str, int]] = field(default_factory=dict)
    """By file and test: the lines, as the bits of a number. The test "" stands for what imports execute."""
    failed: list[str] = field(default_factory=list)
    """Tests that do not hold here without any mutation, or are skipped: they say nothing."""

    def add(self, told: Mapping[str, object]) -> None:
        """Take in what one process has written."""
        seconds, failed, lines = told.get("seconds", {}), told.get("failed", []), told["lines"]
        assert isinstance(seconds, dict) and isinstance(failed, list) and isinstance(lines, dict)
        self.seconds.update(seconds)
        self.failed += failed
        for test, files in lines.items():
            for file, mask in files.items():
                known = self.lines.setdefault(file, {})
                known[test] = known.get(test, 0) | int(mask, 16)

    def told(self) -> dict[str, object]:
        """The same, to be written."""
        lines: dict[str, dict[str, str]] = {}
        for file, tests in self.lines.items():
            for test, mask in tests.items():
                lines.setdefault(test, {})[file] = f"{mask:x}"
        return {"seconds": self.seconds, "failed": self.failed, "lines": lines}

    def choose(self, file: str, line: int) -> Chosen:
        """
        The tests that execute the statement at a line.

        Where they take longer than is enough: those that mirror the file, and of the others as many as there is time
        for, drawn by lot. Tests that execute the same lines of the file are of one kind, and each kind has its turn.
        """
        wanted = statement((ROOT / file).read_text(), line)
        executed = self.lines.get(file, {})
        broken = set(self.failed)
        found = [test for test, mask in executed.items() if wanted is None or mask & wanted]
        tests = sorted(t for t in found if t in self.seconds and t not in broken)
        random.Random(f"{file}:{line}").shuffle(tests)
        kinds: Counter[int] = Counter()
        turns: dict[str, int] = {}
        for test in tests:
            turns[test] = kinds[executed[test]]
            kinds[executed[test]] += 1
        tests.sort(key=lambda t: (not t.startswith(mirror(file)), turns[t]))  # stable: else in the order of the lot
        left = ENOUGH
        chosen: list[str] = []
        for test in tests:
            if test.startswith(mirror(file)) or self.seconds[test] <= left or not chosen:
                left -= self.seconds[test]
                chosen.append(test)
        chosen.sort(key=lambda t: (self.seconds[t], t))
        return Chosen({test: max(PATIENCE, 10 * self.seconds[test]) for test in chosen})


def mirror(file: str) -> str:
    """The folder of the tests that mirror a file's: what is written there for a survivor is certain to be tried."""
    return f"tests/{Path(file).parent}/"


def test_files(wing: str) -> list[str]:
    """The test files that answer for a wing."""
    paths = [ROOT / suite for suite in SUITES[wing]]
    found = [path for suite in paths for path in ([suite] if suite.is_file() else sorted(suite.rglob("test_*.py")))]
    names = [str(path.relative_to(ROOT)) for path in found]
    return [name for name in names if not name.startswith(_ELSEWHERE)]


def kept(test_file: str) -> Path:
    """Where a trace is kept: by what was tested, the tests, and the helpers beside and above them."""
    sources = [path for wing in WINGS for path in (ROOT / wing).rglob("*.py")]
    folder = (ROOT / test_file).parent
    beside = folder.rglob("*") if folder.name != "tests" else ()
    above = [path for parent in folder.relative_to(ROOT).parents if parent.parts for path in (ROOT / parent).glob("*")]
    around = (*(ROOT / "tests").glob("*"), *above, *beside)
    helpers = [path for path in around if path.suffix in (".py", ".txt", ".html")]
    digest = hashlib.sha256()
    for path in sorted({*sources, *(p for p in helpers if not p.name.startswith("test_")), ROOT / test_file}):
        digest.update(path.read_bytes())
    return WORK / "traces" / f"{test_file.replace('/', '.')}.{digest.hexdigest()[:16]}.json"


def trace(copy: Path, test_file: str, into: Path) -> None:
    """Run a test file in a copy and write down what its tests execute."""
    folder = copy.with_name(f"{copy.name}-traces")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [*pytest(copy), "-q", "-p", TRACING, "-m", "not slow", test_file]
    environment = {**os.environ, "MUTANTS_TRACE": str(folder), "MUTANTS_ROOT": str(copy)}
    ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, start_new_session=True)
    tidy(copy)
    assert ended.returncode in (0, 1, 5), f"{test_file} cannot be run:\n{ended.stdout}{ended.stderr}"
    found = Traces()
    for path in folder.glob("*.json"):
        found.add(json.loads(path.read_text()))
    into.parent.mkdir(parents=True, exist_ok=True)
    partial = into.with_suffix(".partial")
    partial.write_text(json.dumps(found.told()))
    partial.rename(into)
