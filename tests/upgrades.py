"""
What a version of `migrate` has written, kept for all later ones: they find nothing to do in it, and train it equally.

    python tests/upgrades.py     # when a version is released: keeps what is written today, in tests/upgrades/VERSION

It is made of our fixtures, each with its original, and of the examples of the rules. What is kept is never changed.
"""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import version
from pathlib import Path

TESTS = Path(__file__).resolve().parent
FIXTURES = TESTS.parent / "fixtures"
KEPT = TESTS / "upgrades"


def keep(where: Path) -> None:
    """Write the texts of today into a new folder."""
    from torchlift.codemods.catalogue import CATALOGUE

    where.mkdir(parents=True)
    for after in sorted(FIXTURES.glob("*/after*")):
        for path in (after.with_stem("before") if after.suffix else after.with_name("before"), after):
            place = where / after.parent.name / path.name
            if path.is_dir():
                shutil.copytree(path, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, place)
    for entry in CATALOGUE:
        for number, (_, text) in enumerate(entry.load().examples, 1):
            place = where / "examples" / f"{entry.id}_{number}.py"
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)


if __name__ == "__main__":
    folder = KEPT / version("torchlift")
    if folder.exists():
        sys.exit(f"{folder} is there already, and what is kept is never changed")
    keep(folder)
