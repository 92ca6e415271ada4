"""Copies of the checkout, in which files may be changed while tests run there; each has an environment of its own."""

from __future__ import annotations

import compileall
import filecmp
import py_compile
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

from .sources import ROOT, WINGS

WORK = ROOT / ".mutants"
TRACING = "mutants_tracing"


def make(folder: Path) -> None:
    """
    Copy what git knows or does not ignore.

    The copy's interpreter finds `torchlift` in the copy and everything else where this one finds it, so that every
    process that a test starts with `sys.executable` runs the copy, whatever its environment variables are.
    """
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    told = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name for name in told.split("\0") if (ROOT / name).is_file() or (ROOT / name).is_symlink()}
    for path in sorted(folder.rglob("*"), reverse=True):
        name = str(path.relative_to(folder))
        if name not in names and not path.is_dir() and not {".venv", "__pycache__"} & set(Path(name).parts):
            path.unlink()
    for name in names:
        _copy(name, folder / name)
    venv.EnvBuilder(symlinks=True).create(folder / ".venv")
    (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    shutil.copy(folder / "tests" / "mutants" / "tracing.py", packages / f"{TRACING}.py")
    traced = f'import os; "MUTANTS_TRACE" in os.environ and __import__("{TRACING}")'
    paths = (str(folder / "tests" / "_typing"), sysconfig.get_path("purelib"), traced)
    (packages / "torchlift.pth").write_text("".join(f"{path}\n" for path in paths))
    for command in Path(sysconfig.get_path("scripts")).iterdir():
        start, line, rest = command.read_bytes().partition(b"\n")
        if start.startswith(b"#!") and b"python" in start:  # `migrate`, for instance
            there = folder / ".venv" / "bin" / command.name
            there.write_bytes(f"#!{_python(folder)}".encode() + line + rest)
            there.chmod(0o755)


def _copy(name: str, target: Path) -> None:
    """Copy a file that is not there or is another one: a mutant's, after a run that was stopped."""
    source = ROOT / name
    if source.is_symlink():
        target.unlink(missing_ok=True)
    elif target.exists() and filecmp.cmp(source, target, shallow=False):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)
    if name.startswith(WINGS) and name.endswith(".py"):
        # bytecode that is checked against the text, not against its time: it is not taken for a mutant's
        compileall.compile_file(target, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def _python(folder: Path) -> str:
    return str(folder / ".venv" / "bin" / "python")


def pytest(folder: Path) -> list[str]:
    """The beginning of a command that runs tests of a copy there; what it compiles is kept for the next one."""
    return ["env", "-u", "PYTHONDONTWRITEBYTECODE", _python(folder), "-m", "pytest", "-p", "no:cacheprovider"]


def tidy(folder: Path) -> None:
    """Remove what a test may have left in a copy: an answer that `migrate` remembers was perhaps a mutant's."""
    for remembered in folder.rglob(".torchlift_cache"):
        shutil.rmtree(remembered)
