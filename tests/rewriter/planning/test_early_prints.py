"""Prints and files that come before the accelerator: the process asks itself which one it is, where that chooses
nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, RawConfig, Target
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.source import decode

SCRIPT = """\
import argparse
import os
import torch
from torch.utils.data import DataLoader, TensorDataset


class Rows(TensorDataset):
    def __getitem__(self, index):
        {row}
        return super().__getitem__(index)


def settings():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuda", action="store_true")
    args = parser.parse_args()
    {early}
    return args


def main(args):
    loader = DataLoader(Rows(torch.randn(8, 3)), batch_size=4)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        {step}
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()


{first}
if __name__ == "__main__":
    args = settings()
    {late}
    main(args)
"""


def migrated(config: Config = Config(), /, **parts: str) -> tuple[str, list[str]]:  # noqa: B008
    """The text of the script, migrated, and the ids of its findings."""
    given = {**dict.fromkeys(("row", "early", "step", "first", "late"), "pass"), **parts}
    (file,) = migrate([decode(SCRIPT.format(**given).encode(), Path("train.py"))], CATALOGUE, config).files
    assert b"accelerator.backward(" in file.after
    return file.after.decode(), [found.id for found in file.diagnoses]


@pytest.mark.parametrize("place", ["early", "late", "first"])
def test_a_print_before_the_accelerator_is_made_once(place: str) -> None:
    after, findings = migrated(**{place: "print(os.getcwd())"})
    assert "PartialState().print(os.getcwd())\n" in after and findings == []
    assert "from torchlift.runtime import Accelerator, PartialState\n" in after


def test_so_are_lines_that_no_print_writes() -> None:
    after, findings = migrated(late='import tqdm; tqdm.tqdm.write("starts")')
    assert "if PartialState().is_local_main_process:\n" in after and findings == []


WRITTEN = {
    "a file": ("import pathlib; pathlib.Path('run.txt').write_text('on')", "if PartialState().is_main_process:\n"),
    "a plot": ("import matplotlib.pyplot as plt; plt.savefig('a.png')", "if PartialState().is_main_process:\n"),
    "a log file": (
        "import logging; logging.basicConfig(filename='a.log')",
        "filename='a.log' if PartialState().is_main_process else os.devnull",
    ),
}


@pytest.mark.parametrize("place", ["early", "late", "first"])
@pytest.mark.parametrize(("effect", "guarded"), WRITTEN.values(), ids=WRITTEN)
def test_so_is_a_file(effect: str, guarded: str, place: str) -> None:
    """It was written by every process, "because this code has no access to the accelerator"."""
    after, findings = migrated(**{place: effect})
    assert guarded in after and findings == []


BROUGHT = {
    "a data set": (
        "from torchvision.datasets import MNIST; MNIST('rows', download=True)",
        "with PartialState().main_process_first():\n",
    ),
    "a file": (
        "from urllib.request import urlretrieve; urlretrieve(url, 'c')",
        "PartialState().wait_for_everyone()\n",
    ),
}


@pytest.mark.parametrize("place", ["early", "late", "first"])
@pytest.mark.parametrize(("effect", "guarded"), BROUGHT.values(), ids=BROUGHT)
def test_so_is_a_download(effect: str, guarded: str, place: str) -> None:
    """All processes downloaded to one place at a time, "because this code has no access to the accelerator"."""
    lines = {"early": "\n    ", "late": "\n    ", "first": "\n"}[place].join(effect.split("; "))
    after, findings = migrated(**{place: lines})
    assert guarded in after and findings == []


BETWEEN = """\
import json
import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model):
        self.model = model
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model.to(self.device)

    def train(self, rows):
        loader = DataLoader(rows, batch_size=4)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x in loader:
            optimizer.zero_grad()
            self.model(x.to(self.device)).mean().backward()
            optimizer.step()


def main():
    print("starts")
    trainer = Trainer(torch.nn.Linear(3, 1))
    trainer.train(rows)
    with open("end.json", "w") as file:
        json.dump({"rows": len(rows)}, file)
    print("done")


