"""What every test needs: the installed package, never the folders of the checkout; and processes that start at once."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torchlift.rewriter.result import FileResult

    from .forking import Forks

# `python -m pytest` puts the current folder on the path, where a wrong `import runtime` would find our wings.
_ROOT = str(Path(__file__).resolve().parent.parent)
sys.path[:] = [entry for entry in sys.path if entry not in ("", _ROOT)]


_OUTSIDE = (
    "TORCHLIFT_",
    "ACCELERATE_",
    "MASTER_",
    "RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "WORLD_SIZE",
    "OMPI_",
    "SLURM_",
)


def _beside(name: str) -> ModuleType:
    """A module of this folder, which is not on the path."""
    spec = importlib.util.spec_from_file_location(f"beside_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pytest_configure(config: pytest.Config) -> None:
    """Whoever runs the tests may be in a job, and have a configuration for `torchlift launch` in the home folder."""
    for name in [name for name in os.environ if name.startswith(_OUTSIDE)]:
        del os.environ[name]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("PIP_CACHE_DIR", str(caches / "pip"))
    folder = tempfile.TemporaryDirectory(prefix="torchlift-tests-")
    config.add_cleanup(folder.cleanup)
    os.environ["XDG_CACHE_HOME"] = folder.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of this folder run whole programs, some for a minute: first, so that no worker is late at the end."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """One server for the tests of a worker; what carries out `--verify` is imported, too."""
    server: Forks = _beside("forking").Forks("torchlift.runtime.verify.conductor")
    yield server
    server.close()


USUAL = ("import Accelerator", "Accelerator(", "accelerator.prepare(", "accelerator.backward(")
"""What every migrated training script has."""


@pytest.fixture(scope="session")
def usual_edits() -> Callable[[FileResult], None]:
    """
    `usual_edits(file)`: the positive control of tests that say what is left alone.

    It fails unless the training around the lines in question was migrated, or refused with a finding that blocks it:
    a rewriter that does nothing leaves everything alone.
    """

    def check(file: FileResult) -> None:
        text = file.after.decode()
        missing = [piece for piece in USUAL if piece not in text]
        assert file.blocked or not missing, f"the training itself was not migrated: no {missing} in\n{text}"
        assert not file.blocked or not file.changed, "a refusal changes nothing"

    return check
