"""Whether there is a value, or None: each process answers by its own rows, or all alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]

LOSS = "loss = torch.nn.functional.cross_entropy(model(x), y)"
SKIP = f"if part is None:\n    continue\n{LOSS}"
FOUND = """\
def found(rows):
    {body}
"""
MEMORY = """\
class Memory:
    def __init__(self):
        self.last = None

    def keep(self, rows):
        {}

memory = Memory()
"""


@pytest.mark.parametrize(
    ("part", "built"),
    [
        ("extract(x)", "from features import extract"),
        ("miner.mine(x, y)", "from features import Miner\nminer = Miner()"),
        ("found(x)", FOUND.format(body="if rows.sum() < 0:\n        return None\n    return rows")),
        ("found(x)", FOUND.format(body="if rows.sum() > 0:\n        return rows")),
        ("found(x)", FOUND.format(body="return rows if rows.sum() > 0 else None")),
        (
            "found(x)",
            FOUND.format(body="try:\n        return rows.view(4)\n    except RuntimeError:\n        return None"),
        ),
        ("found(x)", FOUND.format(body="kept = None\n    if rows.sum() > 0:\n        kept = rows\n    return kept")),
        ("table.get(int(y[0]))", "table = {0: 1.0}"),
        ("places[int(y[0])]", "places = [None, 1.0]"),
        ("re.match('a', y[0])", "import re"),
        ("memory.keep(x) or memory.last", MEMORY.format("if rows.sum() > 0:\n            self.last = rows")),
    ],
    ids="an_unseen_function an_unseen_object a_return_of_none no_return a_choice an_error a_variable a_dict a_list "
    "a_search an_attribute".split(),
)
def test_each_process_answers_by_its_own_rows(trained: Trained, part: str, built: str) -> None:
    text, findings = trained(built=built, loss=f"part = {part}\n{SKIP}")
    assert findings == ["local-decision"] and "if accelerator.reduce(torch.tensor(bool(part is None)," in text


def test_one_of_several_values(trained: Trained) -> None:
    built = FOUND.format(body="if rows.sum() < 0:\n        return rows, None\n    return rows, rows")
    assert trained(built=built, loss=f"kept, part = found(x)\n{SKIP}")[1] == ["local-decision"]
    assert trained(built=built, loss=f"part, kept = found(x)\n{SKIP}")[1] == []


def test_a_batch_that_may_be_left_out(trained: Trained) -> None:
    """The samples of one process decide whether its ``collate_fn`` gives a batch."""
    collate = "def collate(rows):\n    rows = [row for row in rows if row]\n    {}return torch.stack(rows)\n"
    built = collate + "loader = DataLoader(data, batch_size=32, collate_fn=collate)"
    loss = "if batch is None:\n    continue\nloss = model(batch).mean()"
    none = "if not rows:\n        return None\n    "
    assert "local-decision" in trained(built=built.format(none), batch="batch", loss=loss)[1]
    assert "local-decision" not in trained(built=built.format(""), batch="batch", loss=loss)[1]


NONE = {
    "a choice": "return torch.stack(rows) if rows else None",
    "a variable": "batch = None\n    if rows:\n        batch = torch.stack(rows)\n    return batch",
    "the end": "if rows:\n        return torch.stack(rows)",
    "never": "return torch.stack(rows) if rows else torch.zeros(1, 8)",
}


@pytest.mark.parametrize("given", NONE)
def test_each_way_in_which_a_collate_function_gives_none(given: str, trained: Trained) -> None:
    """Only a `return None` of its own was seen: a process without a batch went on, and the others waited for it."""
    collate = f"def collate(rows):\n    rows = [row for row in rows if row]\n    {NONE[given]}\n"
    built = collate + "loader = DataLoader(data, batch_size=32, collate_fn=collate)"
    text, findings = trained(
        built=built, batch="batch", loss="if batch is None:\n    continue\nloss = model(batch).mean()"
    )
    assert ("local-decision" in findings) is (given != "never")
    assert ("if batch is None:" in text) is (given == "never")


def test_a_loss_that_may_not_be_there_is_not_reduced(trained: Trained) -> None:
    built = f"def lost(x, y):\n    if y.sum() == 0:\n        return None\n    {LOSS}\n    return loss"
    assert trained(built=built, loss="loss = lost(x, y)\nif loss is None or loss > 9:\n    continue")[1] == [
        "local-decision"
    ]


@pytest.mark.parametrize(
    ("part", "built"),
    [
        ("found(x)", FOUND.format(body="if epoch > 1:\n        return None\n    return rows")),
        ("found(x)", FOUND.format(body="return rows * 2")),
        ("torch.relu(x)", ""),
        ("x.grad", ""),
        ("None if epoch > 1 else x", ""),
        ("model.bias", ""),
        ("options.get('part')", "options = {}"),
        ("found(x)[1]", FOUND.format(body="return rows, None")),
        ("memory.last", MEMORY.format("if self.last is None or rows.sum() > 0:\n            self.last = rows")),
        ("memory.last", MEMORY.format("if self.last is not None and rows.sum() > 0:\n            self.last = rows")),
    ],
    ids="by_the_epoch always a_function_of_torch a_gradient a_choice_by_the_epoch a_parameter an_option an_element "
    "a_first_value a_value_that_is_kept".split(),
)
def test_all_processes_answer_alike(trained: Trained, part: str, built: str) -> None:
    text, findings = trained(built=built, loss=f"part = {part}\n{SKIP}")
    assert findings == [] and "accelerator.backward(loss)" in text


def test_the_rows_before_are_there_on_all(trained: Trained) -> None:
    """None in the first turn, and rows from then on."""
    loss = f"if last is None:\n    last = x\n    continue\n{LOSS}"
    assert trained(built="last = None", loss=loss)[1] == []


@pytest.mark.parametrize("layers", ["list(self.net.children())[:2]", "self.net.children()", "self.net.modules()"])
def test_a_module_inside_a_model_gives_a_value(layers: str) -> None:
    """`kept is not None` asks which way was gone, and that all processes go alike."""
    script = f"""\
