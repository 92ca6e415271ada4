"""The next command is one that the user can copy: its name, its options, its paths."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchlift.rewriter.cli.invoked import chosen, invoked, quoted
from torchlift.rewriter.cli.request import Request, parse


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `migrate` in a folder of its own."""
    path = tmp_path / "bin" / "migrate"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(path), "train.py"])
    monkeypatch.delenv("PRE_COMMIT", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    return path


def test_a_command_on_the_path_is_named_as_it_is_called(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    assert invoked() == "migrate"


def test_a_command_that_is_not_on_the_path_is_named_in_full(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent.parent))
    assert invoked() == str(program)


def test_a_hook_has_a_path_that_its_user_has_not(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("PRE_COMMIT", "1")
    assert invoked() == str(program)


def test_a_module_is_called_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.machinery import ModuleSpec

    spec = ModuleSpec("torchlift.codemods.__main__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setenv("PATH", "")
    assert invoked() == f"{sys.executable} -m torchlift.codemods"


def test_the_python_that_an_environment_was_made_of_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's own is a link to it, and has packages that it has not."""
    from importlib.machinery import ModuleSpec

    base, own = tmp_path / "base" / "python", tmp_path / "env" / "python"
    for path in (base, own):
        path.parent.mkdir()
    base.write_text("#!/bin/sh\n")
    base.chmod(0o755)
    own.symlink_to(base)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("torchlift.codemods.__main__", None))
    monkeypatch.setattr(sys, "executable", str(own))
    monkeypatch.delenv("PRE_COMMIT", raising=False)
    monkeypatch.setenv("PATH", str(base.parent))
    assert invoked() == f"{own} -m torchlift.codemods"
    monkeypatch.setenv("PATH", str(own.parent))
    assert invoked() == "python -m torchlift.codemods"


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--select backward,prepare --ignore once",
        "--assume loss=err --assume model=net",
        "--target accelerate --strategy fsdp --mixed-precision bf16 --keep-global-batch --partial",
    ],
)
def test_the_options_are_those_of_the_user(options: str) -> None:
    asked = parse([*options.split(), "train.py"])
    assert isinstance(asked, Request)
    assert " ".join(chosen(asked.options)) == options


def test_paths_are_quoted() -> None:
    assert quoted(["a b.py", "c.py"]) == "'a b.py' c.py"