main()
"""


def test_a_file_of_the_caller_is_guarded_where_its_print_is() -> None:
    """The accelerator may be made inside what it calls."""
    (file,) = migrate([decode(BETWEEN.encode(), Path("train.py"))], CATALOGUE, Config()).files
    after = file.after.decode()
    assert "PartialState()" not in after or "if PartialState().is_main_process:\n        with open" in after
    assert "is_main_process:\n        with open" in after and not file.diagnoses


@pytest.mark.parametrize("place", ["early", "late", "first"])
def test_where_the_script_stays_on_the_cpu_the_print_says_so_too(place: str) -> None:
    """Whoever asks first chooses the device: an accelerator on the CPU after a state on a GPU would be an error."""
    after, findings = migrated(**{place: "print(os.getcwd())"}, step="x = x.to('cpu') + torch.zeros(3)")
    assert "Accelerator(cpu=True)" in after, after
    assert "PartialState(cpu=True).print(os.getcwd())\n" in after and "main_process" not in findings


EARLY = {
    "whose device a flag decides": {"step": "x = x.cuda() if args.cuda else x", "late": "print(args)"},
    "before the environment is set": {"late": 'print(args); os.environ["NCCL_DEBUG"] = "INFO"'},
}


@pytest.mark.parametrize("parts", EARLY.values(), ids=EARLY)
def test_a_print_asks_the_environment_where_nothing_is_chosen_yet(parts: dict[str, str]) -> None:
    """Who asks ``PartialState`` first chooses the device, and starts what joins the processes: it was left to all."""
    after, findings = migrated(**parts)
    assert "    EarlyState().print(args)" in after and findings == []
    assert "PartialState" not in after and "from torchlift.runtime import Accelerator, EarlyState\n" in after


def test_accelerate_has_nobody_to_ask_there() -> None:
    after, findings = migrated(
        Config(target=Target.ACCELERATE), step="x = x.cuda() if args.cuda else x", late="print(args)"
    )
    assert "EarlyState" not in after and "    print(args)" in after and findings == ["main_process"]


def test_a_file_waits_for_nobody_there() -> None:
    """The others would read it before it is whole: only ``PartialState`` can wait."""
    parts = {"step": "x = x.cuda() if args.cuda else x", "first": "import json"}
    early = "json.dump(vars(args), open('args.json', 'w'))\n    "
    assert "if EarlyState().is_main_process:\n" in migrated(**parts, early=early)[0]
    after, findings = migrated(**parts, early=f"{early}known = json.load(open('args.json'))")
    assert "EarlyState" not in after and findings == ["main_process"]


def test_a_print_for_a_row_is_that_of_the_process_that_has_it() -> None:
    """A worker of a loader runs it, and has no place among the processes."""
    after, findings = migrated(row="print(index)")
    assert "PartialState" not in after and "accelerator.print" not in after and findings == []


def test_so_does_a_module_that_is_imported(tmp_path: Path) -> None:
    """Other scripts may import the module as well: nothing is chosen or started for them."""
    (tmp_path / "train.py").write_text(
        "import words\n" + SCRIPT.format(**dict.fromkeys(("row", "early", "step", "first", "late"), "pass"))
    )
    (tmp_path / "words.py").write_text("print('imported')\n")
    train, words = Surveyor(CATALOGUE, RawConfig()).look([tmp_path / "train.py"]).files
    assert b"accelerator.backward(" in train.after and not words.diagnoses
    assert words.after == b"from torchlift.runtime import EarlyState\n\nEarlyState().print('imported')\n"


EARLIER = """\
import argparse
import torch
from torch.utils.data import DataLoader
from rows import make

def setup():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda:0")
    args = parser.parse_args()
    device = torch.device(args.device if torch.cuda.is_available() else "cpu")
    return make("b.pt"), device

if __name__ == "__main__":
    rows, device = setup()
    net = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in DataLoader(rows, batch_size=8):
        optimizer.zero_grad()
        net(x.to(device)).mean().backward()
        optimizer.step()
"""


def test_what_runs_before_the_accelerator_is_not_laid_on_who_else_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the function may say after the accelerator is created, it may say whoever else calls it."""
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text("")
    Path("train.py").write_text(EARLIER)
    Path("rows.py").write_text(
        'import torch\n\ndef make(path):\n    print("reading", path)\n    return torch.load(path)\n'
    )
    Path("other.py").write_text('from rows import make\n\nprint(len(make("a.pt")))\n')
    files = {file.source.path.name: file for file in Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")]).files}
    assert b'EarlyState().print("reading", path)' in files["rows.py"].after
    assert not [found.id for file in files.values() for found in file.diagnoses if found.id == "main_process"]
