"""Notebooks that import local modules: one program, migrated as a whole or left as a whole; and edited as a text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.cli.main import run
from torchlift.rewriter.notebooks import migrating
from torchlift.rewriter.notebooks.document import read_notebook
from torchlift.rewriter.notebooks.gather import NotGathered
from torchlift.rewriter.notebooks.launching import NotebookHome, home_of
from torchlift.rewriter.project.session import problem_of
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import Source, decode

IMPORTS = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
DATA = "x = torch.randn(64, 4)\nloader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)"
BUILD = (
    "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\nmodel = nn.Linear(4, 1).to(device)\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
)
LOOP = "for epoch in range(3):\n    train_one_epoch(model, loader, optimizer, device)"
STEP = """\
import torch


def train_one_epoch(model, loader, optimizer, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
STEPPED = """\
import torch


def train_one_epoch(model, loader, optimizer, accelerator):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
"""
ENGINE = """\
import torch
from torch import nn


def run(loader, epochs=2):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = ((model(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
LAUNCHED = "num_processes=torch.cuda.device_count() or 1)"
CELLS = (IMPORTS + "from utils import train_one_epoch", DATA, BUILD, LOOP)
SCRIPT = "\n".join([*CELLS, ""])


def _notebook(*cells: str) -> str:
    kept = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    listed = [
        {**kept, "id": f"c{number}", "source": text.splitlines(keepends=True)} for number, text in enumerate(cells)
    ]
    return json.dumps({"cells": listed, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


UTILS = {"nb.ipynb": _notebook(*CELLS), "utils.py": STEP}
STEPPER = """\
import torch


def stepper(model, optimizer, device):
    def step(x, y):
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step
"""
STEPS = (
    IMPORTS + "from utils import stepper",
    DATA,
    BUILD,
    "step = stepper(model, optimizer, device)\nfor x, y in loader:\n    step(x, y)",
)
BOUND = {"nb.ipynb": _notebook(*STEPS), "utils.py": STEPPER}
"""A function inside another one: it gets no parameter that others need not give."""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text("")


def _write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def _texts(files: dict[str, str]) -> dict[str, str]:
    return {name: Path(name).read_text() for name in files}


def _cells() -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(Path("nb.ipynb").read_text())["cells"]]


# ---------------------------------------------------------------- the program


def test_a_module_that_trains_is_migrated_with_its_notebook() -> None:
    _write(UTILS)
    assert run(CATALOGUE, ["--write", "nb.ipynb"]) == 0
    assert Path("utils.py").read_text() == STEPPED
    head, data, build, training = _cells()
    assert head.endswith("import train_one_epoch\nfrom torchlift.runtime import Accelerator, notebook_launcher")
    assert {data, build} == {"# Moved into training_function() in cell 4."}
    assert "\n        train_one_epoch(model, loader, optimizer, accelerator)\n" in training
    assert training.endswith(f"notebook_launcher(training_function, {LAUNCHED}")
    once = _texts(UTILS)
    assert run(CATALOGUE, ["--check", "nb.ipynb"]) == 0
    assert run(CATALOGUE, ["--write", "nb.ipynb"]) == 0
    assert _texts(UTILS) == once


def test_nbformat_has_nothing_against_it() -> None:
    nbformat = pytest.importorskip("nbformat")
    _write(UTILS)
    nbformat.validate(nbformat.read("nb.ipynb", as_version=4))
    run(CATALOGUE, ["--write", "nb.ipynb"])
    assert _texts(UTILS) != UTILS
    nbformat.validate(nbformat.read("nb.ipynb", as_version=4))


@pytest.mark.parametrize(
    ("head", "call", "started"),
    [
        ("from engine import run", "run(loader)", "notebook_launcher(run, (loader,), "),
        ("from engine import run", "run(loader, epochs=3)", "notebook_launcher(lambda: run(loader, epochs=3), "),
        ("from pkg.engine import run as go", "go(loader)", "notebook_launcher(go, (loader,), "),
    ],
    ids=["positional", "keywords", "another name"],
)
def test_a_function_of_a_module_that_builds_everything_is_launched(head: str, call: str, started: str) -> None:
    _write({"nb.ipynb": _notebook(IMPORTS + head, DATA, call), "engine.py": ENGINE, "pkg/engine.py": ENGINE})
    assert run(CATALOGUE, ["--write", "nb.ipynb"]) == 0
    assert _cells()[0].endswith(f"{head}\nfrom torchlift.runtime import notebook_launcher")
    assert _cells()[1:] == [DATA, f"{started}{LAUNCHED}"]
    changed, other = ("pkg/engine.py", "engine.py") if "pkg" in head else ("engine.py", "pkg/engine.py")
    assert "accelerator = Accelerator()" in Path(changed).read_text()
    assert Path(other).read_text() == ENGINE


@pytest.mark.parametrize("call", ["engine.run(loader)", "done = engine.run(loader)"], ids=["called", "with a result"])
def test_calls_that_the_launcher_cannot_take_over_are_put_into_a_function(call: str) -> None:
    _write({"nb.ipynb": _notebook(IMPORTS + "import engine", DATA, call), "engine.py": ENGINE})
    assert run(CATALOGUE, ["--write", "nb.ipynb"]) == 0
    training = f"def training_function():\n    {call}\n\n\nnotebook_launcher(training_function, {LAUNCHED}"
    assert _cells()[1:] == [DATA, training]


def test_an_accelerator_that_is_made_at_an_import_is_too_early() -> None:
    def result(name: str, text: str) -> FileResult:
        return FileResult(decode(text.encode(), Path(name)), text.encode())

    call, made = result("nb.ipynb", "import net\n"), "accelerator = Accelerator()\n"
    with pytest.raises(NotGathered) as refused:
        home_of([call, result("net.py", made)])
    assert "net.py would create the accelerator on import" in refused.value.cause
    assert home_of([call, result("net.py", f"def f():\n    {made}")]) == NotebookHome(Path("net.py"), "f", True)
    assert home_of([call, result("net.py", f"class T:\n    {made}")]) == NotebookHome(Path("net.py"), "T", False)
    assert home_of([result("nb.ipynb", made)]) == NotebookHome(None, "", False)
    assert home_of([call]) is None


# ---------------------------------------------------------------- all or nothing


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ((*CELLS[:3], "%time x = 1\n" + LOOP), "`%time` is in a cell of the training"),
        ((*CELLS, "plt.plot(optimizer.state)"), "this cell shows something of the training (by `plt`)"),
        (
            (*CELLS[:3], "count = 0\nfrom math import *\n" + LOOP),
            "there is a star import between the lines of the training",
        ),
    ],
    ids=["a magic", "a plot", "a star import"],
)
@pytest.mark.parametrize("options", [("--write",), ("--write", "--partial")], ids=["written", "in part"])
def test_a_notebook_that_is_refused_leaves_its_modules(
    cells: tuple[str, ...], says: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"nb.ipynb": _notebook(*cells), "utils.py": STEP}
    _write(files)
    assert run(CATALOGUE, [*options, "nb.ipynb"]) == 2
    assert says in capsys.readouterr().err
    assert _texts(files) == files


def test_a_module_that_is_blocked_leaves_its_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    files = {**BOUND, "other.py": "from utils import stepper\n\nstepper(1, 2, 'cpu')(3, 4)\n"}
    _write(files)
    assert run(CATALOGUE, ["--write", "nb.ipynb"]) == 2
    assert "also used by other.py" in capsys.readouterr().err
    assert _texts(files) == files


def test_a_broken_cell_leaves_everything(capsys: pytest.CaptureFixture[str]) -> None:
    files = {**UTILS, "nb.ipynb": _notebook(*CELLS, "def f(:")}
    _write(files)
    assert run(CATALOGUE, ["--write", "nb.ipynb"]) == 3
    assert "nb.ipynb: cell 5, line 1: not valid Python" in capsys.readouterr().err
    assert _texts(files) == files


def test_a_module_that_changes_meanwhile_leaves_the_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(UTILS)
    real = migrating.plan_notebook

    def meanwhile(*args: object, **kwargs: object) -> object:
        Path("utils.py").write_text(STEP + "# more\n")
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(migrating, "plan_notebook", meanwhile)
    assert run(CATALOGUE, ["--write", "nb.ipynb"]) == 3
    assert "utils.py" in capsys.readouterr().err
    assert _texts(UTILS) == {**UTILS, "utils.py": STEP + "# more\n"}


# ---------------------------------------------------------------- several programs


def test_a_script_does_not_change_what_a_notebook_uses_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    files = {**BOUND, "train.py": "\n".join([*STEPS, ""])}
    _write(files)
    assert run(CATALOGUE, ["--write", "train.py"]) == 2
    assert "also used by nb.ipynb" in capsys.readouterr().err
    assert _texts(files) == files


@pytest.mark.parametrize("other", ["train.py", "nb.ipynb"])
def test_a_change_that_suits_a_script_and_a_notebook_is_made(other: str) -> None:
    """The one that is not migrated calls the function as before, until it is its turn."""
    files = {**UTILS, "train.py": SCRIPT}
    _write(files)
    (first,) = {"train.py", "nb.ipynb"} - {other}
    call = "train_one_epoch(model, loader, optimizer, accelerator.device, accelerator=accelerator)"
    assert run(CATALOGUE, ["--write", first]) == 0
    shared = Path("utils.py").read_text()
    assert (
        "def train_one_epoch(model, loader, optimizer, device, accelerator=None):\n    if accelerator is None" in shared
    )
    assert "x.to(device), y.to(device)" in shared
    assert call in Path(first).read_text()
    assert Path(other).read_text() == files[other]
    assert run(CATALOGUE, ["--write", other]) == 0
    assert call in Path(other).read_text()
    assert Path("utils.py").read_text() == shared


def test_both_are_migrated_together() -> None:
    _write({**UTILS, "train.py": SCRIPT})
    assert run(CATALOGUE, ["--write", "."]) == 0
    assert Path("utils.py").read_text() == STEPPED
    assert "notebook_launcher(" in Path("nb.ipynb").read_text()
    assert "train_one_epoch(model, loader, optimizer, accelerator)" in Path("train.py").read_text()


def test_a_hook_finds_the_notebook_that_reaches_a_changed_module() -> None:
    _write(UTILS)
    assert run(CATALOGUE, ["--hook", "--check", "utils.py"]) == 1
    assert run(CATALOGUE, ["--hook", "--write", "utils.py"]) == 0
    assert Path("utils.py").read_text() == STEPPED
    assert "notebook_launcher(" in Path("nb.ipynb").read_text()


@pytest.mark.unchanged
@pytest.mark.parametrize(
    "files",
    [
        {"nb.ipynb": _notebook("from utils import f", "print(f(3))"), "utils.py": "def f(n):\n    return n\n"},
        {"nb.ipynb": _notebook(IMPORTS, "import utils"), "utils.py": STEP},
        {"nb.ipynb": _notebook("import nb", "print(nb.x)"), "nb.py": "x = 3\n"},
    ],
    ids=["no training", "a library that it does not train with", "a module of its own name"],
)
def test_notebooks_that_do_not_train_are_left_alone(files: dict[str, str]) -> None:
    _write(files)
    assert run(CATALOGUE, ["--write", "nb.ipynb"]) == 0
    assert _texts(files) == files


def test_a_module_of_the_same_name_is_not_the_notebook() -> None:
    head = IMPORTS + "from nb import train_one_epoch"
    _write({"nb.ipynb": _notebook(head, *CELLS[1:]), "nb.py": STEP})
    assert run(CATALOGUE, ["--write", "nb.ipynb"]) == 0
    assert Path("nb.py").read_text() == STEPPED


# ---------------------------------------------------------------- cells as somebody edits them


def _source(*cells: str) -> Source:
    data = _notebook(*cells).encode()
    notebook = read_notebook(data, Path("nb.ipynb"))
    return Source(notebook.path, data, notebook.script(), "utf-8", notebook=notebook)


@pytest.mark.parametrize(
    "cells",
    [
        ("a = 1", "b = 2\n"),
        ("%time x\n!ls", ""),
        ("# cell 2\na = 1", "# cell 1"),
        ("x = '''\n# cell 2\n'''", "b = 2"),
        (),
    ],
    ids=["cells", "magics", "comments like the marks", "strings like them", "none"],
)
def test_what_is_read_is_written_byte_for_byte(cells: tuple[str, ...]) -> None:
    source = _source(*cells)
    assert source.notebook is not None
    assert source.notebook.written(source.notebook.read(source.data)) == source.data


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# cell 1\na = 1\n", "keep the lines at which cells begin (# cell 1 and so on)"),
        ("# cell 2\na = 1\n# cell 1\nb = 2\n", "in order"),
        ("x = 0\n# cell 1\na = 1\n# cell 2\nb = 2\n", "keep the lines"),
        ("# cell 1\na = 1\n# cell 1\n# cell 2\nb = 2\n", "each once"),
        ("# cell 1\na = 1\n# cell 2\nb = (\n", "cell 2, line 1: not valid Python: '(' was never closed"),
        ("# cell 1\n%time x\n# cell 2\nb = 3\n", ""),
    ],
    ids=["a cell is gone", "swapped", "a line in front", "twice", "not Python", "a magic"],
)
def test_what_is_no_notebook_any_more_is_said(text: str, says: str) -> None:
    problem = problem_of(text, _source("a = 1", "b = 2"))
    assert says in problem
    assert bool(says) == bool(problem)


# ---------------------------------------------------------------- execution


@pytest.mark.slow
@pytest.mark.parametrize("name", ["utils", "engine"])
def test_verify_holds(name: str) -> None:
    engine = {"nb.ipynb": _notebook(IMPORTS + "from engine import run", DATA, "run(loader)"), "engine.py": ENGINE}
    _write(UTILS if name == "utils" else engine)
    command = [sys.executable, "-m", "torchlift.codemods", "nb.ipynb", "--verify", "--steps", "4"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "\nHELD (" in ended.stderr
