"""A folder with Accelerate's sources: whether it is one, and which version."""

from __future__ import annotations

import hashlib
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NEEDED = ("src/accelerate/__init__.py", "src/accelerate/test_utils/testing.py", "tests/test_accelerator.py")
_SCRIPTS = "src/accelerate/test_utils/scripts"


class CheckoutError(Exception):
    """The run cannot be made; the message says why, and what to do."""


@dataclass(frozen=True)
class Checkout:
    """A checkout or an export of Accelerate."""

    folder: Path
    version: str
    commit: str
    """Empty where the folder is an export and nobody has said it."""
    digest: str
    """Of all files that are run: says whether two runs had the same tests."""

    @classmethod
    def at(cls, folder: str, commit: str = "") -> Checkout:
        """
        Look at a folder.

        Raises:
            CheckoutError: it is no checkout of Accelerate.
        """
        how = "say make test-accelerate CHECKOUT=FOLDER, for instance of a git clone of huggingface/accelerate"
        if not folder:
            raise CheckoutError(f"which checkout of Accelerate? {how}")
        path = Path(folder).expanduser().resolve()
        if not path.is_dir():
            raise CheckoutError(f"{folder} is not a folder; {how}")
        if (path / "HEAD").exists() and (path / "objects").exists():
            raise CheckoutError(f"{folder} is a bare git repository: export it (git archive HEAD | tar x -C FOLDER)")
        for name in _NEEDED:
            if not (path / name).exists():
                raise CheckoutError(f"{folder} is no checkout of Accelerate, it has no {name}; {how}")
        said = re.search(r'__version__ = "(.+?)"', (path / _NEEDED[0]).read_text(encoding="utf-8"))
        return cls(path, said[1] if said else "unknown", commit or _commit(path), _digest(path))

    def has(self, name: str) -> bool:
        """Whether it has this file."""
        return (self.folder / name).exists()

    def candidates(self) -> list[str]:
        """Everything that could be run: the files of tests and the scripts."""
        found = [*(self.folder / "tests").rglob("test_*.py"), *(self.folder / _SCRIPTS).rglob("test_*.py")]
        return [path.relative_to(self.folder).as_posix() for path in found if "test_samples" not in path.parts]


def _commit(folder: Path) -> str:
    if not (folder / ".git").exists():
        return ""  # asked there, git would answer for a repository around it
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def _digest(folder: Path) -> str:
    text = hashlib.sha256()
    for part in ("tests", "src/accelerate/test_utils"):
        for path in sorted((folder / part).rglob("*.py")):
            text.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return text.hexdigest()[:16]
