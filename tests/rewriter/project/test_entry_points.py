"""Who imports a module: only files whose import statements may mean it are parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.rewriter.project.entry_points import Map
from torchlift.rewriter.project.import_graph import Library

IMPORTS = {
    "plain": "import loops",
    "under another name": "import os, loops as l",
    "a part of a name": "from tools.loops import run",
    "a name of a package": "from tools import loops",
    "over several lines": "from tools import (  # ) not yet\n    other,\n    loops,\n)",
    "a line that goes on": "from tools import other, \\\n    loops",
    "after another statement": "import os; import loops",
    "in a branch": "try: import loops\nexcept ImportError: pass",
    "in a function": "def f():\n\tfrom tools import loops",
    "by a text": "import importlib\nm = importlib.import_module('loops')",
    "everything": "from tools.loops import *",
    "lines that end in another way": "import os\rimport loops\r",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "tools").mkdir()
    for name in ("loops.py", "tools/__init__.py", "tools/loops.py", "tools/other.py"):
        (tmp_path / name).write_text("def run():\n    pass\n")
    return tmp_path


def _importers(project: Path, user: str, text: str, *modules: str) -> set[str]:
    (project / user).write_bytes(text.encode())
    found = Map(Library(), lambda path: False).importers([project / m for m in modules], [project / user])
    return {path.relative_to(project).as_posix() for hit in found.values() for path in hit}


@pytest.mark.parametrize("text", IMPORTS.values(), ids=IMPORTS)
def test_a_module_is_found_by_each_kind_of_import(text: str, project: Path) -> None:
    assert _importers(project, "user.py", text, "loops.py", "tools/loops.py")


def test_a_package_is_found_by_what_is_in_it(project: Path) -> None:
    text = "from . import other\ntools = 1\n"
    assert _importers(project, "tools/user.py", text, "tools/__init__.py") == {"tools/__init__.py"}


def test_a_file_that_only_has_the_word_is_not_parsed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "imports", lambda *_: pytest.fail("parsed"))
    text = "import os\n# loops\nfor loops in range(3):\n    print(loops)\n"
    assert _importers(project, "user.py", text, "loops.py") == set()
