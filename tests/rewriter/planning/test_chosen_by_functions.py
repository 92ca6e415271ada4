"""Devices that a function of the script chooses: what it does beside is done still, and its call is edited once."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, Target
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

CHOOSES = """\
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset


def pick(seed, cpu=False):
    {first}
    {chooses}


"""
IN_A_CLASS = """\
class Fit:
    def __init__(self, seed):
        self.place = pick(seed)
        self.net = torch.nn.Linear(4, 1).to(self.place)
        self.rows = DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), 4)
        self.sgd = torch.optim.SGD(self.net.parameters(), 0.1)

    def run(self):
        {run}
        assert self.place
        for x, y in self.rows:
            self.sgd.zero_grad()
            torch.nn.functional.mse_loss(self.net(x.to(self.place)), y.to({there})).backward()
            self.sgd.step()


Fit(3).run()
"""
AT_THE_TOP = """\
place = {call}
net = torch.nn.Linear(4, 1).to(place)
rows = DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), 4)
sgd = torch.optim.SGD(net.parameters(), 0.1)
for x, y in rows:
    sgd.zero_grad()
    torch.nn.functional.mse_loss(net(x.to(place)), y.to(place)).backward()
    sgd.step()
"""
WAYS = {
    "a variable": 'place = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n    return place',
    "at once": 'return torch.device("cuda" if torch.cuda.is_available() else "cpu")',
    "a choice": """\
if torch.cuda.is_available():
        place = torch.device("cuda")
    else:
        place = torch.device("cpu")
    return place""",
    "two returns": 'if torch.cuda.is_available():\n        return "cuda"\n    return "cpu"',
}


def migrated(way: str, rest: str, first: str = "") -> tuple[str, list[str]]:
    text = CHOOSES.format(first=first or "size = 3", chooses=WAYS[way]) + rest
    (file,) = migrate([decode(text.encode(), Path("fit.py"))], CATALOGUE, Config()).files
    return file.after.decode(), [f"{each.id}: {each.message}" for each in file.diagnoses]


@pytest.mark.parametrize("way", WAYS)
def test_a_device_that_an_object_keeps_is_edited_once(way: str) -> None:
    text, told = migrated(way, IN_A_CLASS.format(run="size = 3", there="self.place"))
    word = ".type" if way == "two returns" else ""
    assert not told
    assert f"        self.accelerator = Accelerator()\n        self.place = self.accelerator.device{word}\n" in text


@pytest.mark.parametrize("way", WAYS)
def test_what_the_function_does_beside_is_done_still_for_an_object(way: str) -> None:
    text, told = migrated(way, IN_A_CLASS.format(run="size = 3", there="self.place"), "torch.manual_seed(seed)")
    assert not told
    assert "        pick(seed)\n        self.accelerator = Accelerator()\n        self.place = self.acc" in text


@pytest.mark.parametrize("way", WAYS)
def test_what_the_function_does_beside_is_done_still(way: str) -> None:
    text, told = migrated(way, AT_THE_TOP.format(call="pick(3)"), "torch.manual_seed(seed)")
    assert not told
    assert "\n\npick(3)\naccelerator = Accelerator()\nnet = " in text
    text, told = migrated(way, AT_THE_TOP.format(call="pick(3)"))
    assert not told
    assert "\n\naccelerator = Accelerator()\nnet = " in text


def test_what_a_function_that_it_calls_does_is_done_still() -> None:
    first = "size = seeded(seed)"
    rest = "def seeded(seed):\n    torch.manual_seed(seed)\n    return seed\n\n\n" + AT_THE_TOP.format(call="pick(3)")
    assert "\n\npick(3)\naccelerator = Accelerator()\nnet = " in migrated("at once", rest, first)[0]


def test_the_call_is_not_made_twice() -> None:
    """The accelerator's own arguments make it."""
    rest = AT_THE_TOP.format(call='pick(3, "--cpu" in sys.argv)')
    text = CHOOSES.format(first="torch.manual_seed(seed)", chooses=WAYS["a variable"]) + rest
    text = text.replace("is_available() else", "is_available() and not cpu else")
    (file,) = migrate([decode(text.encode(), Path("fit.py"))], CATALOGUE, Config()).files
    assert 'accelerator = Accelerator(cpu=pick(3, "--cpu" in sys.argv).type == "cpu")\nnet = ' in file.after.decode()


def test_a_call_that_hands_over_the_accelerator_gives_its_device() -> None:
    """It is called for a variable, too."""
    text, told = migrated("a variable", IN_A_CLASS.format(run="here = pick(4)", there="here"))
    assert not told
    assert "self.place = pick(seed, accelerator=self.accelerator)\n" in text
    assert "    return accelerator.device\n" in text


