"""Experiments that an option chooses: several classes, of which one run makes an object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import RawConfig
from torchlift.rewriter.project.scan import Survey, Surveyor

Look = Callable[[dict[str, str]], Survey]
Files = Callable[[str], tuple[dict[str, str], list[str]]]

BASIC = """\
import torch


class Basic:
    def __init__(self, args):
        self.args = args
        self.model = self.build().to(self.args.device)

    def build(self):
        raise NotImplementedError
"""
EXPERIMENT = """\
import torch
from torch.utils.data import DataLoader
from basic import Basic
from rows import rows_of


def provide(args, flag):
    rows = rows_of(flag)
    return rows, DataLoader(rows, batch_size=args.size, shuffle=flag == "train")


class {name}(Basic):
    def __init__(self, args):
        super().__init__(args)

    def build(self):
        return torch.nn.Linear(8, {width})

    def rows(self, flag):
        rows, loader = provide(self.args, flag)
        return rows, loader

    def test(self):
        rows, loader = self.rows("test")
        right = 0
        with torch.no_grad():
            for x, y in loader:
                x, y = x.to(self.args.device), y.to(self.args.device)
                right += (self.model(x).argmax(1) == y).sum().item()
        print(right / len(rows))

    def train(self):
        rows, loader = self.rows("train")
        optimizer = torch.optim.Adam(self.model.parameters())
        for x, y in loader:
            x, y = x.to(self.args.device), y.to(self.args.device)
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
TRAIN = """\
import argparse
import torch
from first import First
from second import Second

parser = argparse.ArgumentParser()
parser.add_argument("--task", default="a")
parser.add_argument("--size", type=int, default=16)
parser.add_argument("--use-gpu", action="store_true")
parser.add_argument("--test", action="store_true")
args = parser.parse_args()
if torch.cuda.is_available() and args.use_gpu:
    args.device = torch.device("cuda:0")
    print("on the GPU")
else:
    args.device = torch.device("cpu")
if args.task == "a":
    Experiment = First
else:
    Experiment = Second
experiment = Experiment(args)
if not args.test:
    experiment.train()
{tail}
"""


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """`look({name: text})`: what is found on the program of train.py among these files."""

    def run(texts: dict[str, str]) -> Survey:
        monkeypatch.chdir(tmp_path)
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        return Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")])

    return run


@pytest.fixture
def files(look: Look) -> Files:
    """`files(tail)`: the new texts, by name, of a script that ends like this, and the ids of the findings."""

    def run(tail: str) -> tuple[dict[str, str], list[str]]:
        texts = {"pyproject.toml": "", "basic.py": BASIC, "train.py": TRAIN.format(tail=tail)}
        texts["first.py"] = EXPERIMENT.format(name="First", width=2)
        texts["second.py"] = EXPERIMENT.format(name="Second", width=4)
        survey = look(texts)
        new = {name.removesuffix(".py"): text for name, text in texts.items()}
        new.update((Path(file.source.path).stem, file.after.decode()) for file in survey.files)
        return new, [found.id for file in survey.files for found in file.diagnoses]

    return run


def test_every_class_that_an_option_may_choose_is_handed_the_accelerator(files: Files) -> None:
    new, found = files("    experiment.test()\nelse:\n    experiment.test()")
    assert "accelerator = Accelerator(cpu=not args.use_gpu)\nif torch.cuda.is_available()" in new["train"]
    assert new["train"].count("args.device = accelerator.device") == 2
    assert "experiment = Experiment(args, accelerator=accelerator)" in new["train"]
    for name in ("first", "second"):
        assert "self.model, optimizer, loader = self.accelerator.prepare(\n" in new[name], "each class its own model"
        assert "loader = self.accelerator.prepare(loader)" in new[name], "the loader of the test is another one"
        assert "gather_for_metrics" in new[name] and "self.accelerator.backward(loss)" in new[name]
    assert ".to(self.args.device)" in new["basic"], "a test alone does not come by prepare, which places the model"
    assert not found


def test_a_model_that_is_always_trained_first_is_placed_by_prepare(files: Files) -> None:
    new, _ = files("    experiment.test()")
    assert "self.model = self.build()\n" in new["basic"]


