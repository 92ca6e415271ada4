"""Effects that nothing in the program shows: those of packages without a table, and of classes chosen by a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

HEAD = """\
import torch
import ledgerbook
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10
from rows import data
"""
TRAIN = """\
loader = DataLoader(data, batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
"""
CALL = 'page.append(["done", 1])\n'


def _told(text: str) -> list[str]:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.changed
    return [f"{d.id} {d.line} {d.message}" for d in file.diagnoses]


PAGES = {
    "by attributes": 'page = ledgerbook.open("runs").pages.first\n',
    "from a call": 'page = ledgerbook.Page("runs")\n',
    "by a parameter": 'def note(page):\n    page.append(["done", 1])\n\n',
}


@pytest.mark.parametrize(("made", "end"), [(PAGES["by attributes"], CALL), (PAGES["from a call"], CALL)])
def test_a_row_is_added_by_every_process(made: str, end: str) -> None:
    """Nothing is known of the package: the user is asked."""
    text = HEAD + made + TRAIN + end
    line = text.count("\n")
    assert _told(text) == [
        f"once {line} every process calls `page.append(...)` of ledgerbook, a package whose effects are not known"
    ]


def test_what_is_called_on_the_same_thing_is_named_too() -> None:
    """Also where its result is taken, and where the thing is none in some runs."""
    made = 'page = ledgerbook.open("runs").pages.first\nif page.name == "a":\n    page = None\n'
    end = 'if page is not None:\n    page.upload("out")\n    entry = page.register("out")\n    print(page.find("b"))\n'
    text = HEAD + made + TRAIN + end
    assert _told(text) == [
        f"once {text.count(chr(10)) - 2} every process calls `page.upload(...)`, `page.register(...)`, "
        "`page.find(...)` of ledgerbook, a package whose effects are not known"
    ]


def test_a_package_that_only_brings_files_is_not_known_by_that() -> None:
    text = (HEAD + TRAIN + 'gdown.announce("done")\n').replace("ledgerbook", "gdown")
    (told,) = _told(text)
    assert "every process calls `gdown.announce(...)` of gdown, a package whose effects are not known" in told


def test_what_a_function_does_with_it() -> None:
    """The object comes from the caller."""
    text = HEAD + PAGES["by a parameter"] + TRAIN + "note(ledgerbook.Page('runs'))\n"
    assert _told(text) == [
        "once 7 every process calls `page.append(...)` of ledgerbook, a package whose effects are not known"
    ]


def test_what_happens_before_the_training_is_named_in_the_summary() -> None:
    """It asks nobody to look at it: most of it sets something up in the process."""
    text = f"{HEAD}ledgerbook.begin('runs')\n{PAGES['from a call']}{CALL}{TRAIN}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.changed and not file.diagnoses
    named = [trait.name for trait in file.traits if trait.kind == "unseen"]
    assert named == ["ledgerbook.begin", "page.append of ledgerbook"]


QUIET = {
    "before the training": (PAGES["from a call"] + CALL, ""),
    "its result is taken": (PAGES["from a call"], f"number = {CALL}"),
    "a list": ("page = []\n", CALL),
    "a list of theirs": ("import ledgerbook\npages = ledgerbook.pages()\n", "pages.sort(key=len)\nprint(pages[0])\n"),
    "a package with a table": ("import numpy as np\n", "np.random.set_state([1])\n"),
    "a package of Python": ("import heapq\npage = []\n", "heapq.heappush(page, 1)\n"),
}


@pytest.mark.parametrize(("made", "end"), QUIET.values(), ids=QUIET)
def test_nothing_is_told(made: str, end: str) -> None:
    """What is set up before, what gives a value, and what is known."""
    assert _told(HEAD + made + TRAIN + end) == []


CHOSEN = """\
def pictures():
    return CIFAR10("rows", download=DOWNLOAD)

kind = "pictures"
rows = CHOICE()
"""


@pytest.mark.parametrize("choice", ["eval(kind)", "eval(kind + 's')"])
def test_a_download_in_what_is_chosen_by_a_name(choice: str) -> None:
    """Nobody sees which function it is."""
    told = _told(HEAD + CHOSEN.replace("CHOICE", choice).replace("DOWNLOAD", "True") + TRAIN)
    assert told == [
        f"downloads 7 this download is in `pictures`, which nothing is seen to call: if `{choice}` chooses it, every "
        "process downloads at the same time"
    ]


def test_a_chosen_function_with_a_name() -> None:
    """It is called in another line."""
    text = CHOSEN.replace("CHOICE()", "make()").replace("rows =", "make = eval(kind)\nrows =")
    assert [line.split()[0] for line in _told(HEAD + text.replace("DOWNLOAD", "True") + TRAIN)] == ["downloads"]


def test_no_download_in_it() -> None:
    """The files are there."""
    assert _told(HEAD + CHOSEN.replace("CHOICE", "eval(kind)").replace("DOWNLOAD", "False") + TRAIN) == []


def test_nothing_chooses_it() -> None:
    """A function that nobody calls downloads nothing."""
    assert _told(HEAD + CHOSEN.replace("CHOICE", "list").replace("DOWNLOAD", "True") + TRAIN) == []


@pytest.mark.parametrize(
    ("call", "told"),
    [("held.to('cpu')", []), ("held.tune(4)", ["`held.tune(...)` of an object of a class that is chosen by name"])],
)
def test_an_object_whose_class_is_chosen_by_name_is_of_no_package(call: str, told: list[str]) -> None:
    """It was said to be of `__main__`, a package. What models do concerns no other process."""
    top = HEAD.replace("from rows import data", "from rows import data, NAME")
    text = f"{top}held = eval(NAME)(4)\n{TRAIN}{call}\n".replace("import ledgerbook", "from nets import *")
    found = _told(text)
    assert [each in found[0] for each in told] == [True] * len(found)
