"""Programs of several files: packages, two folders, a file above the one that the script runs in, notebooks."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchlift.runtime.verify.links import own
from torchlift.runtime.verify.program import cells_of, imported_names, own_files, root_of
from torchlift.runtime.verify.request import RequestError, Script
from torchlift.runtime.verify.scratch import mirror

TRAINER = """
class Trainer:
    def __init__(self, model, optimizer, loader{parameter}):
        self.model, self.optimizer, self.loader = model, optimizer, loader
        {kept}

    def fit(self, epochs):
        for epoch in range(epochs):
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = (self.model(x) - y).square().mean()
                {backward}
                self.optimizer.step()
            {printed}
"""
MAIN = """
import torch
from pathlib import Path
from torch.utils.data import DataLoader, TensorDataset
from {package}.trainer import Trainer
{imported}
def main():
    torch.manual_seed(0)
    x = torch.randn(44, 4)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    {prepare}
    Trainer(model, optimizer, loader{argument}).fit(2)
    {save}
    print("saved to", Path(__file__).parent / "model.pt")

if __name__ == "__main__":
    main()
"""
PREPARE = "accelerator = Accelerator()\n    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
SAVE = 'torch.save(model.state_dict(), Path(__file__).parent / "model.pt")'


def before(package: str) -> dict[str, str]:
    trainer = TRAINER.format(parameter="", kept="", backward="loss.backward()", printed="print(epoch)")
    main = MAIN.format(package=package, imported="", prepare="", argument="", save=SAVE)
    return {"trainer.py": trainer, "train.py": main}


def after(package: str) -> dict[str, str]:
    trainer = TRAINER.format(
        parameter=", accelerator",
        kept="self.accelerator = accelerator",
        backward="self.accelerator.backward(loss)",
        printed="self.accelerator.print(epoch)",
    )
    main = MAIN.format(
        package=package,
        imported="from torchlift.runtime import Accelerator",
        prepare=PREPARE,
        argument=", accelerator",
        save=SAVE.replace("torch.save", "accelerator.save").replace(
            "model.state_dict()", "accelerator.get_state_dict(model)"
        ),
    )
    return {"trainer.py": trainer, "train.py": main.replace("    print(", "    accelerator.print(")}


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def ask(folder: Path, script: str, texts: dict[str, str]) -> dict[str, Any]:
    """Verify texts of several files through the contract."""
    place = {"script": str(folder / script), "folder": str(folder)}
    laid = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    request = {"version": 1, "original": {**place, "texts": {}}, "migrated": {**place, "texts": laid}, "cpu": True}
    command = [sys.executable, "-m", "torchlift.runtime.verify", "--request", "-"]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=900)
    assert done.stdout, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def outcomes(verdict: dict[str, Any], outcome: str) -> dict[str, str]:
    return {p["id"]: p["detail"] for p in verdict["promises"] if p["outcome"] == outcome}


@pytest.mark.slow
def test_a_package_with_two_changed_files(tmp_path: Path) -> None:
    write(tmp_path / "pkg", {"__init__.py": "", **before("")})
    texts = {f"pkg/{name}": text for name, text in after("").items()}
    verdict = ask(tmp_path, "pkg/train.py", texts)
    assert outcomes(verdict, "broken") == {}, verdict
    assert outcomes(verdict, "not testable") == {}
    assert "started as python -m pkg.train" in verdict["notes"]
    assert sorted(path.name for path in (tmp_path / "pkg").iterdir()) == ["__init__.py", "train.py", "trainer.py"]


@pytest.mark.slow
def test_a_fault_in_the_second_file_is_found_at_its_line(tmp_path: Path) -> None:
    write(tmp_path / "pkg", {"__init__.py": "", **before("pkg")})
    texts = {f"pkg/{name}": text for name, text in after("pkg").items()}
    text = texts["pkg/trainer.py"]
    texts["pkg/trainer.py"] = text.replace(
        "self.optimizer.step()\n",
        "self.optimizer.step()\n                if self.accelerator.process_index == 1 and epoch == 1: break\n",
    )
    verdict = ask(tmp_path, "pkg/train.py", texts)
    assert "pkg/trainer.py:1" in outcomes(verdict, "broken")["waits"], verdict["promises"]


@pytest.mark.slow
def test_two_folders_write_the_same_files(tmp_path: Path, verify: Callable[..., Any]) -> None:
    write(tmp_path / "old", _flat(before("")))
    write(tmp_path / "new", _flat(after("")))
    command = [sys.executable, "-m", "torchlift.runtime.verify", "old/train.py", "new/train.py", "--cpu"]
    done = subprocess.run([*command, "--output-format", "json"], cwd=tmp_path, capture_output=True, text=True)
    verdict = json.loads(done.stdout)
    assert outcomes(verdict, "broken") == {}, verdict
    assert outcomes(verdict, "not testable") == {}


def _flat(files: dict[str, str]) -> dict[str, str]:
    return {name: text.replace("from .trainer", "from trainer") for name, text in files.items()}


def test_a_file_above_the_folder_is_changed_in_the_mirror_alone(tmp_path: Path) -> None:
    write(tmp_path / "lib" / "deep", {"a.py": "old\n", "b.py": "b\n"})
    script = write(tmp_path / "code", {"train.py": ""}) / "train.py"
    texts = {"../lib/deep/a.py": b"new\n", "sub/new.py": b"1"}
    scratch = mirror(Script(script=script, folder=script.parent, texts=texts), tmp_path / "scratch")
    assert (scratch.folder / "../lib/deep/a.py").read_text() == "new\n"
    assert (scratch.folder / "../lib/deep/b.py").read_text() == "b\n"
    assert (scratch.folder / "sub/new.py").exists()
    assert (tmp_path / "lib" / "deep" / "a.py").read_text() == "old\n"
    with pytest.raises(RequestError, match="is more than 2 folders above"):
        mirror(Script(script=script, folder=script.parent, texts={"../../../x.py": b""}), tmp_path / "other")


def test_a_link_inside_the_folder_leads_to_the_copy(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {"train.py": "", "real.txt": "1"})
    (folder / "link.txt").symlink_to("real.txt")
    (folder / "latest.pt").symlink_to("runs/last.pt")
    (tmp_path / "out.txt").write_text("mine")
    (folder / "out.txt").symlink_to(tmp_path / "out.txt")
    scratch = mirror(Script(script=folder / "train.py", folder=folder), tmp_path / "scratch")
    (scratch.folder / "link.txt").write_text("2")
    assert (scratch.folder / "real.txt").read_text() == "2"
    assert (folder / "real.txt").read_text() == "1"
    own(str(scratch.top), str(scratch.folder / "out.txt"))
    (scratch.folder / "out.txt").write_text("its own")
    assert (tmp_path / "out.txt").read_text() == "mine"
    assert str(scratch.top) in str((scratch.folder / "latest.pt").readlink())


@pytest.mark.parametrize(
    ("script", "text", "packages", "module"),
    [
        ("a/train.py", "import torch\nfrom a.b import c", ["a"], "a.train"),
        ("a/train.py", "from .b import c", ["a"], "a.train"),
        ("a/train.py", "from .b import c", [], "a.train"),
        ("src/a/c/train.py", "from ..b import c", ["src/a", "src/a/c"], "a.c.train"),
        ("src/a/c/train.py", "from . import b", ["src/a", "src/a/c"], "a.c.train"),
        ("a/train.py", "import torch", ["a"], None),
        ("a/train.py", "from b import c", ["a"], None),
        ("a/train-it.py", "from a import c", ["a"], None),
        ("train.py", "from a import c", ["a"], None),
        ("a/train.py", "syntax error", ["a"], None),
    ],
)
def test_how_a_script_is_started(
    script: str, text: str, packages: list[str], module: str | None, tmp_path: Path
) -> None:
    path = tmp_path / script
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    for package in packages:
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / "__init__.py").touch()
    assert root_of(Script(script=path, folder=tmp_path))[1] == module


def test_the_files_of_a_program(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "import torch, helpers\nfrom pkg import x", "helpers.py": "from other import y"})
    write(tmp_path / "pkg", {"__init__.py": "from .deep import z", "deep.py": "", "unused.py": "", "x.py": ""})
    program = Script(script=tmp_path / "train.py", folder=tmp_path, texts={"other.py": b"import os"})
    names = {str(path.relative_to(tmp_path)): data for path, data in own_files(program).items()}
    assert set(names) == {"train.py", "helpers.py", "other.py", "pkg/__init__.py", "pkg/deep.py", "pkg/x.py"}
    assert names["other.py"] == b"import os"
    assert imported_names(b"import a.b as c\nfrom ..d import e") == ["a.b", "..d", "..d.e"]


NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# Training"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch\n", "!pip list"]},
        {"cell_type": "code", "source": "x = 7\ny = (x\n     % 3)"},
        {"cell_type": "code", "source": ["%%bash\n", "ls | wc"]},
        {"cell_type": "code", "source": []},
        {"cell_type": "code", "source": ["%%time\n", "print(y)\n", "?print\n", "display(x)"]},
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def test_cells_without_what_only_notebooks_understand() -> None:
    cells = cells_of(json.dumps(NOTEBOOK).encode())
    assert cells[0] == "pass\nimport torch\npass\n"
    assert cells[1] == "x = 7\ny = (x\n     % 3)"
    assert cells[2:4] == ["pass\n", ""]
    for cell in cells:
        compile(cell, "cell", "exec")
    assert imported_names(json.dumps(NOTEBOOK).encode()) == ["torch"]


def test_a_notebook_runs_cell_by_cell(tmp_path: Path) -> None:
    (tmp_path / "train.ipynb").write_text(json.dumps(NOTEBOOK))
    other = {**NOTEBOOK, "cells": [*NOTEBOOK["cells"], {"cell_type": "code", "source": ["\n", "raise ValueError(y)"]}]}
    verdict = ask(tmp_path, "train.ipynb", {"train.ipynb": json.dumps(other)})
    assert "ValueError at train.ipynb:cell 7, line 2: 1" in outcomes(verdict, "broken")["runs"]
