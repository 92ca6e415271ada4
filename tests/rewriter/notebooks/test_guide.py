"""The notebook of the docs runs as it is, and migrated on two processes: the same figures, pictures and widgets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.notebooks.document import read_notebook
from torchlift.rewriter.notebooks.migrating import plan_notebook

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide.ipynb"
PLOTS = """
class Axes:
    def imshow(self, image):
        print("image", tuple(image.shape))
    def set_title(self, text):
        print("title", text)

def subplots(rows, columns):
    return None, [Axes() for _ in range(rows * columns)]

def plot(values):
    print("plot", *(f"{value:.4f}" for value in values))

def title(text):
    print("title", text)

def show():
    print("shown")
"""
WIDGETS = """
def interact(**ranges):
    def decorator(function):
        function(**{name: low for name, (low, high) in ranges.items()})
        return function
    return decorator
"""


def migrated() -> bytes:
    (file,) = plan_notebook(read_notebook(GUIDE.read_bytes(), GUIDE), [], CATALOGUE, Config()).result().files
    assert not file.blocked and file.changed
    return file.after


def cells(data: bytes) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(data)["cells"]]


def test_what_becomes_of_the_guide_is_what_it_says() -> None:
    before, after = cells(GUIDE.read_bytes()), cells(migrated())
    changed = [n for n, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    assert [before[n].split("\n")[0] for n in changed] == [
        "%matplotlib inline",
        "train_loader = DataLoader(TensorDataset(images[~test], labels[~test]), batch_size=32, shuffle=True)",
        "%%time",
    ]
    assert after[changed[0]] == before[changed[0]].replace(
        "TensorDataset\n", "TensorDataset\nfrom torchlift.runtime import Accelerator, notebook_launcher\n"
    )
    assert after[changed[1]] == "# Moved into training_function() in cell 10."
    assert after[changed[2]].startswith("%%time\ndef training_function():\n")
    assert "\ndevice, model, losses = notebook_launcher(training_function, " in after[changed[2]]


def printed(data: bytes, folder: Path) -> list[str]:
    """What the notebook shows, without the time that it takes and what stands for pictures beside it."""
    nbclient: Any = pytest.importorskip("nbclient")
    nbformat: Any = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    folder.mkdir()
    (folder / "matplotlib").mkdir()
    (folder / "matplotlib" / "__init__.py").touch()
    (folder / "matplotlib" / "pyplot.py").write_text(PLOTS)
    (folder / "ipywidgets.py").write_text(WIDGETS)
    notebook = nbformat.reads(data.decode().replace("%matplotlib inline", "%precision 3"), as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    shown = (o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs)
    text = "".join(output.text for output in shown if output.output_type == "stream" and output.name == "stdout")
    assert re.search(r"^Wall time: ", text, re.MULTILINE)
    return [line for line in text.splitlines() if line and not re.match("CPU times|Wall time", line)]


def test_the_guide_shows_the_same_on_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHLIFT_SPLIT_BATCHES", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    before = printed(GUIDE.read_bytes(), tmp_path / "before")
    assert [line.split()[0] for line in before] == ["image", "title"] * 4 + ["shown"] + ["epoch"] * 3 + [
        "plot",
        "title",
        "shown",
        "image",
    ]
    two = migrated().replace(b"torch.cuda.device_count() or 1", b"2")
    assert printed(two, tmp_path / "two") == before


@pytest.mark.slow
def test_the_guide_shows_the_same_on_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert printed(migrated(), tmp_path / "one") == printed(GUIDE.read_bytes(), tmp_path / "before")
