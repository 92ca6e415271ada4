"""Scripts that choose their GPUs by themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]


def test_alone_in_its_line(trained: Trained) -> None:
    text, findings = trained(top='import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"')
    assert "CUDA_VISIBLE_DEVICES" not in text
    assert findings == ["launcher"]


def test_its_comment_goes_with_it(trained: Trained) -> None:
    text, _ = trained(top='import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"  # only the first GPU')
    assert "first GPU" not in text


def test_beside_something_else_in_its_line(trained: Trained) -> None:
    text, _ = trained(top='import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"; print(3)')
    assert 'os.environ["CUDA_VISIBLE_DEVICES"] = "0"; accelerator.print(3)' in text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("print(gpus.split(',')[k])", ["launcher", "launcher"]),
        ("print(gpus[0], k)", ["launcher"]),
        ("print(names.split(',')[k])", ["launcher"]),
    ],
    ids=["a word for each", "the first word", "other words"],
)
def test_a_word_that_is_looked_up_for_each_gpu_may_be_missing(line: str, told: list[str], trained: Trained) -> None:
    """The script saw as many GPUs as it had named; without the choice it sees all, and ended in an IndexError."""
    top = "import os\ngpus, names = read()\nos.environ['CUDA_VISIBLE_DEVICES'] = gpus\n"
    _, findings = trained(top=f"{top}for k in range(torch.cuda.device_count()):\n    {line}")
    assert findings == told


SETTINGS = """\
import os


def choose(numbers):
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = numbers
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader
from settings import choose

{before}
device = torch.device("cuda")
{after}
model = torch.nn.Linear(8, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4):
    torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "after", "told"), [('choose("0")', "", ["launcher"]), ("", 'choose("0")', [])], ids=["before", "after"]
)
def test_a_shared_function_chooses_only_before_the_accelerator(
    before: str, after: str, told: list[str], trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    """CUDA has been asked by then; and how the GPUs are numbered is no choice of some."""
    train = TRAIN.format(before=before, after=after)
    found = trained_project(train=train, settings=SETTINGS, other='from settings import choose\nchoose("1")\n')
    assert "settings" not in found[0] or found[0]["settings"] == SETTINGS
    assert found[1] == told


def test_a_shared_function_that_pins_the_gpu_is_named(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    """The line stays for the other program, and holds for every process of this one."""
    settings = "import torch\n\n\ndef choose(number):\n    torch.cuda.set_device(number)\n"
    train = TRAIN.format(before="", after="choose(0)")
    after, told = trained_project(train=train, settings=settings, other="from settings import choose\nchoose(1)\n")
    assert "accelerator.backward(" in after["train"] and after["settings"] == settings
    assert told == ["launcher"]
    after, told = trained_project(train=train, settings=settings, other="")
    assert "set_device" not in after["settings"]
    assert told == ["launcher"]
