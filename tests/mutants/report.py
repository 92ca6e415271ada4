"""What is written down: the score, and every survivor with the reason why nothing notices it."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import yaml
from cosmic_ray.work_item import MutationSpec, WorkerOutcome, WorkResult

from .sample import mutant
from .sources import ROOT

SCORE = Path(__file__).with_name("score.md")
EXPLAINED = Path(__file__).with_name("survivors.yaml")
Mutants = list[tuple[MutationSpec, WorkResult | None]]


def word(result: WorkResult | None) -> str:
    """What became of a mutant."""
    if result is None:
        return "untried"
    if not result.is_killed:
        return "untested" if result.worker_outcome is WorkerOutcome.NO_TEST else "survived"
    ended = result.output or ""
    return "timeout" if "Failed: Timeout" in ended or ended.endswith("\ntimeout") else "killed"


def write(mutants: Mutants, seed: int) -> list[str]:
    """Write the score; survivors that nobody has explained are printed and returned."""
    explained: dict[str, str] = yaml.safe_load(EXPLAINED.read_text()) if EXPLAINED.exists() else {}
    survivors = {key(one): one for one, result in mutants if word(result) in ("survived", "untested")}
    SCORE.write_text("\n".join(_page(mutants, seed, survivors, explained)) + "\n")
    unexplained = [name for name in survivors if name not in explained]
    for name in unexplained:
        print(f"{survivors[name].module_path}:{survivors[name].start_pos[0]} survives, unexplained:\n  {name}")
    print(f"{_summary(mutants)}\nwritten to {SCORE.relative_to(ROOT)}")
    return unexplained


def key(one: MutationSpec) -> str:
    """The name of a mutant that holds when lines move: the file, and the line as it was and as it becomes."""
    text = (ROOT / one.module_path).read_text()
    before, after = text.splitlines(), mutant(text, one).splitlines()
    changed = next(index for index, line in enumerate(before) if line != after[index])
    return f"{one.module_path}: {before[changed].strip()} -> {' '.join(after[changed].split())}"


def _summary(mutants: Mutants) -> str:
    counts = Counter(word(result) for _, result in mutants)
    tried = sum(counts.values()) - counts["untried"]
    noticed = counts["killed"] + counts["timeout"]
    share = f"{100 * noticed / tried:.1f} %" if tried else "nothing"
    return (
        f"{tried} of {len(mutants)} mutants tried: {share} killed. {counts['killed']} by a test that fails, "
        f"{counts['timeout']} by a test that does not end; {counts['survived']} survived, "
        f"{counts['untested']} executed by no test"
    )


def _page(mutants: Mutants, seed: int, survivors: dict[str, MutationSpec], explained: dict[str, str]) -> Iterable[str]:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    python = ".".join(map(str, sys.version_info[:3]))
    yield "# Mutants\n"
    yield "Written by `make mutants`; the reasons come from `survivors.yaml` beside it.\n"
    yield f"{now}, {platform.machine()}, {os.cpu_count()} cores, {platform.system()}, Python {python}, seed {seed}\n"
    yield f"{_summary(mutants)}.\n"
    yield "| folder | killed | timeout | survived | untested | untried |\n|---|---|---|---|---|---|"
    words = ("killed", "timeout", "survived", "untested", "untried")
    for folder in sorted({str(one.module_path.parent) for one, _ in mutants}):
        counts = Counter(word(result) for one, result in mutants if str(one.module_path.parent) == folder)
        yield f"| {folder} | " + " | ".join(str(counts[name]) for name in words) + " |"
    yield "\n## Survivors\n"
    for name, one in sorted(survivors.items()):
        yield f"- `{name}` (line {one.start_pos[0]}): {explained.get(name, '**unexplained**')}"
