"""GPUs by their number: what is moved to one, or created on one, follows the accelerator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]
Project = Callable[..., tuple[dict[str, str], list[str]]]

OPTIONS = """\
import argparse
from settings import config
parser = argparse.ArgumentParser()
parser.add_argument("--card", type=int)
parser.add_argument("--cards", type=int, nargs="+", default=[0])
parser.add_argument("--texts", default="0,1")
opt = parser.parse_args()
CARDS = [0, 1]
CARD = 0
first = int(opt.texts.split(",")[0])"""
NUMBERS = ["0", "CARD", "CARDS[0]", "opt.card", "opt.cards[0]", "first", "int(opt.texts)", "config.gpu_ids[0]"]
LOSS = "loss = torch.nn.functional.cross_entropy(model(x), y, weight={weight}, reduction='sum')"


@pytest.mark.parametrize("number", NUMBERS)
def test_what_moves_to_a_number_follows_the_accelerator(number: str, trained: Trained) -> None:
    loss = LOSS.format(weight=f"torch.ones(2).to({number})")
    text, findings = trained(
        top=OPTIONS, built=f"model.to({number})", loss=f"x, y = x.to({number}), y.to({number})\n{loss}"
    )
    assert "x.to(" not in text and "model.to(" not in text and "accelerator = Accelerator()" in text
    assert "torch.ones(2).to(accelerator.device)" in text and set(findings) <= {"unread-option"}


@pytest.mark.parametrize("number", [*NUMBERS[:-1], '"cuda:0"', 'f"cuda:{CARD}"', 'torch.device("cuda:0")'])
def test_what_is_created_on_a_number_follows_the_accelerator(number: str, trained: Trained) -> None:
    text, findings = trained(top=OPTIONS, loss=LOSS.format(weight=f"torch.ones(2, device={number})"))
    assert "torch.ones(2, device=accelerator.device)" in text and set(findings) <= {"unread-option"}


@pytest.mark.parametrize("number", ["0", '"cuda:0"'])
def test_what_a_function_creates_needs_no_accelerator(number: str, trained_project: Project) -> None:
    train = """\
        import torch
        from data import rows
        from torch.utils.data import DataLoader
        from weights import weigh

        def main():
            model = torch.nn.Linear(4, 1).cuda(0)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x in DataLoader(rows, batch_size=8):
                optimizer.zero_grad()
                (model(x.cuda(0)) * weigh(1)).mean().backward()
                optimizer.step()

        main()
        """
    weights = f"import torch\n\ndef weigh(n):\n    return torch.ones(n, device={number})\n"
    after, findings = trained_project(train=dedent(train), weights=weights)
    assert after["weights"] == weights.replace(number, '"cuda"') and findings == []


MOVES = {
    "a helper": "def send(thing):\n    return thing.to(opt.cards[0])",
    "one that asks what it gets": (
        "def send(thing):\n    if isinstance(thing, list):\n        return [send(each) for each in thing]\n"
        "    try:\n        return thing.to(CARDS[0])\n    except AttributeError:\n        return thing"
    ),
    "one that is given the number": "def send(thing, card=0):\n    return thing.to(card)",
}


@pytest.mark.parametrize("send", MOVES.values(), ids=MOVES)
def test_a_helper_that_moves_to_a_number_follows_the_accelerator(send: str, trained: Trained) -> None:
    """The script names a device, and is not one for the CPU."""
    loss = "x, y = send(x), send(y)\n" + LOSS.format(weight="send(torch.ones(2))")
    text, findings = trained(top=f"{OPTIONS}\n{send}", built="model = send(model)", loss=loss)
    assert "return thing.to(accelerator.device)" in text and "accelerator = Accelerator()" in text
    assert set(findings) <= {"unread-option"}


STARTED = """\
import fire
import torch
from data import rows
from settings import opt
from torch.utils.data import DataLoader

def send(thing, given):
    return thing.to({aim})

def judge(model, given):
    print("judged", model(send(torch.ones(1, 4), given)).sum().item())

