"""The wheel: what is in it, what it brings, and that the commands work in an environment with nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FIXTURE = ROOT / "fixtures" / "mnist_functions"
pytestmark = pytest.mark.xdist_group("packaging")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("rewriter", "codemods", "runtime"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment that holds the wheel and what it requires."""
    home = tmp_path_factory.mktemp("home") / "venv"
    venv.create(home, with_pip=True)
    commands = home / ("Scripts" if os.name == "nt" else "bin")
    install = [str(commands / "python"), "-m", "pip", "install", "--quiet", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, text=True)
    return commands


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIXTURE / "before.py", tmp_path))


def call(installed: Path, *command: str, folder: Path, given: str = "", status: int = 0) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    ended = subprocess.run(
        [str(installed / command[0]), *command[1:]],
        cwd=folder,
        env=kept,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout


def test_the_wheel_holds_every_file_of_the_wings(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    wings = ("rewriter", "codemods", "runtime")
    files = {file for wing in wings for file in (ROOT / wing).rglob("*.py")}
    wanted = {f"torchlift/{file.relative_to(ROOT).as_posix()}" for file in files}
    wanted |= {f"torchlift/rewriter/report/{name}" for name in ("findings.md", "page.css", "page.js")}
    assert names == wanted | {f"torchlift/{wing}/py.typed" for wing in wings}


def test_nothing_of_ours_stands_at_the_top(installed: Path, tmp_path: Path) -> None:
    code = "import sysconfig, os; print(*sorted(os.listdir(sysconfig.get_path('purelib'))))"
    top = call(installed, "python", "-c", code, folder=tmp_path).split()
    assert "torchlift" in top
    assert not {"rewriter", "codemods", "runtime"} & set(top)


def test_it_brings_no_torch(installed: Path, tmp_path: Path) -> None:
    have = call(installed, "python", "-m", "pip", "list", "--format", "json", folder=tmp_path)
    names = {entry["name"].lower() for entry in json.loads(have)}
    assert "libcst" in names
    assert not {"torch", "numpy", "safetensors"} & names


def test_it_says_how_to_get_the_runtime(installed: Path, tmp_path: Path) -> None:
    code = "import torchlift.runtime as r\ntry: r.Accelerator\nexcept ImportError as error: print(error)"
    assert 'pip install "torchlift[runtime]"' in call(installed, "python", "-c", code, folder=tmp_path)


def test_help_of_both_commands(installed: Path, tmp_path: Path) -> None:
    assert "--write" in call(installed, "migrate", "--help", folder=tmp_path)
    assert "launch" in call(installed, "torchlift", "--help", folder=tmp_path)
    assert "--num-processes" in call(installed, "torchlift", "launch", "--help", folder=tmp_path)


def test_preview_write_and_check(installed: Path, script: Path) -> None:
    folder, before = script.parent, script.read_bytes()
    assert "+    accelerator = Accelerator(" in call(installed, "migrate", "before.py", folder=folder)
    call(installed, "migrate", "--check", "before.py", folder=folder, status=1)
    assert script.read_bytes() == before
    call(installed, "migrate", "--write", "before.py", folder=folder)
    assert script.read_bytes() == (FIXTURE / "after.py").read_bytes()
    call(installed, "migrate", "--check", "before.py", folder=folder)


def test_the_other_ways_to_ask(installed: Path, script: Path) -> None:
    folder, text = script.parent, script.read_text()
    assert "+        accelerator.backward(loss)" in call(installed, "migrate", "-", folder=folder, given=text)
    assert "accelerator.backward" in call(installed, "migrate", "--explain", "backward", folder=folder)
    assert "optimizer" in call(installed, "migrate", "--roles", "before.py", folder=folder)
    (file,) = json.loads(call(installed, "migrate", "--output-format", "json", "before.py", folder=folder))["files"]
    assert file["changed"]