JOINS = """\
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def pick(settings, number):
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        torch.cuda.set_device(number)
        dist.init_process_group(backend="nccl")
        place = torch.device("cuda", number)
        {more}
    else:
        place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return place


class Fit:
    def __init__(self, settings):
        number = int(os.environ.get("LOCAL_RANK", 0))
        self.place = pick(settings, number)
        self.net = torch.nn.Linear(4, 1).to(self.place)
        data = TensorDataset(torch.ones(8, 4), torch.ones(8, 1))
        self.rows = DataLoader(data, 4, sampler=DistributedSampler(data))
        self.net = torch.nn.parallel.DistributedDataParallel(self.net, device_ids=[number])
        self.sgd = torch.optim.SGD(self.net.parameters(), 0.1)

    def run(self):
        assert self.place
        for x, y in self.rows:
            self.sgd.zero_grad()
            torch.nn.functional.mse_loss(self.net(x.to(self.place)), y.to(self.place)).backward()
            self.sgd.step()


Fit({{}}).run()
"""


MORE = [("settings['workers'] = dist.get_world_size()", "        pick(settings, number)\n"), ("pass", "")]


@pytest.mark.parametrize(("more", "called"), MORE, ids=["more", "no more"])
def test_a_function_that_joins_the_processes_and_does_more_is_called_once_they_are_joined(
    more: str, called: str
) -> None:
    """It takes the GPU where there is one, with one process or with several: no condition is left to be told."""
    (file,) = migrate([decode(JOINS.format(more=more).encode(), Path("fit.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert f"        self.accelerator = Accelerator()\n{called}        self.place = self.accelerator.device\n" in text
    assert "init_process_group" not in text
    assert [each.id for each in file.diagnoses] == []


EARLY = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def options():
    print("reads the options")
    return parser.parse_args()


def main():
    args = options()
    place = torch.device("cpu" if args.plain else "cuda")
    net = torch.nn.Linear(4, 1).to(place)
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), 4):
        sgd.zero_grad()
        torch.nn.functional.mse_loss(net(x.to(place)), y.to(place)).backward()
        sgd.step()


main()
"""


def test_what_is_printed_before_the_condition_for_the_cpu_is_known() -> None:
    """To ask for the rank would settle the device: that is why, and not that the accelerator is far away. (Ours can
    ask the environment alone.)"""
    asked = Config(target=Target.ACCELERATE)
    (file,) = migrate([decode(EARLY.encode(), Path("fit.py"))], CATALOGUE, asked).files
    (told,) = [each.message for each in file.diagnoses if each.id == "main_process"]
    assert "Accelerator(cpu=args.plain)" in file.after.decode()
    assert told.endswith("because it knows its rank only once the accelerator is created, with `cpu=args.plain`")


def test_what_is_in_a_block_that_runs_too_early_is_named_with_it() -> None:
    """Who guards the block guards what is in it: one cause was told at each line of it."""
    block = (
        '    print("asks for the rows")\n    if not os.path.exists("rows.txt"):\n        print("makes the rows")\n'
        '        with open("rows.txt", "w") as file:\n            file.write("1")\n'
    )
    first = '    print("reads the options")\n'
    text = "import os\n" + EARLY.replace(first, first + block)
    (file,) = migrate([decode(text.encode(), Path("fit.py"))], CATALOGUE, Config(target=Target.ACCELERATE)).files
    lines = text.split("\n")
    told = [lines[d.line - 1].strip() for d in file.diagnoses if "knows its rank only once" in d.message]
    assert sorted(told) == ['if not os.path.exists("rows.txt"):', 'print("asks for the rows")', first.strip()]


PICK = """\
import torch


def pick(label):
    place = "cuda" if torch.cuda.is_available() else "cpu"
    print(label, place)
    return place
"""
FITS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from pick import pick


def fit():
    place = pick("fits on")
    net = torch.nn.Linear(4, 1).to(place)
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 1)), 4):
        sgd.zero_grad()
        torch.nn.functional.mse_loss(net(x.to(place)), y.to(place)).backward()
        sgd.step()
    return net
"""
TWICE = """\
import torch
from fits import fit
from pick import pick

net = fit()
place = pick("shows on")
print(net(torch.ones(1, 4).to(place)))
"""


def test_a_call_that_is_made_still_hands_over_the_accelerator_that_its_function_takes(tmp_path: Path) -> None:
    texts = {"train": TWICE, "fits": FITS, "pick": PICK}
    sources = [decode(text.encode(), tmp_path / f"{name}.py") for name, text in texts.items()]
    train, _, pick = (file.after.decode() for file in migrate(sources, CATALOGUE, Config()).files)
    assert "def pick(label, accelerator):\n    accelerator.print(label, accelerator.device.type)\n" in pick
    assert '\naccelerator = Accelerator()\nnet = fit(accelerator)\npick("shows on", accelerator)\n' in train


def test_what_is_printed_after_it_is_not_too_early() -> None:
    """The accelerator is one of a function then, which has certainly run."""
    text = f'{EARLY}print("done")\n'.replace('print("reads the options")', "pass")
    (file,) = migrate([decode(text.encode(), Path("fit.py"))], CATALOGUE, Config()).files
    assert file.after.decode().endswith('PartialState().print("done")\n')
    assert "main_process" not in {each.id for each in file.diagnoses}
