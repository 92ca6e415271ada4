"""Methods that are called on an object of one of several classes: all of them are given the accelerator, or none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import RawConfig
from torchlift.rewriter.project.scan import Surveyor

Run = Callable[[dict[str, str]], tuple[dict[str, str], list[str]]]
CHOICE = """\
def make(options):
    if options.net == "wide":
        from nets.wide import Wide

        chosen = Wide()
    else:
        from nets.narrow import Narrow

        chosen = Narrow()
    chosen.initialize(options)
    print("made", options.net)
    return chosen
"""
BASE = """\
import torch


class Base:
    def initialize(self, options):
        self.options = options
        self.train = options.train

    def put(self, batch):
        self.x, self.y = batch

    def save(self, label):
        pass

    def save_net(self, net, label):
        torch.save(net.state_dict(), label + ".pt")
"""
WIDE = """\
import torch
from .base import Base


class Wide(Base):
    def initialize(self, options):
        Base.initialize(self, options)
        self.net = torch.nn.Linear(4, 1)
        if self.train:
            self.criterion = torch.nn.MSELoss()
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def guess(self):
        return self.net(self.x)

    def backward(self):
        self.loss = self.criterion(self.guess(), self.y)
        self.loss.backward()

    def step(self):
        self.optimizer.zero_grad()
        self.backward()
        self.optimizer.step()

    def save(self, label):
        self.save_net(self.net, label)
"""
FILES = {
    "pyproject.toml": "",
    "options.py": "import argparse\n\n\ndef options(train):\n    parser = argparse.ArgumentParser()\n"
    "    parser.add_argument('--net')\n    found = parser.parse_args()\n    found.train = train\n    return found\n",
    "nets/__init__.py": CHOICE,
    "nets/base.py": BASE,
    "nets/wide.py": WIDE,
    "nets/narrow.py": WIDE.replace("Wide", "Narrow"),
    "train.py": """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from nets import make
from options import options

rows = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(rows, batch_size=8)
chosen = make(options(True))
for epoch in range(2):
    for batch in loader:
        chosen.put(batch)
        chosen.step()
    chosen.save("last")
""",
}
GUESSES = """\
import torch
from nets import make
from options import options

chosen = make(options(False))
chosen.put((torch.randn(2, 4), None))
print(chosen.guess())
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What changes, and the findings. A second run must change nothing."""
    monkeypatch.chdir(tmp_path)

    def look(files: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        survey = Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")])
        after = {os.path.relpath(f.source.path): f.after.decode() for f in survey.files if f.changed}
        return after, [f"{d.id}: {d.message}" for f in survey.files for d in f.diagnoses]

    def migrate(files: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        after, told = look(files)
        assert look(after)[0] == {}, "a second run changes something"
        return after, told

    return migrate


def test_classes_of_which_one_is_chosen_are_all_given_it(run: Run) -> None:
    after, told = run(FILES)
    assert told == []
    assert "chosen = make(options(True), accelerator)\n" in after["train.py"]
    assert "chosen.step()\n" in after["train.py"], "the object keeps it"
    assert "    chosen.initialize(options, accelerator=accelerator)\n" in after["nets/__init__.py"]
    for name in ("wide", "narrow"):
        own = after[f"nets/{name}.py"]
        head = "    def initialize(self, options, accelerator):\n        self.accelerator = accelerator\n"
        assert f"{head}        Base.initialize(self, options)\n" in own
        assert "self.net = accelerator.prepare(self.net)" in own
        assert "self.optimizer = accelerator.prepare(self.optimizer)" in own
        assert "accelerator.backward(self.loss)" in own
        assert "self.save_net(self.net, label, accelerator)" in own


def test_what_another_program_builds_by_them_stays_where_that_has_it(run: Run) -> None:
    """The function that builds them is given one of its own there, which moves nothing."""
    after, told = run({**FILES, "guess.py": GUESSES})
    assert told == []
    assert "chosen = make(options(True), accelerator=accelerator)\n" in after["train.py"]
    made = "    if accelerator is None:\n        accelerator = Accelerator(device_placement=False)\n"
    assert f"def make(options, accelerator=None):\n{made}" in after["nets/__init__.py"]
    assert "guess.py" not in after


OTHERS = {
    "that program": {"guess.py": f"{GUESSES}chosen.step()\nchosen.save('kept')\n"},
    "what it hands the object to": {
        "guess.py": f"import later\n{GUESSES}later.go(chosen)\n",
        "later.py": "def go(it):\n    it.step()\n    it.save('kept')\n",
    },
}


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_methods_that_are_called_elsewhere_read_what_their_object_keeps(others: dict[str, str], run: Run) -> None:
    """Their calls stay as they are: which class gives them their object is not seen from there."""
    after, told = run({**FILES, **others})
    assert told == []
    assert "chosen.step()\n" in after["train.py"] and 'chosen.save("last")\n' in after["train.py"]
    for name in ("wide", "narrow"):
        own = after[f"nets/{name}.py"]
        assert "    def backward(self):\n" in own and "self.accelerator.backward(self.loss)" in own
        assert "    def save(self, label):\n" in own
    assert not after.keys() & others.keys()
