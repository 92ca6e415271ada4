"""Files that are made where they are missing: each process would ask for them by itself."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent

import pytest

Trained = Callable[..., tuple[str, list[str]]]

MAKES = """\
import os
import json


def make(path):
    with open(path, "w") as file:
        json.dump([1.0], file)
    return read(path)


def read(path):
    with open(path) as file:
        return json.load(file)
"""
IN_TURN = "with accelerator.main_process_first():\n"
CHAIN = """\
if fresh:
    weights = make("w.json")
elif not os.path.exists("w.json"):
    weights = make("w.json")
else:
    weights = read("w.json")"""
OTHERWISE = """\
if fresh:
    weights = make("w.json")
elif os.path.exists("w.json"):
    weights = read("w.json")
else:
    weights = make("w.json")"""
DIRECT = """\
if fresh:
    weights = []
elif not os.path.isfile("w.json"):
    with open("w.json", "w") as file:
        json.dump([1.0], file)
    weights = read("w.json")"""
GUARDED = 'if PartialState().is_main_process:\n        with open(path, "w") as file:\n'


@pytest.mark.hazard("U17")
@pytest.mark.parametrize("chain", [CHAIN, OTHERWISE, DIRECT], ids=["missing", "there", "written in the branch"])
def test_a_question_that_comes_after_another_one_is_asked_in_turn(chain: str, trained: Trained) -> None:
    """The whole chain of `elif` goes into the turn, and nobody waits in it."""
    text, findings = trained(top=MAKES, built=f"fresh = False\n{chain}")
    first = chain.partition("\n")[0]
    assert IN_TURN + indent(first, "    ") in text and findings == []
    assert "wait_for_everyone" not in text and "accelerator.is_main_process:" in text


@pytest.mark.hazard("U17")
def test_a_file_that_another_module_makes(trained_project: Callable[..., tuple[dict[str, str], list[str]]]) -> None:
    train = (
        "import os\nimport torch\nfrom torch.utils.data import DataLoader\nfrom rows import make\n"
        'if not os.path.exists("w.json"):\n    make("w.json")\nmodel = torch.nn.Linear(4, 2)\n'
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x, y in DataLoader(data, batch_size=4):\n"
        "    optimizer.zero_grad()\n    loss = torch.nn.functional.cross_entropy(model(x), y)\n    loss.backward()\n"
        "    optimizer.step()\n"
    )
    texts, findings = trained_project(train=train, rows=MAKES)
    assert IN_TURN + '    if not os.path.exists("w.json"):\n' in texts["train"]
    assert GUARDED in texts["rows"] and "wait_for_everyone" not in texts["rows"]
    assert findings == []


@pytest.mark.hazard("U17")
def test_a_wait_that_each_process_comes_to_by_its_own_question_is_refused(trained: Trained) -> None:
    """The function is called outside the question, too, where all would have to wait in it."""
    built = 'weights = make("w.json")\nif not os.path.exists("w.json"):\n    weights = make("w.json")'
    _, findings = trained(top=MAKES, built=built)
    assert findings == ["read-back"]


MOVES = """\
if os.path.isdir("all"):
    os.rename("all", "rows")
    with open("w.json", "w") as file:
        json.dump([1.0], file)
    weights = read("w.json")"""


@pytest.mark.hazard("U17")
def test_a_wait_under_a_question_for_what_is_moved_is_refused(trained: Trained) -> None:
    """The tool waited there, and called that a fault of its own: who asks late finds nothing, and does not come."""
    _, findings = trained(top=MAKES, built=MOVES)
    assert findings == ["read-back"]


def test_a_wait_under_a_question_for_what_stays(trained: Trained) -> None:
    """All find it, whenever they ask."""
    kept = 'if os.path.exists("all"):\n    with open("w.json", "w") as file:\n        json.dump([1.0], file)\n'
    text, findings = trained(top=MAKES, built=f'{kept}    weights = read("w.json")')
    assert "    accelerator.wait_for_everyone()\n    weights" in text and findings == []


def test_a_chain_with_the_training_in_it_is_not_run_in_turn(trained: Trained) -> None:
    end = (
        "if data:\n    for x, y in loader:\n        optimizer.zero_grad()\n"
        "        torch.nn.functional.cross_entropy(model(x), y).backward()\n        optimizer.step()\n"
        'elif not os.path.exists("w.json"):\n    make("w.json")'
    )
    text, findings = trained(top=MAKES, end=end)
    assert "main_process_first" not in text and "read-back" in findings


KEEPS = """\
import json
import os
import tarfile
import urllib.request
import torch


def text(path):
    if os.path.exists(path):
        with open(path) as file:
            return json.load(file)
    with open(path, "w") as file:
        json.dump([1.0], file)
    return [1.0]


def fetch(path):
    if os.path.isfile(path):
        return path
    urllib.request.urlretrieve("http://x/" + path, path)
    return path


def unpack(path):
    if os.path.isdir("rows"):
        return
    with tarfile.open(path) as archive:
        archive.extractall("rows")


