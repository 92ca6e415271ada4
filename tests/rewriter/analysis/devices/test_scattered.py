"""What a script hands to a model in `nn.DataParallel` from the CPU: the wrapper is removed, and moved it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.findings import Severity
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Project = Callable[..., tuple[dict[str, str], list[str]]]

HANDED_IN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from pictures import load

rows = TensorDataset(torch.ones(8, 4), torch.ones(8, 1))
loader = DataLoader(rows, batch_size=4)
model = torch.nn.DataParallel(torch.nn.Linear(4, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = (model(x) - y.cuda()).pow(2).mean()
    loss.backward()
    optimizer.step()
"""
TO_THE_MODEL = {
    "a tensor that is made on the CPU": ("one = torch.zeros(2, 4)\nmodel(one)", "model(one.to(accelerator.device))"),
    "one that is made there": ("model(torch.zeros(2, 4))", "model(torch.zeros(2, 4).to(accelerator.device))"),
    "one that a function is given": (
        "def ask(net, one):\n    return net(one)\n\nask(model, torch.zeros(2, 4))",
        "return net(one.to(accelerator.device))",
    ),
    "one that the script moves": ("one = torch.zeros(2, 4).cuda()\nmodel(one)", "\nmodel(one)"),
    "what a model gives": ("model(model(x).repeat(1, 4))", "model(model(x).repeat(1, 4))"),
    "a word": ("model(command='begin')", "model(command='begin')"),
    "a batch": ("for x, y in loader:\n    model(x)", "    model(x)"),
}
PICTURES = """\
class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, row):
        return "a", load(row)

"""
WHOLE = """\
one = DataLoader(Pictures(), batch_size=1)
with torch.no_grad():
    for {target} in one:
        out = model(x)
        {asked}
"""
OF_A_LOADER = {
    "whose shape is asked": ("name, x", "shown = torch.nn.functional.interpolate(out, size=x.shape[2:])", True),
    "of which nothing is known": ("name, x", "print(out)", False),
}


@pytest.mark.parametrize(("target", "asked", "moved"), OF_A_LOADER.values(), ids=OF_A_LOADER)
def test_a_batch_of_a_loader_that_stays_whole_is_moved(target: str, asked: str, moved: bool) -> None:
    """The evaluation reads one picture at a time, each of its own size: all processes read them all."""
    text, told = _handed_in(PICTURES + WHOLE.format(target=target, asked=asked))
    assert ("model(x.to(accelerator.device))" in text) is moved and (told == []) is moved


MAYBE = {
    "what is not known": ("one = load('a.png')\nmodel(one)", "one"),
    "an expression": ("model(torch.zeros(2, 4) + 1)", "torch.zeros(2, 4) + 1"),
}


def _handed_in(end: str) -> tuple[str, list[str]]:
    (file,) = migrate([decode((HANDED_IN + end + "\n").encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file.after.decode(), [d.message for d in file.diagnoses if d.severity is not Severity.NOTE]


@pytest.mark.parametrize(("end", "new"), TO_THE_MODEL.values(), ids=TO_THE_MODEL)
def test_what_the_wrapper_moved_is_moved(end: str, new: str) -> None:
    text, told = _handed_in(end)
    assert new in text and told == []


@pytest.mark.parametrize(("end", "what"), MAYBE.values(), ids=MAYBE)
def test_what_the_wrapper_may_have_moved_is_reported(end: str, what: str) -> None:
    assert _handed_in(end)[1] == [
        f"nn.DataParallel moved `{what}` to the GPU of `model`, and is removed: if it comes from the CPU, nothing "
        "moves it now"
    ]


BY_HAND = """\
import torch
model = torch.nn.DataParallel(torch.nn.Linear(4, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 4), torch.randn(64, 1)
for i in range(0, 64, 8):
    optimizer.zero_grad()
    loss = (model(x[i:i + 8]) - y[i:i + 8].cuda()).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


def test_a_batch_that_is_cut_is_not_moved_by_anything() -> None:
    (file,) = migrate([decode(BY_HAND.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"shard_batch" in file.after
    (told,) = [d.message for d in file.diagnoses if d.id == "data_parallel"]
    assert told.startswith("nn.DataParallel moved `x[i:i + 8]` to the GPU of `model`")


def test_a_wrapper_that_another_file_makes_as_well_is_reported(trained_project: Project) -> None:
    """What that file gives the model is on the CPU still."""
    start = "import torch\nfrom wrapping import wrapped\n"
    train = start + HANDED_IN.partition("from pictures import load\n")[2].replace(
        "torch.nn.DataParallel(torch.nn.Linear(4, 1).cuda())", "wrapped(torch.nn.Linear(4, 1).cuda())"
    ).replace("rows = ", "from torch.utils.data import DataLoader, TensorDataset\n\nrows = ")
    wrapping = "import torch\n\n\ndef wrapped(net):\n    return torch.nn.DataParallel(net)\n"
    ask = start + "\nprint(wrapped(torch.nn.Linear(2, 2).cuda())(torch.ones(2, 2)))\n"
    after, ids = trained_project(train=train, wrapping=wrapping, ask=ask)
    assert after["wrapping"].endswith("    return net\n")
    assert ids.count("data_parallel") == 2, "a note about the size of the batch, and the review"
