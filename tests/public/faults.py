"""
Faults in what is emitted for public programs: how many the check of the output finds: `make public-faults`.

For each program of the ledger that migrates right, `migrate` runs in a process of its own; what it has emitted is taken
before it is checked, and checked once for each fault of `tests/fault_operators.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from .answers import ROOT, Kept
from .checkouts import LeftOutError, lay_out
from .ledger import LEDGER, Entry, Ledger

_SECONDS = 3600
_PLANT = "--plant"
FLOOR = 0.95
"""The share that must be found."""


def main(argv: Sequence[str] | None = None) -> int:
    """Plant faults in all right programs, print what survives, and return 1 if too few were found."""
    parser = argparse.ArgumentParser(prog="make public-faults", description=__doc__)
    parser.add_argument("folder", help="the checkouts: FOLDER/OWNER/NAME")
    parser.add_argument("--only", default="", help="entries with this in their name")
    parser.add_argument("--kept", type=Path, default=ROOT / ".public", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    kept = Kept(asked.kept)
    entries = [
        entry
        for name, entry in sorted(Ledger.read(LEDGER).entries.items())
        if asked.only in name and entry.outcome == "migrates" and entry.verdict and entry.verdict.verdict == "right"
    ]
    tried: Counter[str] = Counter()
    found: Counter[str] = Counter()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for entry, told in zip(
            entries, pool.map(lambda one: _of(one, Path(asked.folder).resolve(), kept), entries), strict=True
        ):
            if isinstance(told, str):
                print(f"{entry.name}: left out: {told}")
                continue
            for operator, place, is_found in told:
                tried[operator] += 1
                found[operator] += is_found
                if not is_found:
                    print(f"{entry.name}: survives: {operator}: {place}", flush=True)
    for operator in sorted(tried):
        print(f"{operator:50} {found[operator]:5} of {tried[operator]}")
    share = found.total() / max(tried.total(), 1)
    print(f"{found.total()} of {tried.total()} faults found ({share:.1%}) in {len(entries)} programs")
    return int(share < FLOOR)


def _of(entry: Entry, folder: Path, kept: Kept) -> list[tuple[str, str, bool]] | str:
    """The faults of one program, or why there are none."""
    scratch = Path(tempfile.mkdtemp(prefix="public-faults-"))
    try:
        place = lay_out(entry, folder, kept.checkouts, scratch / "original")
        script = os.path.relpath(entry.script, entry.place)
        command = [sys.executable, "-m", "tests.public.faults", _PLANT, str(place), *entry.migrate, script]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_SECONDS, check=False)
        lines = [line for line in ended.stdout.splitlines() if line.startswith("[[") or line == "[]"]
        return json.loads(lines[-1]) if lines else ended.stderr.strip().splitlines()[-1]
    except (LeftOutError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def planted(arguments: Sequence[str]) -> list[tuple[str, str, bool]]:
    """
    Migrate a program in this process, and check what is emitted with each fault.

    Args:
        arguments: of `migrate`, for the current folder.
    """
    import contextlib
    import io

    import libcst as cst

    from torchlift.codemods.catalogue import CATALOGUE
    from torchlift.rewriter.cli.main import run
    from torchlift.rewriter.validation.check import ModuleTexts, check

    from ..fault_operators import mutants

    emitted: list[tuple[Any, ...]] = []
    pipeline: Any = import_module("torchlift.rewriter.pipeline")
    checks = pipeline.diagnoses

    def noted(modules: Any, assume: Any, layout: Any, **more: Any) -> Any:
        emitted.append((modules, tuple(assume), layout))
        return checks(modules, assume, layout, **more)

    pipeline.diagnoses = noted
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        run(CATALOGUE, ["--no-cache", "--output-format", "json", *arguments])
    if not emitted:
        return []
    modules, assume, layout = emitted[-1]
    after = {one.name: one.before if one.text is None else cst.parse_module(one.text) for one in modules}
    results = []
    for one in modules:
        for operator, node, mutant in mutants(after[one.name]) if one.text is not None else ():
            texts = [ModuleTexts(m.name, m.before, mutant if m.name == one.name else after[m.name]) for m in modules]
            first = cst.Module([]).code_for_node(node).strip().splitlines()[0][:90]
            results.append((operator, f"{one.name}: {first}", bool(check(texts, assume, layout).violations)))
    return results


if __name__ == "__main__":
    if sys.argv[1:2] == [_PLANT]:
        os.chdir(sys.argv[2])
        print(json.dumps(planted(sys.argv[3:])))
    else:
        sys.exit(main())