class Rows:
    def __init__(self):
        if not self.is_there():
            self.download()

    def is_there(self):
        return os.path.isfile("rows.txt")

    def download(self):
        urllib.request.urlretrieve("http://x/rows.txt", "rows.txt")
"""
KEPT = {
    "a text": 'scale = text("scale.json")',
    "a download": 'path = fetch("a.tar")',
    "an archive": 'unpack("a.tar")',
}


@pytest.mark.hazard("U17")
@pytest.mark.parametrize("kept", KEPT.values(), ids=list(KEPT))
def test_what_returns_at_once_where_the_file_is_there_is_called_in_turn(kept: str, trained: Trained) -> None:
    """Nobody waits behind the question, which one process may answer differently from another."""
    text, findings = trained(top=KEEPS, built=kept)
    assert f"{IN_TURN}    {kept}\n" in text and findings == []
    assert "wait_for_everyone" not in text


@pytest.mark.hazard("U17")
@pytest.mark.parametrize("kept", KEPT.values(), ids=list(KEPT))
def test_so_it_is_where_another_module_has_it(
    kept: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    texts, findings = trained_project(train=AWAY.format(kept=kept, rows="data"), kept=KEEPS)
    assert f"{IN_TURN}    {kept}\n" in texts["train"] and findings == []
    assert "wait_for_everyone" not in texts["kept"]


AWAY = """\
import torch
from torch.utils.data import DataLoader, Dataset
from data import data
from kept import fetch, text, unpack

{kept}
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader({rows}, batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""

OWN = """\
class Own(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor(text(f"row{i}.json")), i
"""


def test_no_process_waits_for_others_where_a_loader_makes_rows(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    texts, _ = trained_project(train=AWAY.format(kept=OWN, rows="Own()"), kept=KEEPS)
    assert "main_process_first" not in texts["train"]


@pytest.mark.hazard("U17")
def test_a_download_by_a_method_is_asked_for_in_turn(trained: Trained) -> None:
    text, findings = trained(top=KEEPS, built="rows = Rows()")
    assert "        with accelerator.main_process_first():\n            if not self.is_there():\n" in text
    assert "wait_for_everyone" not in text and findings == []


@pytest.mark.hazard("U17")
def test_a_download_that_all_await_is_not_left_behind_a_question(trained: Trained) -> None:
    """The method is called outside the question, too, where all would have to wait in it."""
    _, findings = trained(top=KEEPS, built="rows = Rows()\nrows.download()")
    assert findings == ["output-check"]


@pytest.mark.hazard("U17")
@pytest.mark.parametrize(
    "head",
    ['with open(fetch("a.tar")) as file:', 'for row in text("scale.json"):', 'if text("scale.json"):'],
)
def test_a_block_that_calls_it_at_its_head_is_run_in_turn(head: str, trained: Trained) -> None:
    text, findings = trained(top=KEEPS, built=f"{head}\n    seen = 1")
    assert f"{IN_TURN}    {head}\n        seen = 1" in text and findings == []


@pytest.mark.hazard("U17")
@pytest.mark.parametrize("inside", ['urllib.request.urlretrieve("http://x/b", "b")', "next(iter(loader))"])
def test_a_block_in_which_all_meet_is_not_run_in_turn(inside: str, trained: Trained) -> None:
    text, findings = trained(top=KEEPS, built=f'for row in text("scale.json"):\n    {inside}')
    assert "main_process_first" not in text and "read-back" in findings


@pytest.mark.hazard("U17")
def test_a_question_in_a_turn_of_the_script_is_asked_once(trained: Trained) -> None:
    """It was put into a second turn, inside the first."""
    make = 'def make(path):\n    with open(path, "w") as file:\n        file.write("1")\n'
    asked = '    if not os.path.exists("w.txt"):\n        make("w.txt")'
    top = f"import os\nfrom torchlift.runtime import Accelerator\naccelerator = Accelerator()\n{make}"
    text, _ = trained(top=f"{top}{IN_TURN}{asked}\n")
    assert f"{IN_TURN}{asked}\n" in text and text.count("main_process_first") == 1


@pytest.mark.hazard("U17")
@pytest.mark.parametrize(
    ("asked", "findings"),
    [('not os.path.exists("rows.h5")', []), ('fresh or not os.path.exists("rows.h5")', ["once"])],
    ids=["only where it is missing", "in any case, too"],
)
def test_an_array_file_is_made_by_one_process_and_found_by_the_others(
    asked: str, findings: list[str], trained: Trained
) -> None:
    """It was said to be written by every process. Where it is made in any case, all others write it together."""
    make = f'if {asked}:\n    with h5py.File("rows.h5", "w") as file:\n        file["rows"] = torch.ones(8, 2)\n'
    read = 'rows = torch.tensor(h5py.File("rows.h5", "r")["rows"][:])'
    text, found = trained(top=f"import os\nimport h5py\nfrom run import fresh\n{make}{read}")
    assert f"{IN_TURN}    if {asked}:\n" in text and found == findings
