"""What writes a file, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]


def test_a_path_that_is_opened_to_write(trained: Trained) -> None:
    text, _ = trained(top="from pathlib import Path", end='with Path("a").open("w") as f:\n    f.write("done")')
    assert "if accelerator.is_main_process:\n    with Path" in text


def test_another_method_with_the_same_argument(trained: Trained) -> None:
    text, findings = trained(end='with store.read("w") as f:\n    f.write("done")')
    assert '\nwith store.read("w") as f:' in text
    assert findings == []


SCORE = """\
import numpy as np
def evaluate():
    hits = 0
    for x, y in test_loader:
        hits += (model(x).argmax(1) == y).sum().item()
    return hits
"""


def test_what_all_compute_is_computed_before_one_writes_it(trained: Trained) -> None:
    text, findings = trained(top=SCORE, end='np.save("hits.npy", evaluate())')
    assert 'output = evaluate()\nif accelerator.is_main_process:\n    np.save("hits.npy", output)\n' in text
    assert findings == []


@pytest.mark.parametrize(
    "line",
    ["np.save(next_name(), evaluate())", 'np.save("hits.npy", evaluate()); done = True'],
    ids=["another call would run later than before", "beside another statement"],
)
def test_where_that_would_change_the_order_of_things_it_is_told(line: str, trained: Trained) -> None:
    text, findings = trained(top=SCORE, end=line)
    assert f"\n{line}\n" in text
    assert findings == ["main_process"]


OURS = """\
import os
import torch
from accelerate import Accelerator, DeepSpeedPlugin
from torch.utils.data import DataLoader

accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin())
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4))
for x, y in loader:
    accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
    optimizer.step()


def clean(path):
    drop(path + "/old")


def drop(path):
    os.remove(path)


{calls}
"""
MAIN = "if accelerator.is_local_main_process:\n    {}"


@pytest.mark.parametrize(
    ("calls", "guards"),
    [
        (MAIN.format("clean('a')"), False),
        (MAIN.format("clean('a')") + "\n" + MAIN.format("drop('b')"), False),
        (MAIN.format("clean('a')") + "\ndrop('b')", True),
        ("clean('a')", True),
    ],
    ids=["through two functions", "each call", "one without", "none"],
)
def test_a_function_that_only_the_main_process_calls_is_guarded(calls: str, guards: bool) -> None:
    source = decode(OURS.format(calls=calls).encode(), Path("train.py"))
    (file,) = migrate([source], CATALOGUE, Config()).files
    assert (b"if accelerator.is_main_process:\n        os.remove(path)" in file.after) is guards
    assert [diagnosis.id for diagnosis in file.diagnoses] == ["accelerate_imports"]


@pytest.mark.parametrize("moved", ["partial.replace(path)", "partial.rename(path)"])
def test_what_was_written_under_another_name_is_renamed_once(moved: str, trained: Trained) -> None:
    """The second process did not find it any more; what kind of path a parameter is need not be known."""
    lines = ["def keep(state, path):", 'partial = path.with_suffix(".part")', "torch.save(state, partial)", moved]
    text, _ = trained(top="\n    ".join(lines), end="keep(model.state_dict(), target)")
    assert f"    if accelerator.is_main_process:\n        {moved}\n" in text


def test_a_text_is_no_file(trained: Trained) -> None:
    text, findings = trained(top='def name(path):\n    return path.replace("a")\n', end="print(name(target))")
    assert 'return path.replace("a")' in text and findings == []


CLEARED = """\
def clear(folder):
    for part in folder.iterdir():
        if not part.is_dir():
            part.unlink()
            continue
        part.rmdir()
"""


def test_what_is_no_folder_and_goes_is_no_file_that_is_made(trained: Trained) -> None:
    """One process after the other removed the file, as if it made it; and all of them the folder."""
    text, _ = trained(top=f"from pathlib import Path\n{CLEARED}", end='clear(Path("shown"))')
    assert "main_process_first" not in text
    for gone in ("            if accelerator.is_main_process:\n                part.unlink()\n            continue\n",
                 "        if accelerator.is_main_process:\n            part.rmdir()\n"):  # fmt: skip
        assert gone in text
