"""Magics name the variables of the notebook as its code does: what they read of the training is given back to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.notebooks.document import masked, read_notebook
from torchlift.rewriter.notebooks.magics import run_by, used_by_magics
from torchlift.rewriter.notebooks.migrating import plan_notebook
from torchlift.rewriter.result import FileResult

IMPORTS = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset"
BUILD = (
    "x = torch.randn(64, 4)\nloader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)\n"
    "model = nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
)
LOOP = (
    "losses = []\nfor rows, y in loader:\n    loss = nn.functional.mse_loss(model(rows), y)\n"
    "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n    losses.append(loss.item())"
)

COUNT = "num_processes=torch.cuda.device_count() or 1"


def migrated(*cells: str) -> FileResult:
    made = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": text} for text in cells
    ]
    data = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    notebook = read_notebook(json.dumps(data).encode(), Path("train.ipynb"))
    (file,) = plan_notebook(notebook, (), CATALOGUE, Config()).result().files
    return file


def texts(file: FileResult) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(file.after.decode())["cells"]]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("%timeit model(x)", "model, x"),
        ("%timeit -n 10 -o model(x)", "model, x"),
        ("%time out = model(x)", "model, x"),
        ("out = %timeit -o model(x)", "model, x"),
        ("%store losses", "losses"),
        ("!echo $losses", "losses"),
        ("!echo {losses[-1]}", "losses"),
    ],
)
def test_what_a_later_magic_reads_is_given_back(line: str, names: str) -> None:
    file = migrated(IMPORTS, BUILD, LOOP, line)
    assert not [found for found in file.diagnoses if found.severity.value == "blocked"]
    cells = texts(file)
    assert cells[3] == line
    given = set(cells[2].partition(" = notebook_launcher(")[0].rpartition("\n")[2].split(", "))
    assert given == set(names.split(", "))


def test_a_magic_between_the_lines_that_reads_what_its_own_cell_trains_is_refused() -> None:
    (found,) = migrated(IMPORTS, BUILD, f"{LOOP}\n!mkdir {{losses[-1]}}\nprint(losses)").diagnoses
    assert (found.id, found.case) == ("notebook-state", "magic")
    assert found.message.startswith("a magic reads `losses`, which the training makes")


@pytest.mark.parametrize("line", ["!ls out", "!nvidia-smi", "!cp model.pt backup", "!echo {losses[-1]}", "%ls"])
def test_a_magic_below_the_training_of_its_cell_stays_below_it(line: str) -> None:
    """`!ls` was put above the training, and showed the files of before; `!cp` was refused."""
    file = migrated(IMPORTS, BUILD, f"{LOOP}\n{line}")
    assert not file.diagnoses
    assert texts(file)[2].endswith(f"notebook_launcher(training_function, {COUNT})\n{line}")


@pytest.mark.parametrize("cells", [(f"{LOOP}\n!nvidia-smi", LOOP), (LOOP, "!nvidia-smi", LOOP)])
def test_what_looks_between_two_trainings_comes_after_both(cells: tuple[str, ...]) -> None:
    found = texts(migrated(IMPORTS, BUILD, *cells))
    assert found[-1].endswith(f", {COUNT})\n\n!nvidia-smi") and "!nvidia-smi" not in "".join(found[:-1])
    assert found[-2].endswith(f"# Moved below the training, in cell {len(found)}.")


def test_what_the_training_needs_stays_above_it() -> None:
    found = texts(migrated(IMPORTS, BUILD, f"{LOOP}\n!mkdir out\ntorch.save(model.state_dict(), 'out/m.pt')"))
    assert found[2].startswith("!mkdir out\ndef training_function")
    assert texts(migrated(IMPORTS, BUILD, "!nvidia-smi", LOOP))[2] == "!nvidia-smi"


def test_a_magic_that_acts_between_two_trainings_is_refused() -> None:
    (found,) = migrated(IMPORTS, BUILD, f"{LOOP}\n!cp model.pt backup", LOOP).diagnoses
    assert found.case == "magic" and found.remedy.endswith("else after the training")


@pytest.mark.parametrize("line", ["!echo $HOME", "!mkdir -p runs", "!wget {address}", "%matplotlib inline"])
def test_a_magic_that_reads_nothing_of_the_training_stays(line: str) -> None:
    file = migrated(f"{IMPORTS}\naddress = 'a.zip'", BUILD, f"{line}\n{LOOP}")
    assert not [found for found in file.diagnoses if found.severity.value == "blocked"]
    assert texts(file)[2].startswith(f"{line}\n")


@pytest.mark.parametrize(
    ("line", "reads", "binds"),
    [
        ("files = !ls {folder}", {"folder"}, {"files"}),
        ("%time score = test(model)", {"test", "model"}, {"score"}),
        ("%store -r losses", set(), {"losses"}),
        ("!awk '{print $1}' a.txt", set(), set()),
        ("!echo $$", set(), set()),
        ("%env KEY=$key", {"key"}, set()),
        ("%who", set(), set()),
        ("%%bash\necho $PATH {a}", set(), set()),
        ("%%writefile $name\nx = {value}", {"name"}, set()),
        ("text = '$losses {model}'", set(), set()),
    ],
)
def test_names(line: str, reads: set[str], binds: set[str]) -> None:
    found = used_by_magics(masked(line))
    assert found[0] - {"1", "print"} == reads and found[1] == binds


def test_the_code_that_a_magic_runs() -> None:
    assert run_by("%timeit -n 10 -r 3 fit(model)") == "fit(model)"
    assert run_by("%time fit(") == "" and run_by("!ls") == ""


@pytest.mark.parametrize("magic", ["%%time", "%%capture", "%%capture --no-stderr out"])
def test_the_magic_of_a_whole_cell_stays_on_its_first_line(magic: str) -> None:
    """Below the imports that stay in the cell it is no magic of the cell, and the notebook says UsageError."""
    file = migrated(IMPORTS, BUILD, f"{magic}\nimport math\n{LOOP}\n    math.sqrt(2)", "print(losses)")
    assert not [found for found in file.diagnoses if found.severity.value == "blocked"]
    assert texts(file)[2].startswith(f"{magic}\nimport math\n")


def test_what_a_magic_keeps_of_a_training_cell_is_not_read_later() -> None:
    file = migrated(IMPORTS, BUILD, f"%%capture --no-stderr out\n{LOOP}", "print(out.stdout)")
    (found,) = [found for found in file.diagnoses if found.severity.value == "blocked"]
    assert found.message.startswith("`out` is what a magic keeps of this cell")


def test_a_magic_that_runs_the_training_several_times_is_named() -> None:
    (found,) = migrated(IMPORTS, BUILD, f"%%timeit\n{LOOP}").diagnoses
    assert found.message == "`%%timeit` is in a cell of the training, and a function cannot have a magic"
