"""Where all processes wait for a file: between its writing and its reading, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]
WAIT = "accelerator.wait_for_everyone()"

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{top}

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
{end}
"""
REPORT = """\
import json
with open("{read}") as file:
    seen = json.load(file)
with open("{written}", "w") as file:
    json.dump(len(seen), file)"""


def test_two_files_that_are_opened_under_one_name_are_two_files(trained: Trained) -> None:
    text, findings = trained(end=REPORT.format(read="words.json", written="report.json"))
    assert WAIT not in text and "if accelerator.is_main_process:\n    with open(" in text and findings == []


def test_a_file_that_is_read_and_then_written_anew_needs_a_wait(trained: Trained) -> None:
    text, _ = trained(end=REPORT.format(read="words.json", written="words.json"))
    assert f"{WAIT}\nif accelerator.is_main_process:\n    with open(" in text


KEPT = """\
import json
def keep(numbers, path="history.json"):
    with open(path, "w") as file:
        json.dump(numbers, file)"""


@pytest.mark.parametrize(
    "call", ["keep([1.0], 'first.json')", "keep(path='first.json', numbers=[1.0])"], ids=["by place", "by name"]
)
def test_a_default_that_each_call_overrides_names_no_file(call: str, trained: Trained) -> None:
    text, _ = trained(top=KEPT, end=f"{call}\nwith open('history.json') as file:\n    before = json.load(file)")
    assert WAIT not in text


@pytest.mark.parametrize("call", ["keep([1.0])", "keep(*[[1.0]])", "keep([1.0], 'a.json')\nkeep([2.0])"])
def test_a_default_that_a_call_may_take_names_the_file(call: str, trained: Trained) -> None:
    text, _ = trained(top=KEPT, end=f"{call}\nwith open('history.json') as file:\n    before = json.load(file)")
    assert f"{WAIT}\nwith open('history.json')" in text


STEPS = """\
import sys
import numpy as np

def keep():
    np.save("means.npy", [1.0])

def show():
    print(np.load("means.npy"))"""


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("keep()\nshow()", "this run wrote the file"),
        ("if len(sys.argv) > 1:\n    keep()\nif len(sys.argv) > 2:\n    show()", "this run may have written the file"),
        ("if len(sys.argv) > 1:\n    keep()\n    show()", "this run wrote the file"),
    ],
    ids=["in any case", "by another option", "by the same option"],
)
def test_whether_a_run_has_written_what_it_reads_is_said_as_it_is(end: str, told: str) -> None:
    text = SCRIPT.format(top=STEPS, end=end)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert WAIT in file.after.decode()
    assert [
        change.reason.partition(",")[0]
        for change in file.changes
        if "the file" in change.reason and "wr" in change.reason
    ] == [told]


EXTRACTS = """\
import os
import numpy as np
def extract(folder):
    found = [np.loadtxt(folder + "/" + name) for name in os.listdir(folder)]
    with open("{written}", "w") as table:
        np.savetxt(table, np.array(found))"""


@pytest.mark.parametrize(
    ("written", "waits"),
    [("/all/features/one.csv", False), ("/all/raw/dogs/one.csv", True)],
    ids=["beside the folders", "in one of them"],
)
def test_the_folders_that_a_function_is_given_are_known(written: str, waits: bool, trained: Trained) -> None:
    """All of an absolute path's folders were one: two waits, and then a note that both may be the same."""
    calls = 'extract("/all/raw/cats")\nextract("/all/raw/dogs")'
    text, findings = trained(top=EXTRACTS.format(written=written), end=calls)
    assert (f'{WAIT}\nextract("/all/raw/dogs")' in text) is waits
    assert findings == []