NET = """\
import torch


class Config:
    rows = 16


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.{layer} = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.{step}(x)

    def {step}(self, x):
        return self.{layer}(x)
"""
LOADED = """\
import os
import torch


def build(path, rows):
    os.makedirs("out")
    return torch.utils.data.DataLoader(torch.load(path), rows)
"""
RUN = """\
from importlib import import_module
import sys
import torch

name = sys.argv[1]
if name == "wide":
    from wide_data import build
else:
    from plain_data import build
{asked}
loader = build("rows.pt", 16)
model = found.Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ASKED = {
    "added": 'found = import_module("nets." + name)',
    "formatted": 'found = import_module(f"nets.{name}")',
    "by percent": 'found = import_module("nets.%s" % name)',
    "by a variable": 'path = "nets." + name\nfound = import_module(path)',
    "over two lines": 'found = import_module(\n    "nets"\n    f".{name}"\n)',
    "in a folder of the path": 'sys.path.append("nets")\nfound = import_module(name)',
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_module_whose_name_is_computed_is_one_of_a_folder(asked: str, look: Look) -> None:
    texts = {"pyproject.toml": "", "wide_data.py": LOADED, "plain_data.py": LOADED}
    texts["nets/wide.py"] = NET.format(layer="wide", step="widen")
    texts["nets/plain.py"] = NET.format(layer="only", step="pass_on")
    texts["nets/parts.py"] = "WIDTH = 4\n"
    texts["train.py"] = RUN.format(asked=asked)
    survey = look(texts)
    new = {Path(file.source.path).name: file.after.decode() for file in survey.files}
    assert "model, optimizer, loader = accelerator.prepare(" in new["train.py"]
    assert "accelerator.backward(loss)" in new["train.py"]
    assert not [found.id for file in survey.files for found in file.diagnoses if found.severity.value == "blocked"]


def test_one_of_two_functions_of_a_name_is_handed_the_accelerator_once(look: Look) -> None:
    data = LOADED.replace('os.makedirs("out")', 'print(torch.ones(rows).to("cuda:0").mean())')
    texts = {
        "pyproject.toml": "",
        "wide_data.py": data,
        "plain_data.py": data,
        "nets/plain.py": NET.format(layer="a", step="b"),
    }
    texts["train.py"] = RUN.format(asked=ASKED["added"])
    survey = look(texts)
    new = {Path(file.source.path).name: file.after.decode() for file in survey.files}
    assert 'loader = build("rows.pt", 16, accelerator=accelerator)' in new["train.py"]
    for name in ("wide_data.py", "plain_data.py"):
        assert "def build(path, rows, accelerator):" in new[name]
        assert "accelerator.print(torch.ones(rows).to(accelerator.device).mean())" in new[name]


BASE = """\
import torch


class Base:
    def __init__(self, args):
        self.args = args
        self.device = self.choose()
        self.model = torch.nn.Linear(4, 2).to(self.device)

    def choose(self):
        return torch.device("cuda:" + str(self.args.number)) if self.args.gpu else torch.device("cpu")
"""
KEEPS = """\
import torch


class Best:
    def __init__(self, path):
        self.path, self.loss = path, None

    def __call__(self, loss, model):
        if self.loss is None or loss < self.loss:
            print("better")
            torch.save(model.state_dict(), self.path)
            self.loss = loss
"""
MAIN = """\
import torch
from torch.utils.data import DataLoader
from base import Base
from keeps import Best


class Run(Base):
    def __init__(self, args):
        self.show("first")
        super().__init__(args)
        self.turns = 2

    def show(self, text):
        print(text)

    def train(self):
        best = Best("a.pt")
        loader = DataLoader(data, batch_size=4)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            optimizer.step()
        best(1.0, self.model)

    def test(self):
        print("test")


run = Run(args)
if args.train:
    run.train()
run.test()
"""


@pytest.mark.hazard("U22")
def test_a_base_class_in_another_file_makes_the_accelerator(look: Look) -> None:
    """What runs only in the methods of its objects comes after it; what a constructor runs before its base does not."""
    other = "import torch\nfrom keeps import Best\n\nBest('b.pt')(1.0, torch.nn.Linear(2, 2))\n"
    survey = look({"pyproject.toml": "", "train.py": MAIN, "base.py": BASE, "keeps.py": KEEPS, "other.py": other})
    texts = {Path(file.source.path).stem: file.after.decode() for file in survey.files}
    made = (
        '        self.device = self.choose()\n        self.accelerator = Accelerator(cpu=self.device.type == "cpu")\n'
    )
    assert made in texts["base"]
    assert "if PartialState().is_main_process:\n                torch.save(" in texts["keeps"], "others run it, too"
    assert 'self.accelerator.print("test")' in texts["train"]
    assert "        EarlyState().print(text)\n" in texts["train"], "it runs before the accelerator is made"
    assert not [found.id for file in survey.files for found in file.diagnoses]


COMMANDS = """\
import click
import torch
from torch.utils.data import DataLoader


def fit(model, loader, rate):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


@click.group()
def commands():
    pass


@commands.command()
@click.option("--rate", default=0.1)
def first(rate):
    model = torch.nn.Linear(8, 2)
    fit(model, DataLoader(data, batch_size=8), rate)
    torch.save(model.state_dict(), "first.pt")


@commands.command()
def second():
    model = torch.nn.Linear(8, 2)
    model.load_state_dict(torch.load("first.pt", map_location="cpu"))
    fit(model, DataLoader(data, batch_size=8), 0.01)
    torch.save(model.state_dict(), "second.pt")


commands()
"""


@pytest.mark.hazard("U31")
def test_each_command_that_trains_makes_an_accelerator(look: Look) -> None:
    """What they share is handed it; one in the helper, and others in the commands, would be two in one run."""
    survey = look({"pyproject.toml": "", "train.py": COMMANDS})
    (file,) = survey.files
    text = file.after.decode()
    assert text.count("    accelerator = Accelerator()\n") == 2 and file.diagnoses == ()
    assert "def second():\n    accelerator = Accelerator()\n" in text
    assert "fit(model, DataLoader(data, batch_size=8), rate, accelerator)" in text
    assert "fit(model, DataLoader(data, batch_size=8), 0.01, accelerator)" in text
    assert text.count("accelerator.save(accelerator.get_state_dict(model)") == 2
