"""A preview reads. It opens no socket, starts no process, runs nothing of the project, and writes only its cache."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"

WATCHED = """
import json, os, sys

project = os.getcwd()
seen = []
STARTS = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile",
          "pty.", "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser.", "ctypes.dlopen")
WRITES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
          "os.utime", "shutil.", "tempfile.")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def of_project(path):
    return path[:1] != "<" and os.path.join(project, os.fsdecode(path)).startswith(project + os.sep)

def watch(event, given):
    if event.startswith(STARTS):
        seen.append([event, str(given[:2])])
    elif event == "open" and isinstance(given[2], int) and given[2] & WRITING and not isinstance(given[0], int):
        seen.append(["writes", os.path.abspath(os.fsdecode(given[0]))])
    elif event.startswith(WRITES):
        seen.append(["writes", os.path.abspath(os.fsdecode(given[0]))])
    elif event == "exec" and of_project(given[0].co_filename):
        seen.append(["runs", given[0].co_filename])

sys.addaudithook(watch)
if sys.argv[1] == "--python":
    status = exec(sys.argv[2])
else:
    from torchlift.codemods.catalogue import CATALOGUE
    from torchlift.rewriter.cli.main import run
    status = run(CATALOGUE, sys.argv[1:])
    sys.stdout = sys.__stdout__
found, seen = seen, []
with open(os.environ["SEEN"], "w") as file:
    json.dump([status, found], file)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(FIXTURES / "program_utils" / "before", folder)
    shutil.copy(FIXTURES / "notebook" / "before.ipynb", folder / "cells.ipynb")
    shutil.copy(FIXTURES / "run_folder" / "after.py", folder / "migrated.py")
    (folder / "pyproject.toml").write_text("[tool.torchlift]\n")
    return folder


def watched(project: Path, *arguments: str) -> tuple[Any, list[list[str]]]:
    """The exit status, and what was started, run and written."""
    report = project.parent / "seen.json"
    done = subprocess.run(
        [sys.executable, "-B", "-c", WATCHED, *arguments],
        cwd=project,
        env={"PATH": "/usr/bin:/bin", "SEEN": str(report), "PYTHONPATH": ":".join(sys.path), "TORCHLIFT_DEBUG": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status, seen = json.loads(report.read_text())
    return status, seen


PREVIEWS = {
    "a script": (0, ("train.py",)),
    "a folder with a notebook": (0, (".",)),
    "changed files of a hook": (1, ("--hook", "--check", "utils.py")),
    "for machines": (0, ("--output-format", "sarif", ".")),
    "an audit": (0, ("--audit", "migrated.py")),
}


@pytest.mark.parametrize("case", PREVIEWS)
def test_a_preview_reads_and_writes_its_cache_alone(case: str, project: Path) -> None:
    wanted, arguments = PREVIEWS[case]
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    status, seen = watched(project, *arguments)
    assert status == wanted
    cache = str(project / ".torchlift_cache")
    assert [entry for entry in seen if entry[0] != "writes" or not entry[1].startswith(cache)] == []
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in project.iterdir()} - {path.name for path in before} <= {".torchlift_cache"}


def test_without_a_cache_nothing_is_written(project: Path) -> None:
    assert watched(project, "--no-cache", ".") == (0, [])


def test_modules_of_the_project_are_not_taken_for_ours(project: Path) -> None:
    for name in ("rich", "click", "libcst", "yaml", "difflib", "tempfile"):
        (project / f"{name}.py").write_text("open('run.txt', 'w').write(__name__)\nraise SystemExit(9)\n")
    command = [sys.executable, "-m", "torchlift.codemods", "--check", "train.py"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, (project / "run.txt").exists()) == (1, False), done.stderr


DEEDS = {
    "a socket": ("import socket; socket.socket()", "socket.__new__"),
    "an address": ("import socket; socket.getaddrinfo('127.0.0.1', 80)", "socket.getaddrinfo"),
    "a process": ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
    "a fork": ("import os; os.fork() or os._exit(0)", "os.fork"),
    "a shell": ("import os; os.system('true')", "os.system"),
    "a file": ("open('other.txt', 'w').close()", "writes"),
    "a folder": ("import os; os.mkdir('other')", "writes"),
    "an import": ("import sys; sys.path.insert(0, ''); import utils", "runs"),
}


@pytest.mark.parametrize("case", DEEDS)
def test_the_watch_sees(case: str, project: Path) -> None:
    code, event = DEEDS[case]
    _, seen = watched(project, "--python", code)
    assert event in [entry[0] for entry in seen]
