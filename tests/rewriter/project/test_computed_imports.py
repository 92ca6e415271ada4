"""Trainings in modules that a script imports by a text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import RawConfig
from torchlift.rewriter.project.scan import Survey, Surveyor

Look = Callable[[dict[str, str]], Survey]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Migrate the ``train.py`` among some files, in a project of their own."""
    monkeypatch.chdir(tmp_path)

    def run(files: dict[str, str]) -> Survey:
        for name, text in {"pyproject.toml": "", **files}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        survey = Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")])
        assert not survey.refused
        return survey

    return run


FITTER = """\
import torch

class Fitter:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def fit(self, x, y):
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.net(x), y).backward()
        self.optimizer.step()
"""
FITS = """\
import inspect
import sys
from importlib import import_module
import torch

{asked}
print("ready")
fitter = {made}(torch.nn.Linear(8, 2))
for x, y in torch.utils.data.DataLoader(torch.load("rows.pt", map_location="cpu"), 16):
    fitter.fit(x, y)
"""
MODULES = {
    "a constant": 'found = import_module("fits.slow_fit")',
    "a package and a name of it": 'found = import_module(".slow_fit", package="fits")',
    "one of a table": 'KINDS = {"slow": "fits.slow_fit", "json": "json"}\nfound = import_module(KINDS[sys.argv[1]])',
    "one of two": 'found = import_module("fits.slow_fit" if sys.argv[1:] else "json")',
    "with an end": 'found = import_module("fits." + sys.argv[1] + "_fit")',
    "a package in a variable": 'WHERE = "fits"\nfound = import_module(f"{WHERE}.{sys.argv[1]}_fit")',
    "all folders": 'found = import_module(f"{sys.argv[1]}.slow_fit")',
}
MADE = {
    "getattr": "getattr(found, sys.argv[2])",
    "the table of the module": "found.__dict__[sys.argv[2]]",
    "its items": "next(kind for name, kind in found.__dict__.items() if name == sys.argv[2])",
    "its members": "[kind for name, kind in inspect.getmembers(found) if name == sys.argv[2]][0]",
    "its values": "list(vars(found).values())[-1]",
    "get": "vars(found).get(sys.argv[2])",
}


@pytest.mark.parametrize("asked", MODULES.values(), ids=MODULES)
def test_a_training_in_a_module_that_is_imported_by_a_text(asked: str, look: Look) -> None:
    script = FITS.format(asked=asked, made=MADE["getattr"])
    survey = look({"fits/slow_fit.py": FITTER, "fits/notes.py": "", "train.py": script})
    if "{sys.argv[1]}." in asked:
        (told,) = [found for file in survey.files for found in file.diagnoses]
        assert told.id == "computed-import"
        assert "sys.argv[1]" in told.message
        return
    new = {Path(file.source.path).name: file.after.decode() for file in survey.files}
    assert "self.accelerator.backward(" in new["slow_fit.py"]
    assert "(torch.nn.Linear(8, 2), accelerator)" in new["train.py"]
    assert not [found for file in survey.files for found in file.diagnoses]


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_class_that_is_looked_up_in_a_module_of_a_computed_name(made: str, look: Look) -> None:
    script = FITS.format(asked=MODULES["with an end"], made=made)
    survey = look({"fits/slow_fit.py": FITTER, "train.py": script})
    new = {Path(file.source.path).name: file.after.decode() for file in survey.files}
    assert "self.accelerator.backward(" in new["slow_fit.py"]
    assert "(torch.nn.Linear(8, 2), accelerator)" in new["train.py"]


OUT_OF_SIGHT = {
    "a module that only the run knows": ("found = import_module(sys.argv[1])", MADE["getattr"], "train.py"),
    "a call that is not followed": (
        'from operator import attrgetter\nfound = import_module("fits." + sys.argv[1])',
        "attrgetter(sys.argv[2])(found)",
        "slow_fit.py",
    ),
}


@pytest.mark.parametrize("case", OUT_OF_SIGHT)
def test_a_training_out_of_sight_is_no_nothing_to_do(case: str, look: Look) -> None:
    asked, made, where = OUT_OF_SIGHT[case]
    survey = look({"fits/slow_fit.py": FITTER, "train.py": FITS.format(asked=asked, made=made)})
    (file,) = [file for file in survey.files if file.diagnoses]
    assert file.source.path.name == where
    assert [(told.id, told.severity.value) for told in file.diagnoses] == [("computed-import", "review")]


def test_a_script_that_only_reads_what_a_computed_name_gives_needs_nothing(look: Look) -> None:
    script = FITS.format(asked=MODULES["with an end"], made=MADE["getattr"]).partition("for x")[0]
    assert not look({"fits/slow_fit.py": FITTER, "train.py": script}).files


def test_a_question_whether_a_module_is_there_imports_none(look: Look) -> None:
    script = """\
import importlib

def has(name):
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True

print(has("torch"))
"""
    assert not look({"train.py": script}).files


HANDS_ON = """\
import torch
from torch.optim.lr_scheduler import StepLR
from transformers import get_linear_schedule_with_warmup
from engine import {imported}

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = StepLR(optimizer, 1)
warm = get_linear_schedule_with_warmup(optimizer, 10, 100)
{call}
"""
NOBODYS = {
    "a function that is given something else": HANDS_ON.format(imported="show", call="show(model)"),
    "torch's own functions": HANDS_ON.format(imported="show", call="torch.save(optimizer, 'optimizer.pt')"),
}


def test_an_optimizer_that_a_module_gets_which_is_not_there_is_named(look: Look) -> None:
    """It was called a file without training."""
    script = HANDS_ON.format(imported="train_one_epoch", call="train_one_epoch(model, optimizer, None)")
    (file,) = look({"train.py": script}).files
    (told,) = file.diagnoses
    assert (told.id, told.line, file.after) == ("unseen-training", 10, file.source.data)
    assert "`optimizer` goes to train_one_epoch of engine, which is not in this project" in told.message
    assert look({"train.py": script, "engine.py": "def train_one_epoch(*given): pass"}).files == []


@pytest.mark.parametrize("script", NOBODYS.values(), ids=NOBODYS)
def test_an_optimizer_that_goes_nowhere_needs_nothing(script: str, look: Look) -> None:
    assert look({"train.py": script}).files == []