def train():
    model = send(torch.nn.Linear(4, 1), opt)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(rows, batch_size=8):
        optimizer.zero_grad()
        model(send(x, opt)).mean().backward()
        optimizer.step()
    judge(model, opt)

if __name__ == "__main__":
    fire.Fire()
"""


@pytest.mark.parametrize("aim", ["given.gpus[0]", "0"])
def test_what_the_command_line_may_start_keeps_its_signature(aim: str, trained_project: Project) -> None:
    """It moves to the GPU of its process, and asks which process it is."""
    after, findings = trained_project(train=STARTED.format(aim=aim))
    assert 'def send(thing, given):\n    return thing.to("cuda")' in after["train"]
    assert 'def judge(model, given):\n    PartialState().print("judged"' in after["train"]
    assert findings == []


def test_what_a_loader_calls_asks_for_no_process_though_the_command_line_may_start_it(trained_project: Project) -> None:
    train = STARTED.format(aim="0").replace("batch_size=8", "batch_size=8, collate_fn=join")
    train = train.replace(
        "def judge", "def join(parts):\n    print(len(parts))\n    return torch.stack(parts)\n\ndef judge"
    )
    after, findings = trained_project(train=train)
    # Each process joins batches of its own, and says what there is to say of them.
    assert "def join(parts):\n    print(len(parts))" in after["train"] and findings == []


def test_a_device_of_a_number_is_never_the_cpu(trained: Trained) -> None:
    text, _ = trained(top=f"{OPTIONS}\nplace = torch.device(opt.cards[0])", built="model.to(place)")
    assert "accelerator = Accelerator()" in text


def test_things_on_several_gpus_come_to_one(trained: Trained) -> None:
    loss = "loss = torch.nn.functional.cross_entropy(head(model(x.to(0)).to(1)), y.to(1))"
    built = 'model.to(0)\nhead = torch.nn.Linear(2, 2).to("cuda:1")\n'
    built += "optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)"
    _, findings = trained(built=built, loss=loss)
    assert findings == ["device_placement"]


@pytest.mark.parametrize("moved", ["x.to(torch.float64)", "x.to(other)", "x.to(opt.kind)"])
def test_what_may_be_a_type_stays(moved: str, trained: Trained) -> None:
    top = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--kind')\nopt = parser.parse_args()"
    )
    text, _ = trained(top=f"{top}\nother = torch.ones(2)", loss=f"x = {moved}\n{LOSS.format(weight=None)}")
    assert f"x = {moved}" in text


WEIGHED = """\
import torch
from data import rows
from torch.utils.data import DataLoader
from scales import Scaled

model = Scaled({built})
model.to("cuda:0")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(rows, batch_size=8):
    x = x.to("cuda:0")
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""
SCALED = """\
import torch


class Scaled(torch.nn.Module):
    def __init__(self, place{default}):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.scale = torch.ones(4).to(place)

    def pad(self, x, where{default}):
        return torch.cat((x, torch.zeros(len(x), 2).to(where)), 1)

    def forward(self, x):
        return self.pad(self.layer(x) * self.scale{given})
"""


def test_the_default_of_a_parameter_names_the_gpu_of_the_process(trained_project: Project) -> None:
    """It moves plain tensors, which `prepare` does not: on the second process they met a model on another GPU."""
    scaled = SCALED.format(default='="cuda:0"', given="")
    after, findings = trained_project(train=WEIGHED.format(built=""), scales=scaled)
    assert after["scales"] == scaled.replace("cuda:0", "cuda") and findings == []
    assert "model = Scaled()\n" in after["train"]


def test_a_gpu_that_a_call_names_is_that_of_the_process(trained_project: Project) -> None:
    scaled = SCALED.format(default="", given=', "cuda:0"')
    after, findings = trained_project(train=WEIGHED.format(built='"cuda:0"'), scales=scaled)
    assert 'self.pad(self.layer(x) * self.scale, "cuda")\n' in after["scales"] and findings == []
    assert "self.scale = torch.ones(4).to(accelerator.device)\n" in after["scales"]
    assert "model = Scaled(accelerator)\n" in after["train"]


