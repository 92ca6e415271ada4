"""What ``--roles`` tells of the code: which loops train, what all processes do together, which values are equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.facts.module import LAYOUTS
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.roles import roles_table
from torchlift.rewriter.result import Result
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

def evaluate(model, loader):
    hits = 0
    for x, y in loader:
        output = model(x)
        hits += (output.argmax(1) == y).sum().item()
    return hits

model = torch.nn.Linear(8, 2)
loader = DataLoader(train, batch_size=32)
test_loader = DataLoader(test, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        STEP
    best = evaluate(model, test_loader)
    print(best)
"""
STEP = "optimizer.step()"
GATED = "if i % 2 == 1:\n            optimizer.step()"

Told = Callable[..., list[tuple[int, str, str]]]


def told(step: str = STEP, *, tells: bool = True) -> list[tuple[int, str, str]]:
    """(line, kind, name) of everything that is told, in order."""
    return [(b.line, b.kind, b.name) for b in _result(step, tells=tells).files[0].behaviour]


def _result(step: str = STEP, *, tells: bool = True) -> Result:
    text = SCRIPT.replace("STEP", step)
    result = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(tells=tells))
    assert result.changed, "the training itself was not migrated"
    return result


def test_only_where_somebody_asks() -> None:
    assert told(tells=False) == []


@pytest.mark.parametrize(
    ("step", "kind"), [(STEP, "training step"), (GATED, "micro-step")], ids=["each batch", "every second batch"]
)
def test_loops(step: str, kind: str) -> None:
    loops = [(line, what) for line, what, name in told(step) if name == "for"]
    assert loops == [(6, "evaluation loop"), (15, "epoch loop"), (16, kind)]


def test_what_a_training_step_runs() -> None:
    because = [b.because for b in _result().files[0].behaviour if b.kind == "training step"]
    assert because == ["goes through enumerate(loader) and runs loss.backward and optimizer.step"]


def test_what_all_do_together() -> None:
    assert [(line, name) for line, what, name in told() if what == "together"] == [
        (18, "backward"), (19, "step"), (20, "evaluate")
    ]  # fmt: skip


def test_values() -> None:
    values = {(line, name): what for line, what, name in told() if what in ("equal", "local")}
    assert values == {
        (5, "hits"): "equal", (6, "x"): "local", (6, "y"): "local", (7, "output"): "local", (15, "epoch"): "equal",
        (16, "i"): "equal", (16, "x"): "local", (16, "y"): "local", (17, "loss"): "local", (20, "best"): "equal",
    }  # fmt: skip


def test_a_value_that_cannot_be_gathered_is_local() -> None:
    text = "total = 0\nfor x, y in loader:\n    total += float(x.std())\n    model(x).sum().backward()\n"
    script = SCRIPT.partition("for epoch")[0] + text + "    optimizer.step()\n"
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config(tells=True)).files
    assert ("total", "local") in [(b.name, b.kind) for b in file.behaviour]


def layouts(body: str, top: str = "") -> dict[str, tuple[str, str]]:
    """The layout of each variable of a training loop, and the reason, by its name; the last one where it has two."""
    text = SCRIPT.partition("for epoch")[0] + top + "for x, y in loader:\n    " + body.replace("\n", "\n    ")
    text += "\n    torch.nn.functional.cross_entropy(model(x), y).backward()\n    optimizer.step()\n"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(tells=True)).files
    at = text.partition("for x, y in loader:\n    " + body.partition("\n")[0])[0].count("\n") + 1
    return {b.name: (b.kind, b.because) for b in file.behaviour if b.kind in LAYOUTS and b.line >= at}


@pytest.mark.parametrize(
    ("body", "name", "kind", "because"),
    [
        ("half = 0.5", "x", "shard", "this process's rows of loader"),
        ("half = 0.5", "half", "replicated", "no row of the batch goes into it"),
        ("out = model(x)", "out", "shard", "this process's rows, computed from `x`"),
        ("turned = x.t()", "turned", "shard", "this process's rows along dimension 1, computed from `x`"),
        ("many = len(x)", "many", "row count", "how many rows this process has"),
        ("gap = model(x).mean()", "gap", "mean", "the mean over the rows of this process"),
        ("hits = (model(x).argmax(1) == y).sum()", "hits", "sum", "the sum over the rows of this process"),
        ("wide = model(x).std()", "wide", "joint", "neither a mean nor a sum: `model(x).std()`"),
        ("odd = mystery(x)", "odd", "unknown", "what `mystery` does with the rows of the batch is not known"),
        ("pair = [x, len(x)]", "pair", "several", "a container; what is in it: shard, row count"),
        ("one = x if given() else 0 * y.sum()", "one", "mixed", "shard on one path, sum on another"),
        ("for line in x:\n    seen = line", "seen", "row", "one row of this process after another"),
    ],
)
def test_the_layout_of_each_value_of_a_loop(body: str, name: str, kind: str, because: str) -> None:
    found, why = layouts(body)[name]
    assert found == kind and because in why


def test_rows_that_are_counted_over_the_batches_are_a_row_count() -> None:
    found, why = layouts("seen += x.size(0)", "seen = 0\n")["seen"]
    assert found == "row count" and "computed from the number of rows" in why


LARGE = "def part0():\n    return [0]\n" + "".join(
    f"def part{n}():\n    return [{', '.join([f'part{n - 1}()'] * 17)}]\n" for n in range(1, 5)
)
TABLE = """\
class Table:
    def __init__(self, half):
        self.rows = part4()
        self.half = half
table = Table(0.5)
"""


def test_what_is_too_large_to_follow_hides_nothing_that_is_read_beside_it() -> None:
    assert layouts("scaled = table.half * model(x)", LARGE + TABLE)["scaled"][0] == "shard"


def test_values_of_evaluation_loops_have_layouts_too() -> None:
    found = [(b.line, b.name, b.kind) for b in _result().files[0].behaviour if b.kind in LAYOUTS and b.line < 10]
    assert found == [(6, "x", "shard"), (6, "y", "shard"), (7, "output", "shard"), (8, "hits", "sum")]


def test_the_table() -> None:
    table = roles_table(_result())
    assert "16    <module>  for       training step    goes through enumerate(loader)" in table
    assert "17    <module>  loss    mean        the mean over the rows of this process" in table
    assert "gathered after it" in table and "everything it is computed from is equal on all processes" in table
