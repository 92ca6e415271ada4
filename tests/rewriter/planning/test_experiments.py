"""Experiments that an option chooses: several classes, of which one run makes an object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import RawConfig
from torchlift.rewriter.project.scan import Surveyor

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
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[dict[str, str], list[str]]]:
    """`files(tail)`: the new texts, by name, of a script that ends like this, and the ids of the findings."""

    def run(tail: str) -> tuple[dict[str, str], list[str]]:
        monkeypatch.chdir(tmp_path)
        texts = {"pyproject.toml": "", "basic.py": BASIC, "train.py": TRAIN.format(tail=tail)}
        texts["first.py"] = EXPERIMENT.format(name="First", width=2)
        texts["second.py"] = EXPERIMENT.format(name="Second", width=4)
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        survey = Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")])
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
