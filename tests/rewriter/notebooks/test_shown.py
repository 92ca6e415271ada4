"""What wipes the output of its cell must not wipe that of the cells before it, with which it is one function now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.notebooks.document import read_notebook
from torchlift.rewriter.notebooks.migrating import plan_notebook
from torchlift.rewriter.notebooks.uses import filled, readers
from torchlift.rewriter.report.expect import expectations
from torchlift.rewriter.result import Result

START = "import torch\nfrom torch.utils.data import DataLoader\nfrom IPython.display import clear_output"
BUILD = (
    "model = torch.nn.Linear(1, 1)\nrule = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "loader = DataLoader(torch.ones(8, 1), batch_size=4)"
)
LOOP = (
    "for x in loader:\n    loss = model(x).mean()\n    rule.zero_grad()\n    loss.backward()\n    rule.step()\n"
    "    print(loss.item())"
)
WIPED = "wipes now also what the cells of the training before it have printed"


def migrated(*cells: str) -> tuple[list[str], str]:
    listed = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": text} for text in cells]
    data = json.dumps({"cells": listed, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}).encode()
    (file,) = plan_notebook(read_notebook(data, Path("nb.ipynb")), (), CATALOGUE, Config()).result().files
    assert file.changed
    told = "\n".join(expectations(Result((file,), 1)))
    return ["".join(cell["source"]) for cell in json.loads(file.after)["cells"]], told


@pytest.mark.parametrize("bound", ["", "from IPython.display import clear_output\n"])
def test_a_cell_that_wipes_its_output_does_so_outside_of_the_function(bound: str) -> None:
    cells, told = migrated(START, BUILD, LOOP, f"{BUILD}\n{bound}clear_output()", LOOP)
    assert "clear_output()\n# Moved into" in cells[3]
    assert "def training_function():" in cells[4] and "clear_output" not in cells[4]
    assert WIPED not in told


def test_a_cell_of_the_training_that_only_imports_and_wipes_stays_as_it_is() -> None:
    wipes = "import torch\n\n# clear output\nfrom IPython.display import clear_output\nclear_output()"
    cells, told = migrated(START, BUILD, LOOP, BUILD, wipes, LOOP)
    assert cells[4].startswith("import torch\n\n# clear output\n") and cells[4].endswith("\nclear_output()")
    assert "    clear_output()" not in "".join(cells) and WIPED not in told


def test_what_the_first_cell_of_the_training_wipes_is_its_own() -> None:
    cells, told = migrated(START, f"clear_output()\n{BUILD}", LOOP)
    assert "    clear_output()\n" in cells[2] and WIPED not in told


def test_a_loop_that_wipes_what_an_earlier_cell_has_printed_is_told() -> None:
    live = LOOP.replace("    print", "    clear_output(wait=True)\n    print")
    assert WIPED not in migrated(START, BUILD, live)[1]
    cells, told = migrated(START, BUILD, live, BUILD, live)
    assert cells[4].count("clear_output(wait=True)") == 2
    assert f"clear_output (cell 5, line 6): {WIPED}" in told


def test_a_cell_that_stays_in_the_notebook_runs_once() -> None:
    mount = "from colab import drive\ndrive.mount('/content')"
    assert "drive.mount" not in migrated(mount, START, BUILD, LOOP)[1]
    assert "drive.mount of colab (cell 3, line 2)" in migrated(START, BUILD, mount, LOOP)[1]


READS = """\
def rows(table, name):
    found = []
    for k, v in table.items():
        found.append(v[0])
    return found
"""


@pytest.mark.parametrize(
    ("inside", "only"),
    [
        ("found.append(v[0])", True),
        ("found = list(v)", True),
        ("v.append(name)", False),
        ("table[k] = [0]", False),
        ("other = v\n        other[0] = 1", False),
        ("v += [1]", False),
        ("name(v)", False),
    ],
    ids="keeps copies appends sets other adds hands".split(),
)
def test_a_function_that_changes_nothing_of_its_data(inside: str, only: bool) -> None:
    """What is only handed to one is still what a plot before the training has shown."""
    text = READS.replace("found.append(v[0])", inside)
    asks = "def ask(table):\n    return rows(table, 1)"
    assert readers([text, asks]) == (frozenset({"rows", "ask"}) if only else frozenset())
    assert ("data" in filled("rows(data, 1)", readers([text, asks]))) is not only
