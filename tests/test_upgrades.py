"""
What earlier versions have written: `migrate` finds nothing to do in it.

That it trains equally is tested in `runtime/verify`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
KEPT = TESTS / "upgrades"
VERSIONS = sorted(folder.name for folder in KEPT.iterdir())
REVIEWS = {"0.1.0": {("legacy_gan/after.py", "same-noise")}}
"""Findings that somebody has to read, as they were when the file was written; notes may come and go."""


def emitted(version: str, where: Path) -> Path:
    """A folder with what a version has written, without the originals."""
    return Path(shutil.copytree(KEPT / version, where / version, ignore=shutil.ignore_patterns("before*")))


@pytest.mark.unchanged
@pytest.mark.parametrize("kept", VERSIONS)
def test_there_is_nothing_to_do_in_what_an_earlier_version_wrote(kept: str, tmp_path: Path) -> None:
    folder = emitted(kept, tmp_path)
    migrate = [str(Path(sys.executable).parent / "migrate"), "--no-cache", "--output-format", "json", "."]
    done = subprocess.run(migrate, cwd=folder, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert (done.returncode, [file["path"] for file in report["files"] if file["changed"]]) == (0, [])
    files = [*folder.rglob("*.py"), *folder.rglob("*.ipynb")]
    assert report["checked"] == len(files) > 60
    found = {
        (Path(file["path"]).as_posix(), finding["id"])
        for file in report["files"]
        for finding in file["findings"]
        if finding["severity"] != "note"
    }
    assert found == REVIEWS[kept]


def test_every_version_has_its_files() -> None:
    """`python tests/upgrades.py` keeps them when a version is released."""
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (TESTS.parent / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {*released, version("torchlift")} == set(VERSIONS)


def test_what_is_kept_are_originals_what_became_of_them_and_the_examples(tmp_path: Path) -> None:
    spec = spec_from_file_location("keeping_upgrades", TESTS / "upgrades.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.keep(tmp_path / "9.9.9")
    names = {path.relative_to(tmp_path / "9.9.9").as_posix() for path in (tmp_path / "9.9.9").rglob("*")}
    assert {
        "gan/before.py",
        "gan/after.py",
        "program_utils/before/utils.py",
        "program_utils/after/utils.py",
        "notebook/after.ipynb",
        "examples/backward_1.py",
    } <= names
    assert not any("findings" in name for name in names)
