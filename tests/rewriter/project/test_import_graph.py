"""Which files make up a program: Python's own rules of import, without running anything."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.rewriter.facts.module_paths import resolved
from torchlift.rewriter.project.import_graph import Library, Program, follow
from torchlift.rewriter.source import SourceError

Make = Callable[[dict[str, str]], Path]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """`make({path: text})` writes a project with a marked root and goes there."""

    def write(files: dict[str, str]) -> Path:
        for name, text in {"pyproject.toml": "", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return write


def names(program: Program) -> dict[str, str]:
    return {file.name: file.path.as_posix() for file in program.files}


IMPORTS = {
    "a sibling": ("import utils", "utils.py"),
    "a name of a sibling": ("from utils import f", "utils.py"),
    "everything of a sibling": ("from utils import *", "utils.py"),
    "a module of a package": ("import pkg.a", "pkg/a.py"),
    "a module as a name of its package": ("from pkg import a", "pkg/a.py"),
    "a module of a folder without __init__": ("from bare.a import f", "bare/a.py"),
    "inside a function": ("def main():\n    import utils", "utils.py"),
    "under try": ("try:\n    import utils\nexcept ImportError:\n    utils = None", "utils.py"),
    "by literal name": ("import importlib\nm = importlib.import_module('pkg.a')", "pkg/a.py"),
    "from a folder put on sys.path": ("import sys\nsys.path.insert(0, 'lib')\nimport inner", "lib/inner.py"),
    "from a folder that a module beside it puts on sys.path": ("import paths\nimport inner", "lib/inner.py"),
    "named like a library": ("from datasets import f", "datasets.py"),
    "above the script": ("from top import f", "../top.py"),
}
FILES = ("utils.py", "pkg/__init__.py", "pkg/a.py", "bare/a.py", "lib/inner.py", "datasets.py", "../top.py")

ADDS = """\
import os.path as osp
import sys


def add(path):
    if path not in sys.path:
        sys.path.insert(0, path)


