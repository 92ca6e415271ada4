"""The condition under which a script keeps to the CPU, where statements beside the choice stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--on", default="cuda")
args = parser.parse_args()
{top}
net = torch.nn.Linear(8, 2).to(device)
rows = DataLoader(train, batch_size=32)
rule = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in rows:
    x, y = x.to(device), y.to(device)
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    rule.step()
"""
LACKING = 'args.on == "cuda" and not torch.cuda.is_available()'
HERE = '"cuda" if torch.cuda.is_available() else "cpu"'
CHOICES = {
    "a warning in the first branch, the option in the last": (
        f'if {LACKING}:\n    print("none there")\n    device = "cpu"\nelse:\n    device = args.on',
        'args.on == "cpu"',
    ),
    "the option in the first branch, a warning in the last": (
        f'if not ({LACKING}):\n    device = args.on\nelse:\n    print("none there")\n    device = "cpu"',
        'args.on == "cpu"',
    ),
    "three branches that print": (
        'if args.on == "gpu":\n    print(1)\n    device = "cuda"\nelif args.on:\n    print(2)\n    device = args.on\n'
        'else:\n    print(3)\n    device = "cpu"',
        '(not (args.on == "gpu")) and (args.on == "cpu" or not args.on)',
    ),
    "the choice reads the device itself, where none is there": (
        f'device = args.on\nif {LACKING.replace("args.on", "device")}:\n    device = "cpu"',
        'args.on == "cpu"',
    ),
    "the choice reads the device itself, where none is named": (
        'device = args.on\nif device is None:\n    device = "cuda" if torch.cuda.is_available() else "cpu"',
        '(not (args.on is None)) and (args.on == "cpu")',
    ),
    "a word that becomes a device": ("device = args.on\ndevice = torch.device(device)", 'args.on == "cpu"'),
    "a word that is chosen, and becomes a device": (
        'device = args.on if torch.cuda.is_available() else "cpu"\ndevice = torch.device(device)',
        'args.on == "cpu"',
    ),
    "a choice between two words, then a device": (
        'if args.on == "host":\n    device = "cpu"\nelse:\n    device = "cuda:0"\ndevice = torch.device(device)',
        'args.on == "host"',
    ),
    "what torch finds becomes a device": (
        'device = f"cuda:{len(args.on)}" if torch.cuda.is_available() else "cpu"\ndevice = torch.device(device)',
        None,
    ),
    "another device is kept, or the CPU taken": (
        'device = "cuda" if torch.cuda.is_available() else "cpu"\ndevice = "cpu" if args.on == "host" else device',
        'args.on == "host"',
    ),
    "another word stands for what is there": (
        'device = args.on\nif args.on == "auto":\n    device = "cuda" if torch.cuda.is_available() else "cpu"',
        'args.on == "cpu"',
    ),
    "another word does, in one expression": (
        f'device = args.on if args.on != "auto" else {HERE}',
        'args.on == "cpu"',
    ),
    "in one expression": (f'device = "cpu" if {LACKING} else args.on', 'args.on == "cpu"'),
    "torch alone, and prints": (
        'if torch.cuda.is_available():\n    print(1)\n    device = "cuda"\nelse:\n    print(2)\n    device = "cpu"',
        None,
    ),
}


@pytest.mark.parametrize(("top", "condition"), CHOICES.values(), ids=CHOICES)
def test_an_option_that_names_the_cpu_is_followed(top: str, condition: str | None) -> None:
    text = SCRIPT.format(top=top)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    argument = f"cpu={condition}" if condition is not None else ""
    assert f"accelerator = Accelerator({argument})\n" in file.after.decode()


RENAMED = """\
import argparse
import torch
from torch.utils.data import DataLoader


def fit(net, rows, rule, device):
    for x, y in rows:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        rule.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    device = args.device
    net = torch.nn.Linear(8, 2).to(device)
    rows = DataLoader(train, batch_size=32)
    rule = torch.optim.SGD(net.parameters(), lr=0.1)
    fit(net, rows, rule, device)
    {end}


main()
"""


@pytest.mark.parametrize("end", ["pass", "torch.zeros(2).to(device)", "log(on=device)"])
def test_a_variable_that_only_renames_the_option_is_followed(end: str) -> None:
    """`--device cpu` trained on the GPU; where something else read the variable, nothing said so."""
    (file,) = migrate([decode(RENAMED.format(end=end).encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert '    accelerator = Accelerator(cpu=device == "cpu")\n    device = accelerator.device.type\n' in text
    assert "unread-option" not in [told.id for told in file.diagnoses]


@pytest.mark.parametrize("value", ["args.number", "int(args.device)", "names[0]"])
def test_what_is_not_called_a_device_is_not_asked_for_the_cpu(value: str) -> None:
    text = RENAMED.replace("args.device", value).format(end="pass")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "Accelerator()" in file.after.decode()


BEFORE = """\
device = "cpu"
kept = torch.randn(8).to(device)
mean = kept.numpy()
{second}
"""


@pytest.mark.parametrize(
    ("second", "made"),
    [
        ('device = torch.device("cuda" if torch.cuda.is_available() else "cpu")', "Accelerator()"),
        ("device = args.on", 'Accelerator(cpu=args.on == "cpu")'),
        ('device = torch.device("cpu")', "Accelerator(cpu=True)"),
    ],
)
def test_a_device_of_the_code_before_the_choice_stays_what_it_is(second: str, made: str) -> None:
    """The first definition made the training one of the CPU, and what was read as an array went to a GPU."""
    text = SCRIPT.format(top=BEFORE.format(second=second))
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    after = file.after.decode()
    assert f"accelerator = {made}\n" in after
    kept = 'device = "cpu"' in after and "torch.randn(8).to(device)" in after
    assert kept is ('torch.device("cpu")' not in second)


KEPT = """\
import argparse
import torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
config = {"device": args.device, "rate": 0.1}
class Trainer:
    def __init__(self, config):
        self.device = torch.device(config.get("device", "cuda"))
        self.model = torch.nn.Linear(4, 4).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["rate"])
        self.loader = DataLoader(data, batch_size=8)
    def train(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            self.optimizer.step()
Trainer(config).train()
"""


def test_a_setting_with_a_device_to_fall_back_on_is_asked_for_the_cpu() -> None:
    """`--device cpu` would train on the GPU: the dict that holds it was not asked any more."""
    file = migrate([decode(KEPT.encode(), Path("train.py"))], CATALOGUE, Config()).files[0]
    assert 'Accelerator(cpu=torch.device(config.get("device", "cuda")).type == "cpu")\n' in file.after.decode()
    assert [finding.id for finding in file.diagnoses] == []


CALLS_ITSELF = """\
import torch
from torch.utils.data import DataLoader


def halved(x, times):
    out = x * 2
    rest = out - 1
    out = halved(rest, times - 1) if times else rest
    return out


def solved(x, times):
    out = x * 2
    rest = out - 1
    out = solved(rest, times - 1)
    return out


net = torch.nn.Linear(8, 2).to("cuda")
rows = DataLoader(train, batch_size=32)
rule = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in rows:
    loss = torch.nn.functional.cross_entropy(net(x.to("cuda")), y.to("cuda"))
    loss.backward()
    rule.step()
print(halved(3, 2), solved(3, 2))
"""


def test_a_function_that_calls_itself_is_not_asked_without_end() -> None:
    """The program was refused, as one that nests too deeply."""
    (file,) = migrate([decode(CALLS_ITSELF.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert not file.blocked and "accelerator.backward(loss)" in file.after.decode()
