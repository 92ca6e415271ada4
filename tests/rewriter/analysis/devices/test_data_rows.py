"""Rows that a script takes from its data set by itself, and combines with batches of a prepared loader."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

PROGRAM = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(32, 4)
        self.kinds = torch.arange(32) % 3
        self.mean = 0.5
        self.words = {"end": 1}
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return self.rows[i], self.kinds[i], i

def place(row, data):
    for i, item in enumerate(data):
        if torch.equal(row, item[0]):
            return i

rows = Rows()
listed = [rows[i] for i in range(32)]
part, rest = random_split(rows, [24, 8])
device = torch.device("cuda")
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first, kind, _ = rows[0]
for epoch in range(3):
    for x, y, at in DataLoader(DATA, batch_size=4):
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        EACH
"""


def migrated(each: str, data: str = "rows") -> FileResult:
    text = PROGRAM.replace("EACH", each).replace("DATA", data)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


MOVED = {
    "compared": ("torch.equal(x[0], rows[3][0])", "torch.equal(x[0], rows[3][0].to(x[0].device))"),
    "a method": ("same = first.equal(x[0])", "same = first.to(x[0].device).equal(x[0])"),
    "about equal": ("torch.allclose(first, x[0])", "torch.allclose(first.to(x[0].device), x[0])"),
    "joined": ("torch.cat([x, rest[1][0].unsqueeze(0)])", "torch.cat([x, rest[1][0].unsqueeze(0).to(x.device)])"),
    "in a new dimension": ("torch.stack((first, x[0]))", "torch.stack((first.to(x[0].device), x[0]))"),
    "distances": (
        "gaps = [torch.dist(x[0], row) for row, _, _ in rows]",
        "gaps = [torch.dist(x[0], row.to(x[0].device)) for row, _, _ in rows]",
    ),
    "a product": ("first @ x[0]", "first.to(x[0].device) @ x[0]"),
    "with what the model gives": (
        "out = model(x)\n        gap = nn.functional.mse_loss(out[0], first[:3])",
        "gap = nn.functional.mse_loss(out[0], first[:3].to(out[0].device))",
    ),
    "in a function": ("place(x[0], rows)", "if torch.equal(row, item[0].to(row.device)):"),
    "of the set of a loader's set": ("place(x[0], part.dataset)", "if torch.equal(row, item[0].to(row.device)):"),
    "an index": ("kinds = rows.kinds[at]", "kinds = rows.kinds[at.cpu()]"),
}


@pytest.mark.hazard("U20")
@pytest.mark.parametrize(("each", "after"), MOVED.values(), ids=MOVED)
def test_a_row_follows_the_batch_that_it_meets(each: str, after: str) -> None:
    """On a GPU the batch was on the device and the row on the CPU, and nothing was said."""
    file = migrated(each)
    assert after in file.after.decode() and "data-row" not in [d.case for d in file.diagnoses]


@pytest.mark.hazard("U20")
def test_a_row_of_a_list_follows_too() -> None:
    assert "item[0].to(row.device)" in migrated("place(x[0], listed)", "listed").after.decode()


@pytest.mark.hazard("U20")
@pytest.mark.parametrize(
    "each",
    ["gap = x - first", "far = x > rows[0][0]", "gap = torch.sub(x, first)", "torch.equal(model(x)[0], first)"],
)
def test_what_may_be_a_number_or_meets_a_call_is_reported(each: str) -> None:
    (found,) = [d for d in migrated(each).diagnoses if d.case == "data-row"]
    batch = "model(x)[0]" if "model" in each else "x"
    assert f"`{batch}` is on the device" in found.message and f".to({batch}.device)" in found.remedy


@pytest.mark.hazard("U20")
@pytest.mark.parametrize("each", ["torch.equal(x[0], first)", "gap = x - first"])
def test_on_the_cpu_all_rows_are_where_the_batch_is(each: str) -> None:
    """A script that stays on the CPU needs no move and no word of one."""
    text = PROGRAM.replace("EACH", f"{each}\n        kinds = rows.kinds[at]").replace("DATA", "rows")
    text = text.replace('device = torch.device("cuda")\n', "").replace(".to(device)", "")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "cpu=True" in file.after.decode() and ".to(x" not in file.after.decode()
    assert "data-row" not in [d.case for d in file.diagnoses]


LEFT = {
    "a number that is looked up by a word": ("word = rows.words['end']\n        ends = x == word"),
    "moved by the script": "torch.equal(x[0], first.to(x.device))",
    "both on the CPU": "torch.equal(x[0].cpu(), first)",
    "a label": "same = y == rows[0][1]",
    "rows alone": "torch.equal(first, rows[1][0])",
    "batches alone": "torch.equal(x[0], x[1])",
    "a length": "share = x.sum() / len(rows)",
    "code of the script": "place(x[0].cpu(), rows)",
    "shown": "print(x, first)",
    "a number of the data": "gap = x - rows.mean",
}


@pytest.mark.parametrize("each", LEFT.values(), ids=LEFT)
def test_what_meets_no_batch_stays(each: str) -> None:
    file = migrated(each)
    assert file.after.decode().count(".to(x") == each.count(".to(x")
    assert "data-row" not in [d.case for d in file.diagnoses]
