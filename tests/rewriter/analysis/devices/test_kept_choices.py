"""A model that keeps its device, chosen by what its constructor is given, in a file without the accelerator."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

NETWORK = """\
import torch

class Network(torch.nn.Module):
    def __init__(self, size, GIVEN):
        super().__init__()
        self.inner = torch.nn.Linear(size, 1)
        self.place = CHOICE

    def forward(self, x):
        return self.inner(x)

    def learn(self, loader, optimizer):
        self.to(self.place)
        for x, y in loader:
            x, y = x.to(self.place), y.to(self.place)
            loss = (self(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
SCRIPT = """\
import argparse
import torch
from torch.utils.data import DataLoader
from network import Network

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", action="store_true")
args = parser.parse_args()
loader = DataLoader(rows, batch_size=8)
model = Network(4CALL)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.learn(loader, optimizer)
"""
BY_FLAG = 'torch.device("cuda" if gpu and torch.cuda.is_available() else "cpu")'
UNTIL_NOW = 'torch.device("cpu" if slow else "cuda")'


def _migrated(given: str, choice: str, call: str) -> tuple[str, list[str]]:
    network, script = NETWORK.replace("GIVEN", given).replace("CHOICE", choice), SCRIPT.replace("CALL", call)
    sources = [decode(text.encode(), Path(name)) for text, name in ((script, "train.py"), (network, "network.py"))]
    files = migrate(sources, CATALOGUE, Config()).files
    (line,) = [line for line in files[0].after.decode().splitlines() if line.startswith("accelerator = ")]
    return line, [found.message for file in files for found in file.diagnoses if found.id == "device-flag"]


@pytest.mark.parametrize(
    ("given", "choice", "call", "cpu"),
    [
        ("gpu=True", BY_FLAG, ", gpu=False", "cpu=True"),
        ("gpu=False", BY_FLAG, "", "cpu=True"),
        ("gpu", BY_FLAG, ", False", "cpu=True"),
        ("gpu=True", BY_FLAG, ", args.gpu", "cpu=not args.gpu"),
        ("slow=False", UNTIL_NOW, ", slow=True", "cpu=True"),
        ('where="cuda"', "torch.device(where)", ', "cpu"', "cpu=True"),
        ('where="cpu"', "where", "", "cpu=True"),
        ("gpu=False", BY_FLAG, ", gpu=True", ""),
        ("gpu=True", BY_FLAG, "", ""),
        ("slow=False", UNTIL_NOW, "", ""),
        ('where="cpu"', "torch.device(where)", ', where="cuda"', ""),
        ("gpu=True", 'torch.device("cuda" if torch.cuda.is_available() else "cpu")', ", gpu=False", ""),
    ],
)
def test_what_the_constructor_is_given_decides(given: str, choice: str, call: str, cpu: str) -> None:
    """The moves go to the accelerator's device, so that nothing else would say it."""
    assert _migrated(given, choice, call) == (f"accelerator = Accelerator({cpu})", [])


@pytest.mark.parametrize("call", [", gpu=len(rows) > 9", ", gpu=False)\nother = Network(4, gpu=True"])
def test_what_cannot_be_said_where_the_accelerator_is_made_is_told(call: str) -> None:
    line, told = _migrated("gpu=True", BY_FLAG, call)
    assert line == "accelerator = Accelerator()"
    assert told == [
        f"{BY_FLAG} decides whether the CPU is used, and is not known where the accelerator is created: it uses the "
        "available device"
    ]


def test_two_objects_that_keep_different_devices_are_told() -> None:
    """One of them stays on the CPU, and the accelerator has one device."""
    other = f"""\
class Other:
    def __init__(self, gpu):
        self.place = {BY_FLAG}

    def moved(self, x):
        return x.to(self.place)
"""
    call = f", gpu=False)\n{other}\nother = Other(gpu=True)\nfor x, y in loader:\n    print(model(other.moved(x))"
    line, told = _migrated("gpu=True", BY_FLAG, call)
    assert line == "accelerator = Accelerator()" and len(told) == 1


def test_a_device_that_nothing_is_moved_to_decides_nothing() -> None:
    network = NETWORK.replace("self.to(self.place)", "self.to(self.other)")
    network = network.replace("x, y = x.to(self.place), y.to(self.place)", "x, y = x.to(self.other), y.to(self.other)")
    network = network.replace("self.place = CHOICE", "self.place = CHOICE\n        self.other = torch.device('cuda')")
    text = network.replace("GIVEN", "gpu=True").replace("CHOICE", BY_FLAG)
    sources = [
        decode(SCRIPT.replace("CALL", ", False").encode(), Path("train.py")),
        decode(text.encode(), Path("network.py")),
    ]
    assert "accelerator = Accelerator()\n" in migrate(sources, CATALOGUE, Config()).files[0].after.decode()


PLACED = """\
import torch
from torch.utils.data import DataLoader

torch.manual_seed(3)


class Scorer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def go_to(self, device):
        self.device = device
        self.layer.to(device)

    def forward(self, x):
        return self.layer(x.to(self.device)).square().mean()


class Fit:
    def __init__(self, scorer, rows, fast=False):
        self.scorer = scorer
        self.loader = DataLoader(rows, batch_size=8)
        self.optimizer = torch.optim.SGD(scorer.parameters(), lr=0.1)
CHOICE
    def run(self):
        for x in self.loader:
            self.optimizer.zero_grad()
            loss = self.scorer(x)
            loss.backward()
            self.optimizer.step()


fit = Fit(Scorer(), torch.randn(32, 4), fast=False)
START
fit.run()
"""
WAYS = """\
        if fast:
            self.device = torch.device("cuda:0")
        else:
            self.device = torch.device("cpu")
        PLACE
"""
LATER = f"    def choose(self, fast):\n{WAYS}"


@pytest.mark.parametrize("place", ["self.scorer.go_to(self.device)", "self.scorer.to(self.device)"])
def test_a_choice_after_the_optimizer_is_built(place: str) -> None:
    """The accelerator is made before the optimizer then, and knows the choice, however the model gets the device."""
    text = PLACED.replace("CHOICE\n", WAYS.replace("PLACE", f"{place}\n")).replace("START", "")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "accelerator = Accelerator(cpu=not " in file.after.decode()
    assert [found.id for found in file.diagnoses] == []


@pytest.mark.parametrize(
    ("branch", "told"), [('torch.device("cpu")', True), ('torch.device("cuda:0")', False)], ids=["the CPU", "no CPU"]
)
def test_a_choice_that_a_method_makes_later_is_told(branch: str, told: bool) -> None:
    later = LATER.replace("PLACE", "self.scorer.go_to(self.device)\n").replace('torch.device("cpu")', branch)
    text = PLACED.replace("CHOICE\n", f"\n{later}").replace("START", "fit.choose(False)")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    messages = [found.message for found in file.diagnoses if found.id == "device-flag"]
    assert ["fast decides whether the CPU is used" in message for message in messages] == [True] * told


STEPPING = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

{beside}
class Stepping(torch.nn.Module):
    def __init__(self, net, optimizer, slow=True):
        super().__init__()
        if slow:
            self.place = "cpu"
        else:
            self.place = "cuda" if torch.cuda.is_available() else "cpu"
        self.net, self.optimizer = net, optimizer

    def learn(self, rows):
        x, y = rows[0].to(self.place), rows[1].to(self.place)
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        loss.backward()
        self.optimizer.step()


net = torch.nn.Linear(4, 1)
{moved}
stepping = Stepping(net, torch.optim.SGD(net.parameters(), 0.1){call})
for rows in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), 4):
    stepping.learn(rows)
