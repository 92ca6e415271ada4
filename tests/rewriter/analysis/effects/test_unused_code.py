"""Of code that the program never runs nothing is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torchvision import models, transforms


def flips():
    return transforms.RandomHorizontalFlip()


def crops():
    return [transforms.RandomCrop(8), Gate()]


class Gate:
    def __init__(self):
        self.net = models.mobilenet_v3_small()
        self.net.eval()

    def steps(self):
        return len(self.rows) // self.batch_size


{more}
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data(flips), batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
model.eval()
"""
DEAD = {
    "nothing names it": "",
    "such code names it": "def again():\n    return crops()",
    "another package is asked by a text": "make = getattr(models, 'vgg11')\nnet = make()",
    "each names the other": "def again():\n    return crops(), once()\ndef once():\n    return again()",
}
ALIVE = {
    "a table": "kinds = {'crops': crops}",
    "a function that may be called": "@register\ndef again():\n    return crops()",
    "a text": "made = globals()[kind]()",
    "an attribute": "import train\nmade = train.crops",
}


@pytest.mark.parametrize("more", [*DEAD.values(), *ALIVE.values()], ids=[*DEAD, *ALIVE])
def test_code_that_never_runs_draws_nothing(more: str) -> None:
    (file,) = migrate([decode(SCRIPT.format(more=more).encode(), Path("train.py"))], CATALOGUE, Config()).files
    found = [trait.name for trait in file.traits if trait.kind in ("transforms", "statistics", "steps")]
    alive = ["RandomCrop", "mobilenet_v3_small", "len(self.rows) // self.batch_size"] if more in ALIVE.values() else []
    assert found == ["RandomHorizontalFlip", *alive]


def test_a_name_that_comes_round_to_itself_is_followed_once() -> None:
    """`step = step.after`, of what `getattr` gives: the program nested too deeply to be looked at."""
    round_ = "step = getattr(torch, 'ones')\nwhile kind:\n    step = step.after"
    (file,) = migrate([decode(SCRIPT.format(more=round_).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "too-deep" not in {found.id for found in file.diagnoses} and file.changed


IMPORTED = """\
import os
import torch
from torchvision import transforms


def show():
    return transforms.RandomHorizontalFlip(), getattr(torch, "rand")


{guard}
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    net = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(8))
    steps = len(data) // batch_size
    print(getattr(net, "kind")(), show())
"""
IMPORTING = """\
import other
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(rows, batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
KINDS = ("noise", "statistics", "transforms", "steps")


@pytest.mark.parametrize(
    ("guard", "kinds"),
    [('if __name__ == "__main__":', []), ("if True:", ["noise", "statistics", "steps", "transforms"])],
    ids=["where the module is started", "where it is imported"],
)
def test_what_an_imported_module_does_where_it_is_started_itself(guard: str, kinds: list[str]) -> None:
    texts = {"train": IMPORTING, "other": IMPORTED.format(guard=guard)}
    sources = [decode(text.encode(), Path(f"{name}.py")) for name, text in texts.items()]
    train, other = migrate(sources, CATALOGUE, Config()).files
    assert b"accelerator.backward(" in train.after
    assert sorted({trait.kind for trait in other.traits if trait.kind in KINDS}) == kinds
    told = ["batch-norm", "launcher"] if kinds else []
    assert other.changed is bool(kinds) and sorted(d.id for d in other.diagnoses) == told


JOINING = """\
import os
import torch.distributed as dist
import torch.multiprocessing as mp


class Meter:
    def __getattr__(self, name):
        return self.__dict__[name]


def join(args):
    os.environ["RANK"] = str(args.rank)
    dist.init_process_group("nccl", rank=args.rank, world_size=args.size)


def start(work, count):
    mp.spawn(work, args=tuple(range(count)), nprocs=count)
"""


@pytest.mark.parametrize("used", [False, True])
def test_a_helper_that_joins_processes_and_is_never_named_distributes_nothing(used: bool) -> None:
    """Also where something is looked up by a text: a group that is opened twice is an error, and not a silent one."""
    text = f"""\
{JOINING}
import torch
from torch.utils.data import DataLoader, TensorDataset

{"join(Meter())" if used else ""}
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.rand(9, 8), torch.rand(9, 2)), batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ("already-distributed" in {told.id for told in file.diagnoses}) is used
    assert file.changed is not used


HANDED = """\
import torch
from elsewhere import watch
from torch.utils.data import DataLoader


def fetch(url):
    def told(block, size, whole):
        print(block * size, whole)

    watch(url, told)


model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
CALL
"""


@pytest.mark.parametrize(("call", "printed"), [('fetch("a")', True), ("rows = 3", False)], ids=["it runs", "it rests"])
def test_what_a_function_hands_over_that_nothing_calls_does_not_run(call: str, printed: bool) -> None:
    """What its hook prints was reported."""
    (file,) = migrate([decode(HANDED.replace("CALL", call).encode(), Path("train.py"))], CATALOGUE, Config()).files
    after = file.after.decode()
    assert "accelerator.backward(" in after
    assert (".print(block * size, whole)" in after) is printed


OTHERS = """\
from torchvision import transforms


def seed():
    pass


class Change:
    def __init__(self):
        self.change = transforms.RandomHorizontalFlip()
"""


@pytest.mark.parametrize(("own", "said"), [("class Change:\n    pass", False), ("from parts import Change", True)])
def test_a_class_of_the_same_name_in_another_module_is_not_meant(own: str, said: bool) -> None:
    """The script's own class draws nothing."""
    script = SCRIPT.format(more=f"from parts import seed\n{own}\nseed()\nchange = Change()")
    sources = [decode(script.encode(), Path("train.py")), decode(OTHERS.encode(), Path("parts.py"))]
    files = migrate(sources, CATALOGUE, Config()).files
    assert any(trait.kind == "transforms" for trait in files[1].traits) is said