here = osp.dirname(__file__)
beside = osp.join(here, ".", "lib")
add(beside)
"""


@pytest.mark.parametrize("case", IMPORTS)
def test_follows(case: str, make: Make) -> None:
    text, wanted = IMPORTS[case]
    make(
        {
            "scripts/train.py": text,
            **{os.path.normpath(f"scripts/{name}"): "" for name in FILES},
            "scripts/paths.py": ADDS,
        }
    )
    found = names(follow(Library(), Path("scripts/train.py")))
    assert os.path.normpath(f"scripts/{wanted}") in found.values()


OWN_FOLDER = {
    "its own": "import os, sys\nplace = os.path.abspath(os.path.dirname(__file__))\nsys.path.append(place)\n",
    "by pathlib": "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).resolve().parent))\n",
}


@pytest.mark.parametrize("adds", OWN_FOLDER.values(), ids=OWN_FOLDER)
def test_a_package_that_puts_its_own_folder_on_the_path(adds: str, make: Make) -> None:
    init = adds + "from inner import Net\n"
    make({"train.py": "from nets import *\n", "nets/__init__.py": init, "nets/inner.py": "", "inner.txt": ""})
    assert names(follow(Library(), Path("train.py")))["inner"] == "nets/inner.py"


@pytest.mark.parametrize(
    "above",
    [
        "os.path.dirname(os.path.dirname(__file__))",
        "Path(__file__).parent.parent",
        "Path(__file__).resolve().parents[1]",
    ],
)
def test_a_package_that_puts_the_folder_above_on_the_path(above: str, make: Make) -> None:
    init = f"import os, sys\nfrom pathlib import Path\nsys.path.append({above})\nfrom lib.inner import Net\n"
    make({"a/train.py": "from nets.deep import f\n", "a/nets/deep/__init__.py": init, "a/nets/lib/inner.py": ""})
    assert "a/nets/lib/inner.py" in names(follow(Library(), Path("a/train.py"))).values()


def test_names_that_are_made_of_one_another_are_followed_once(make: Make) -> None:
    """Each way through them was gone: twelve such names took hours."""
    names_of = [f"part_{n}" for n in range(40)]
    lines = [f"{name} = os.path.join({', '.join(names_of)})\n" for name in names_of]
    text = f"import os, sys\npart_0 = 'lib'\n{''.join(lines)}sys.path.append(part_1)\nimport inner\n"
    make({"train.py": text, "lib/inner.py": ""})
    assert names(follow(Library(), Path("train.py")))["inner"] == "lib/inner.py"


NOT = {
    "an installed package": "import torch",
    "a name that only a type checker sees": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import utils",
    "a name that a lazy package imports at once": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING or at_once:\n    import utils"
    ),
    "a computed name": "import importlib\nm = importlib.import_module('pkg.' + name)",
    "a folder of data named like a library": "import datasets",
    "the standard library above the script": "import types",
}


@pytest.mark.parametrize("case", NOT)
def test_does_not_follow(case: str, make: Make) -> None:
    others = ("utils.py", "datasets/x.csv", "../types.py", "../torch.py")
    make({"scripts/train.py": NOT[case], **{os.path.normpath(f"scripts/{name}"): "" for name in others}})
    assert len(follow(Library(), Path("scripts/train.py")).files) == 1


def test_relative_imports_start_from_the_package_of_their_file(make: Make) -> None:
    make({
        "pkg/__init__.py": "", "pkg/train.py": "from . import data\nfrom .nets.small import Net\nfrom .. import no",
        "pkg/data.py": "", "pkg/nets/__init__.py": "", "pkg/nets/small.py": "from ..data import x",
    })  # fmt: skip
    program = follow(Library(), Path("pkg/train.py"))
    assert {"__main__", "pkg.data", "pkg.nets", "pkg.nets.small"} <= set(names(program))
    assert program.aliases["pkg.train"] == "__main__"


def test_a_file_with_two_names_is_one_module(make: Make) -> None:
    make({"src/train.py": "import utils\nfrom src.utils import f", "src/utils.py": ""})
    program = follow(Library(), Path("src/train.py"))
    assert names(program) == {"__main__": "src/train.py", "utils": "src/utils.py"}
    assert program.aliases["src.utils"] == "utils"


def test_a_script_in_a_package_of_which_nothing_marks_the_top(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make({"nets/__init__.py": "", "nets/train.py": "import utils", "nets/utils.py": ""})
    (folder / "pyproject.toml").unlink()
    monkeypatch.chdir(folder / "nets")
    assert [file.path.name for file in follow(Library(), Path("train.py")).files] == ["train.py", "utils.py"]


def test_a_script_that_names_its_own_folder(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m src.train`, in a folder that nothing marks as a project: the script alone was read."""
    make({"got/src/train.py": "from src.utils import f", "got/src/utils.py": ""})
    (tmp_path / "pyproject.toml").unlink()
    monkeypatch.chdir(tmp_path / "got" / "src")
    assert list(names(follow(Library(), Path("train.py"))).values()) == ["train.py", "utils.py"]


def test_a_circle_of_imports_ends(make: Make) -> None:
    make({"train.py": "import a", "a.py": "import b", "b.py": "import a, train"})
    program = follow(Library(), Path("train.py"))
    assert list(names(program)) == ["__main__", "a", "b"]


def test_a_missing_local_module_is_named(make: Make) -> None:
    make({"pkg/__init__.py": "", "pkg/train.py": "from .gone import f\ntry:\n    from .maybe import g\nexcept E: pass"})
    missing = follow(Library(), Path("pkg/train.py")).missing
    assert [(m.path.as_posix(), m.line, m.module) for m in missing] == [("pkg/train.py", 1, ".gone")]


def test_of_two_files_with_one_name_python_takes_the_first(make: Make) -> None:
    make({"scripts/train.py": "import utils", "scripts/utils.py": "", "utils.py": ""})
    (twins,) = follow(Library(), Path("scripts/train.py")).doubled
    assert (twins.module, twins.taken.name, twins.other.name) == ("utils", "utils.py", "utils.py")
    assert twins.taken.parent.name == "scripts"


def test_a_module_that_is_no_python_is_an_error_of_its_own(make: Make) -> None:
    make({"train.py": "import utils", "utils.py": "import x\ndef f(:"})
    with pytest.raises(SourceError, match=r"utils.py:2: not valid Python"):
        follow(Library(), Path("train.py"))


@pytest.mark.parametrize(
    ("package", "module", "name"),
    [
        ("", "utils", "utils"), ("pkg", ".utils", "pkg.utils"), ("pkg.sub", "..utils", "pkg.utils"),
        ("pkg.sub", ".", "pkg.sub"), ("", ".utils", "utils"), ("pkg", "..utils", ""), ("", "..utils", None),
    ],
)  # fmt: skip
def test_relative_names(package: str, module: str, name: str | None) -> None:
    assert resolved(package, module) == (name if name != "" else None)