import torch
from torch.utils.data import DataLoader
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    def forward(self, x, features=False):
        if features:
            kept = x
            for layer in {layers}:
                kept = layer(kept)
            return self.net(x), kept
        return self.net(x)
model = Net()
loader = DataLoader(data, batch_size=8, shuffle=True)
optimizer = torch.optim.Adam(model.parameters())
for x, y in loader:
    optimizer.zero_grad()
    if wide > 0:
        out, kept = model(x, features=True)
    else:
        out, kept = model(x), None
    loss = torch.nn.functional.mse_loss(out, y)
    if wide > 0 and kept is not None:
        loss = loss + kept.pow(2).mean()
    loss.backward()
    optimizer.step()
"""
    file = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files[0]
    assert "accelerator.backward(loss)" in file.after.decode()
    assert [finding.id for finding in file.diagnoses] == []


PREFETCHED = """\
import torch
from torch.utils.data import DataLoader

class Ahead:
    def __init__(self, loader):
        self.loader = loader
        self.reset()

    def reset(self):
        self.batches = iter(self.loader)
        self.load()

    def load(self):
        try:
            self.batch = next(self.batches)
        except {error}:
            self.batch = None

    def next(self):
        batch = self.batch
        self.load()
        return batch

model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ahead = Ahead(DataLoader(data, batch_size=8, shuffle=True))
for epoch in range(2):
    ahead.reset()
    batch = ahead.next()
    while batch is not None:
        loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch = ahead.next()
"""


def test_loaders_come_to_their_end_together() -> None:
    """Whether another error comes is one process's own."""

    def result(error: str) -> FileResult:
        source = decode(PREFETCHED.format(error=error).encode(), Path("train.py"))
        return migrate([source], CATALOGUE, Config()).files[0]

    assert "accelerator.backward(loss)" in result("StopIteration").after.decode()
    assert "local-decision" in [finding.id for finding in result("OSError").diagnoses]