def test_a_default_that_only_names_where_the_model_goes_stays(trained_project: Project) -> None:
    """Nothing reads it any more."""
    scaled = """\
import torch


class Scaled(torch.nn.Module):
    def __init__(self, place="cuda:0"):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4).to(place)

    def forward(self, x):
        return self.layer(x)
"""
    after, findings = trained_project(train=WEIGHED.format(built=""), scales=scaled)
    assert after["scales"] == scaled.replace(".to(place)", "") and findings == []


INNER = """\
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = torch.nn.LSTM(4, 8, batch_first=True)
            self.last = torch.nn.Linear(8, 1)

        def forward(self, x):
            {aims}
            found, _ = self.rows(x, (first, first))
            return self.last(found[:, -1])
    """
AIMS = {
    "a variable": (
        'if torch.cuda.is_available():\n    at = "cuda:0"\nelse:\n    at = "cpu"\n'
        "first = torch.zeros(1, len(x), 8, device=at)",
        'at = "cuda"',
    ),
    "a device": ('at = torch.device("cuda:0")\nfirst = torch.zeros(1, len(x), 8).to(at)', 'torch.device("cuda")'),
    "a number": ("first = torch.zeros(1, len(x), 8).cuda(0)", '.cuda("cuda")'),
}


@pytest.mark.parametrize(("aims", "becomes"), AIMS.values(), ids=AIMS)
def test_a_forward_in_a_module_of_its_own_names_the_gpu_of_the_process(
    aims: str, becomes: str, trained_project: Project
) -> None:
    """The accelerator is not there, and on the second GPU its states were on the first."""
    train = """\
        import torch
        from net import Net
        from torch.utils.data import DataLoader

        device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x in DataLoader(torch.ones(8, 3, 4), 4):
            optimizer.zero_grad()
            model(x.to(device)).square().mean().backward()
            optimizer.step()
        """
    inner = dedent(INNER).format(aims=aims.replace("\n", "\n        "))
    after, findings = trained_project(train=dedent(train), net=inner)
    assert not findings and becomes in after["net"]


LAYER = """\
import torch
from torch.utils.data import DataLoader


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.device = CHOSEN
        self.line = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.line(x) + torch.ones(2).to(self.device)


class Solver:
    def __init__(self, loader):
        self.loader = loader
        self.device = CHOSEN
        self.net = Net().to(self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def train(self):
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            noise = torch.rand(len(x), 1).to(self.device)
            loss = torch.nn.functional.cross_entropy(self.net(x * noise), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


Solver(DataLoader(rows, batch_size=8)).train()
"""


def test_a_gpu_that_a_layer_keeps_by_its_number_is_that_of_the_process() -> None:
    """On the second GPU the layer added what is on the first. What the trainer keeps is redefined: its reads stay."""
    chosen = 'torch.device("cuda:0" if torch.cuda.is_available() else "cpu")'
    (file,) = migrate([decode(LAYER.replace("CHOSEN", chosen).encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert f"self.device = {chosen.replace(':0', '')}\n        self.line" in text and "cuda:0" not in text
    assert "noise = torch.rand(len(x), 1).to(self.device)" in text and not file.diagnoses


KEPT_DEVICE = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader
class Net(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.device = device
        self.body = nn.Linear(4, 2)
    def scaled(self, x):
        return x * torch.full((4,), 2.0).to(self.device)
    def forward(self, x):
        return self.body(self.scaled(x))
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", type=int, default=0)
    args = parser.parse_args()
    device = torch.device(f"cuda:{args.device}" if torch.cuda.is_available() else "cpu")
    net = Net(device).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in DataLoader(rows, batch_size=8):
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
main()
"""


def test_a_device_that_an_object_keeps_is_no_number_because_an_option_has_its_name(trained_project: Project) -> None:
    texts, findings = trained_project(train=KEPT_DEVICE)
    assert "self.device = device\n" in texts["train"] and ".to(self.device)" in texts["train"]
    assert "net = Net(accelerator.device)\n" in texts["train"] and set(findings) <= {"unread-option"}
