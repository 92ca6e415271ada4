"""The page about the runtime: its program runs, and the names in it are there."""

from __future__ import annotations

import re
from pathlib import Path

from torchlift.runtime import Accelerator

PAGE = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text()


def test_the_program(capsys):
    program = PAGE.split("```python\n")[1].split("```")[0]
    exec(compile(program, "runtime.md", "exec"), {})
    assert float(capsys.readouterr().out) > 0


def test_methods_are_there():
    table = PAGE.split("| method | what it does here |")[1].split("\n\n")[0]
    names = re.findall(r"`(\w+)", "\n".join(row.split("|")[1] for row in table.splitlines()[2:]))
    assert len(names) > 20
    assert [name for name in names if not hasattr(Accelerator, name)] == []


def test_arguments_are_there():
    table = PAGE.split("| argument of `Accelerator` | what it does here |")[1].split("\n\n")[0]
    names = re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in table.splitlines()[2:]))
    assert len(names) > 10
    known = Accelerator.__init__.__code__.co_varnames
    assert [name for name in names if name not in known] == []
