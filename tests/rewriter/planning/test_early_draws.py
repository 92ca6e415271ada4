"""What chance decides before the accelerator makes the generators equal is reported, unless it is seeded."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

FIT = """\
import torch
from torch.utils.data import DataLoader


def fit(train, test):
    model = torch.nn.Linear(8, 2)
    loader = DataLoader(train, batch_size=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
SCRIPT = """\
import random
import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch.utils.data import Subset, random_split
from data import data
from learn import fit

{before}
fit(Subset(data, rows[:60]), Subset(data, rows[60:]))
{after}
"""
ROWS = "rows = np.random.permutation(90)"
DRAWS = {
    "by numpy": (ROWS, "np.random.permutation(90)"),
    "a shuffled list": ("rows = list(range(90))\nrandom.shuffle(rows)", "random.shuffle(rows)"),
    "by torch": ("rows = torch.randperm(90)", "torch.randperm(90)"),
    "in a function": (
        "def drawn():\n    return np.random.permutation(90)\n\n\nrows = drawn()",
        "np.random.permutation(90)",
    ),
}
PLAIN = {
    "seeded": f"np.random.seed(0)\n{ROWS}",
    "of its own generator": "rows = np.random.RandomState(0).permutation(90)",
    "made-up values": "rows = list(range(90))\nnoise = torch.randn(90)",
    "nothing": "rows = list(range(90))",
    "a number": "rows = list(range(90))\ncount = random.randint(80, 90)",
    "a seed by which nothing is chosen": "rows = list(range(90))\ntorch.manual_seed(random.randint(1, 99))",
}


def told(before: str = "", after: str = "", train: str = SCRIPT, **others: str) -> list[str]:
    """The messages of all findings about early draws, and no others are there; the training is migrated."""
    texts = {"train": train.format(before=before, after=after), "learn": FIT, **others}
    sources = [decode(text.encode(), Path(f"{name}.py")) for name, text in texts.items()]
    files = {file.source.path.stem: file for file in migrate(sources, CATALOGUE, Config()).files}
    assert "    accelerator = Accelerator()\n" in files["learn"].after.decode()
    found = [finding for file in files.values() for finding in file.diagnoses]
    assert {finding.id for finding in found} <= {"unseeded"}
    return [finding.message for finding in found]


@pytest.mark.hazard("R3", "X33")
@pytest.mark.parametrize(("before", "draw"), DRAWS.values(), ids=DRAWS)
def test_a_draw_before_the_call_that_trains_is_reported(before: str, draw: str) -> None:
    """The accelerator is created in the function that trains, and every rank has split for itself by then."""
    assert told(before) == [
        f"`{draw}` runs before seeds are synchronised: every rank draws other numbers, so that ranks would split or "
        "order the data differently"
    ]


@pytest.mark.parametrize("before", PLAIN.values(), ids=PLAIN)
def test_what_is_the_same_on_all_ranks_is_not(before: str) -> None:
    assert told(before) == []


def test_a_draw_in_the_arguments_of_that_call_is() -> None:
    train = SCRIPT.replace(
        "fit(Subset(data, rows[:60]), Subset(data, rows[60:]))", "fit(*random_split(data, [60, 30]))"
    )
    assert len(told(train=train)) == 1


def test_a_seed_that_each_rank_has_drawn_is_one_of_its_own() -> None:
    """It was drawn before the generators were made equal."""
    (message,) = told(f"seed = random.randint(1, 99)\nnp.random.seed(seed)\ntorch.manual_seed(seed)\n{ROWS}")
    assert message.startswith("`np.random.seed(seed)` may seed every rank differently")


AFTER = """\
from data import data
from learn import fit
import random


def main():
    fit(data, data)
    random.shuffle(data)


main()
"""


MADE = """\
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Waves(Dataset):
    def __init__(self):
        self.points = self.draw()

    def draw(self):
        {numpy}

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return self.points[i], self.points[i]


class Mixing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(4, 4)
        self.start = torch.nn.Parameter(torch.randn(4))
        {kept}

    def forward(self, x):
        return self.last(x + self.start)


def train(model, data):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=4):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def main():
    noise = torch.randn(4)
    print(noise)
    {data}
    train(Mixing(), {given})


{seed}
main()
"""
MAKES = {
    "numpy, in a method": {"numpy": "return torch.from_numpy(np.random.randn(64, 4))", "given": "Waves()"},
    "torch": {"data": "x = 2 * torch.rand(64, 4)", "given": "TensorDataset(x, x)"},
    "torch, in a constant of the model": {"kept": "self.mix = torch.randn(4, 4)"},
}


def made(
    numpy: str = "pass", kept: str = "pass", data: str = "pass", given: str = "None", seed: str = "", train: str = MADE
) -> list[str]:
    text = train.format(numpy=numpy, kept=kept, data=data, given=given, seed=seed)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "    accelerator = Accelerator()\n" in file.after.decode()
    return [finding.message for finding in file.diagnoses if finding.id == "unseeded"]


@pytest.mark.hazard("R3", "X33")
@pytest.mark.parametrize("parts", MAKES.values(), ids=MAKES)
def test_data_or_a_constant_made_before_the_function_that_trains_is(parts: dict[str, str]) -> None:
    """Numbers that become rows or a tensor which no ``prepare`` makes equal; the noise beside them does not matter."""
    (message,) = made(**parts)
    assert message.partition(": ")[2] == "every rank draws other numbers, so that ranks " + (
        "would compute other functions: `self.mix` of Mixing is no parameter"
        if "kept" in parts
        else "would make different data, and each read a part of its own"
    )
    assert made(**parts, seed="torch.manual_seed(0)\nnp.random.seed(0)") == []


@pytest.mark.parametrize(("seed", "count"), [("", 1), (", random_state=3", 0)], ids=["unseeded", "seeded"])
def test_data_that_sklearn_makes_is(seed: str, count: int) -> None:
    blobs = f"from sklearn.datasets import make_blobs; x = torch.from_numpy(make_blobs(64, 4{seed})[0])"
    assert len(made(data=blobs, given="TensorDataset(x, x)")) == count


def test_data_that_a_given_generator_makes_is_not() -> None:
    drawn = "x = torch.rand(64, 4, generator=torch.Generator())"
    assert made(data=drawn, given="TensorDataset(x, x)") == []


def test_data_that_a_generator_of_its_own_makes_is() -> None:
    (message,) = made(numpy="own = np.random.default_rng()\n        return own.normal(size=(64, 4))", given="Waves()")
    assert message == (
        "`np.random.default_rng()` seeds every rank differently, so that `own.normal(size=(64, 4))` makes other data "
        "on each: every rank would read a part of a data set of its own"
    )
    assert made(numpy="own = np.random.default_rng(5)\n        return own.normal(size=(64, 4))", given="Waves()") == []


@pytest.mark.parametrize(
    "train", [SCRIPT.replace("{before}", "rows = list(range(90))"), AFTER], ids=["here", "in main"]
)
def test_a_draw_after_the_training_is_not(train: str) -> None:
    assert told(after="random.shuffle(rows)", train=train) == []


def test_a_draw_at_the_import_of_another_module_is() -> None:
    assert len(told("from parts import rows", parts=f"import numpy as np\n\n{ROWS}\n")) == 1


ORDERED = """\
import os
import random
import time
import uuid
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, random_split


class Rows(IterableDataset):
    def __init__(self):
        {made}

    def __iter__(self):
        {seed}
        yield from {draw}


{top}
model = torch.nn.Linear(1, 1)
loader = DataLoader({data}, batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
ORDER = "np.random.permutation(32)"


def said(seed: str = "pass", draw: str = ORDER, made: str = "pass", top: str = "", data: str = "Rows()") -> list[str]:
    text = ORDERED.format(seed=seed, draw=draw, made=made, top=top, data=data)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "accelerator.backward(" in file.after.decode()
    return [finding.message for finding in file.diagnoses if finding.id == "unseeded"]


OWN = {
    "the clock": ("np.random.seed(int(time.time()))", ORDER),
    "the process": ("np.random.seed(os.getpid() % 1000)", ORDER),
    "the system": ("np.random.seed()", ORDER),
    "an id": ("random.seed(uuid.uuid4().int)", "random.sample(range(32), 32)"),
    "random bytes": ("random.seed(os.urandom(4))", "random.sample(range(32), 32)"),
    "of torch": ("torch.manual_seed(time.time_ns())", "torch.randperm(32)"),
}


@pytest.mark.parametrize(("seed", "draw"), OWN.values(), ids=OWN)
def test_a_data_set_that_seeds_itself_on_each_rank_is_reported(seed: str, draw: str) -> None:
    """The ranks take turns in the rows of an order that each has for itself."""
    assert said(seed, draw) == [
        f"`{seed}` seeds every rank differently, so that `{draw}` chooses or orders the data differently on each: some "
        "rows would be read by several ranks, and others by none"
    ]


def test_so_is_one_with_a_generator_of_its_own() -> None:
    (message,) = said(draw="self.own.permutation(32)", made="self.own = np.random.default_rng()")
    assert message.startswith(
        "`np.random.default_rng()` seeds every rank differently, so that `self.own.permutation(32)`"
    )


def test_so_is_a_script_that_seeds_torch_by_the_clock() -> None:
    """Such a seed is no number that the accelerator takes for left to chance."""
    top, data = "torch.manual_seed(int(time.time()))\ntrain, rest = random_split(rows, [60, 30])", "train"
    (message,) = said(top=top, data=data)
    assert "`random_split(rows, [60, 30])`" in message


def test_what_may_be_the_clock_may_differ() -> None:
    top = "asked = int(os.environ.get('SEED', 0))\nnumber = asked if asked else int(time.time())"
    assert said("np.random.seed(number)", top=top)[0].startswith("`np.random.seed(number)` may seed every rank")


ALIKE = {
    "a number": {"seed": "np.random.seed(3)"},
    "the epoch": {"seed": "np.random.seed(self.epoch)"},
    "a generator with a seed": {"draw": "self.own.permutation(32)", "made": "self.own = np.random.default_rng(3)"},
    "noise alone": {"seed": "np.random.seed(int(time.time()))", "draw": "np.random.randn(32)"},
    "made equal after that": {
        "top": "random.seed()\nrows = list(range(9))",
        "data": "rows",
        "draw": "random.sample(range(9), 9)",
    },
    "numbers of one row": {
        "top": "class Items(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n"
        "        np.random.seed(int(time.time()))\n        return np.random.choice(rows)\n\n"
        "    def __len__(self):\n        return 9\n",
        "data": "Items()",
        "draw": "range(9)",
    },
}


@pytest.mark.parametrize("parts", ALIKE.values(), ids=ALIKE)
def test_what_all_ranks_seed_alike_is_not(parts: dict[str, str]) -> None:
    assert said(**parts) == []


def test_what_is_said_of_several_draws_of_a_line_is_said_once() -> None:
    pairs = "rows = [max(np.random.randint(90), np.random.randint(90)) for _ in range(90)]"
    assert len(told(pairs)) == 1
