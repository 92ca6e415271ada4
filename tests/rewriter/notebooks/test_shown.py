"""What wipes the output of its cell must not wipe that of the cells before it, with which it is one function now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.notebooks.document import read_notebook
from torchlift.rewriter.notebooks.migrating import plan_notebook
from torchlift.rewriter.report.expect import expectations
from torchlift.rewriter.result import Diagnosis, FileResult, Result

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


def result(*cells: str) -> FileResult:
    listed = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": text} for text in cells]
    data = json.dumps({"cells": listed, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}).encode()
    (file,) = plan_notebook(read_notebook(data, Path("nb.ipynb")), (), CATALOGUE, Config()).result().files
    return file


def refused(*cells: str) -> list[Diagnosis]:
    return [found for found in result(*cells).diagnoses if found.severity.value == "blocked"]


def migrated(*cells: str) -> tuple[list[str], str]:
    file = result(*cells)
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


def test_what_no_notebook_shows_is_not_printed() -> None:
    """A value is shown where a cell ends with it, and not where what followed it is taken out."""
    for end, printed in [("losses", True), ("losses\nclear_output()", False), ("losses\n!ls", False)]:
        cells, _ = migrated(START, BUILD, f"losses = []\n{LOOP}\n{end}")
        assert ("accelerator.print(losses)" in cells[2]) == printed


def test_wiping_by_another_name_shows_nothing() -> None:
    start = START.replace("IPython.display import clear_output", "IPython import display")
    live = LOOP.replace("    print", "    display.clear_output(wait=True)\n    print")
    cells, _ = migrated(start, BUILD, live)
    assert "        display.clear_output(wait=True)\n" in cells[2]
    cells, told = migrated(start, BUILD, LOOP, f"display.clear_output()\n{LOOP}")
    assert cells[3].startswith("display.clear_output()\n") and WIPED not in told


@pytest.mark.parametrize(
    ("start", "made", "filled"),
    [
        ("import ipywidgets as w", "bar = w.IntProgress()\nbar", "bar.value += 1"),
        ("from ipywidgets import Output", "bar = Output()\nbar", "with bar: print(1)"),
        ("import plotly.graph_objects as go", "bar = go.FigureWidget()\nbar", "bar.data[0].y = []"),
    ],
)
def test_a_widget_of_the_training_is_refused_as_one(start: str, made: str, filled: str) -> None:
    (found,) = refused(f"{START}\n{start}", BUILD, made, f"{LOOP}\n    {filled}")
    assert (found.case, "plt" in found.message + found.remedy) == ("widget", False)
    assert found.message.startswith("the training uses a widget (`bar`)")


def test_a_figure_of_another_library_is_told_its_own_call() -> None:
    start, drawn = f"{START}\nimport plotly.express as px", "    fig = px.line([loss.item()])\n"
    (found,) = refused(start, BUILD, f"{LOOP}\n{drawn}    fig.update_layout()")
    assert "plt" not in found.message + found.remedy and "display(...)" in found.remedy
    assert "        fig.show()" in migrated(start, BUILD, f"{LOOP}\n{drawn}    fig.show()")[0][2]