"""
OTHER = 'other = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nprint("on", other)\n'


def _stepping(call: str, beside: str = "", moved: str = "") -> tuple[str, list[str]]:
    text = STEPPING.format(call=call, beside=beside, moved=moved)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (line,) = [line for line in file.after.decode().splitlines() if line.startswith("accelerator = ")]
    return line, [found.message for found in file.diagnoses if found.id == "device-flag"]


@pytest.mark.parametrize(
    ("call", "cpu"), [(", slow=True", "cpu=True"), ("", "cpu=True"), (", True", "cpu=True"), (", slow=False", "")]
)
@pytest.mark.parametrize("beside", ["", OTHER], ids=["alone", "beside a device that nothing is moved to"])
def test_branches_that_an_argument_decides(call: str, cpu: str, beside: str) -> None:
    """An object that moves its rows to the CPU, as its literal argument says, is not sent to a GPU."""
    assert _stepping(call, beside) == (f"accelerator = Accelerator({cpu})", [])


def test_the_cpu_for_a_part_of_the_training_is_told() -> None:
    line, told = _stepping(", slow=True", OTHER, "net.to(other)")
    assert line == "accelerator = Accelerator()"
    assert told == [
        "slow keeps a part of the training on the CPU, and the script moves other parts to another device: all of it "
        "goes to the available device"
    ]
