"""
What is on record of the rewriter's findings, beside what it finds today: `findings.txt` of the fixtures, and what the
cases of `hazards/rows/` expect.

    python tests/snapshots.py                 # the names of those that differ
    python tests/snapshots.py NAME            # the difference of one
    python tests/snapshots.py NAME --write    # shows it, and takes what is found today for this one

There is no way to write all at once, and no test writes any.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

TESTS = Path(__file__).resolve().parent


class Snapshot(NamedTuple):
    """One text on record."""

    recorded: Callable[[], str]
    now: Callable[[], str]
    write: Callable[[str], None]


def difference(name: str, snapshot: Snapshot) -> str:
    """The lines by which today's text differs from the one on record."""
    recorded, now = (text.splitlines(keepends=True) for text in (snapshot.recorded(), snapshot.now()))
    return "".join(unified_diff(recorded, now, f"{name}, on record", f"{name}, today"))


def main(arguments: Sequence[str], snapshots: Mapping[str, Snapshot]) -> int:
    """Show differences, and write the one that was named; exit status 1 where something differs and was not written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="a fixture, or a case of hazards/rows")
    parser.add_argument("--write", action="store_true", help="take what is found today for this one")
    given = parser.parse_args(arguments)
    if given.name is None:
        if given.write:
            parser.error("--write takes one name: each difference is read before it is taken")
        different = [name for name, snapshot in snapshots.items() if difference(name, snapshot)]
        print("\n".join(different) or "no difference")
        return int(bool(different))
    if given.name not in snapshots:
        parser.error(f"there is no snapshot {given.name!r}")
    snapshot = snapshots[given.name]
    shown = difference(given.name, snapshot)
    print(shown or "no difference")
    if shown and given.write:
        snapshot.write(snapshot.now())
        return 0
    return int(bool(shown))


def every() -> dict[str, Snapshot]:
    """All that is on record: the fixtures by their names, the cases by theirs."""
    fixtures, rows = _module("test_fixtures.py"), _module("hazards/test_rows.py")
    found = {name: _findings(fixtures, name, "before.py") for name in fixtures.NAMES}
    found |= {name: _findings(fixtures, name, "train.py") for name in fixtures.PROGRAMS}
    return found | {case.name: _case(rows, case) for case in rows.ALL}


def _module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, TESTS / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _findings(fixtures: ModuleType, name: str, entry: str) -> Snapshot:
    folder: Path = fixtures.FIXTURES / name

    def now() -> str:
        with tempfile.TemporaryDirectory() as scratch:
            if entry == "before.py":
                shutil.copy(folder / entry, scratch)
            else:
                shutil.copytree(folder / "before", scratch, dirs_exist_ok=True)
                Path(scratch, "pyproject.toml").touch()
            return str(fixtures.findings_of(Path(scratch), entry))

    def write(text: str) -> None:
        path.write_text(text)

    path = folder / "findings.txt"
    return Snapshot(path.read_text, now, write)


def _case(rows: ModuleType, case: object) -> Snapshot:
    def text(sections: Mapping[str, str]) -> str:
        return "".join(f"--- {key}\n{sections[key]}\n" for key in rows.EXPECTED if sections.get(key))

    return Snapshot(
        lambda: text(case.parts),  # type: ignore[attr-defined]
        lambda: text(rows.expected(case)),
        lambda _: rows.record(case),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], every()))
