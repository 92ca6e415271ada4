"""What differs between processes, and what is the same on all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]


def test_the_width_of_a_batch_is_the_same_everywhere(trained: Trained) -> None:
    text, findings = trained(step="width = x.shape[1]\nif width > 3:\n    break")
    assert "accelerator.backward(loss)" in text
    assert findings == []


def test_the_rows_of_a_batch_are_as_many_on_all_processes(trained: Trained) -> None:
    """A short last batch is filled up."""
    text, findings = trained(step="rows = x.shape[0]\nif rows > 3:\n    break")
    assert "accelerator.backward(loss)" in text
    assert findings == ["local-decision"]


def test_what_another_method_of_that_name_joins_is_a_process_s_own(trained: Trained) -> None:
    step = "worst = functools.reduce(max, (loss.item(), 3))\nif worst > 30:\n    break"
    text, findings = trained(top="import functools", step=step)
    assert 'functools.reduce(max, (accelerator.reduce(loss.detach(), reduction="mean").item(), 3))' in text
    assert findings == []
    text, findings = trained(step="if x.reduce(loss).item() > 3:\n    break")
    assert "accelerator" not in text
    assert findings == ["local-decision"]


SCORER = """\
class Inner:
    def __init__(self):
        self.kept = []
    def keep(self, rows):
        self.kept.append(rows)
    def twice(self, rows):
        return rows * 2
class Keeper(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None
    def forward(self, rows):
        self.last = rows
        return rows
def doubled(rows):
    return rows * 2
def rounded(rows, limit):
    return rows.clamp(0, limit)
class Scorer:
    def __init__(self):
        self.scale, self.seen, self.last = 1.0, [], 0
        self.keeper, self.inner = Keeper(), Inner()
        self.loss = doubled
        self.limit = 5
    def score(self, out, y):
        {body}
        return self.scale * self.right(out, y)
    def right(self, out, y):
        return (out.argmax(1) == y).sum().item()
scorer = Scorer()
def held(model):
    hits = 0
    with torch.no_grad():
        for x, y in test_loader:
            hits += scorer.score(model(x), y)
    return hits"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("one = self.last + 1", []),
        ("one = self.loss(y)", []),
        ("one = rounded(y, self.limit)", []),
        ("one = self.keeper(y)", ["local-decision"]),
        ("self.inner.keep(y)", ["local-decision"]),
        ("one = self.inner.twice(y)", []),
        ("self.last = y", ["local-decision"]),
        ("self.seen.append(y)", ["local-decision"]),
        ("seen = self.seen\n        seen.append(y)", ["local-decision"]),
        ("vars(self)['last'] = y", ["local-decision"]),
    ],
    ids=[
        "only computes",
        "asks a function that it has",
        "hands on a number",
        "asks a layer that keeps",
        "a part of it keeps",
        "a part of it computes",
        "sets an attribute",
        "fills a list",
        "fills it by another name",
        "hands itself on",
    ],
)
def test_an_object_that_training_and_evaluation_ask_keeps_what_its_method_keeps(
    body: str, found: list[str], trained: Trained
) -> None:
    epoch = "hits = held(model)\nif hits > best:\n    torch.save(model.state_dict(), 'best.pt')\n    best = hits"
    text, findings = trained(
        top=SCORER.format(body=body), built="best = 0", step="print(scorer.score(model(x), y))", epoch=epoch
    )
    assert "gather_for_metrics" in text
    assert findings == found


WHOLE = """\
right, rows = 0.0, 0
for x, y in test_loader:
    right += rate(model(x), y)
    rows += x.size(0)
right = right / rows
if right > best:
    torch.save(model.state_dict(), 'best.pt')
    best = right"""
RATE = "def rate(out, y):\n    return float((out.argmax(1) == y.max()).sum()) / out.size(0)"


def test_a_variable_that_is_set_anew_is_another(trained: Trained) -> None:
    """The evaluation stays whole, and names its batches and figures as training does."""
    step = "right += rate(model(x), y).real"
    text, findings = trained(top=RATE, built="best, right = 0, 0", step=step, epoch=WHOLE)
    assert "accelerator.save(accelerator.get_state_dict(model), 'best.pt')" in text
    assert "local-decision" not in findings and "prepare" in findings


ENGINE = """\
import numpy as np
import torch
def near(out, y):
    return (out - y).abs().mean()
class Engine:
    def __init__(self):
        self.model = torch.nn.Linear(8, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.loss = near
        self.limit = 5
    def train(self, x, y):
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.loss(self.model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)
        self.optimizer.step()
        return loss.item(), 1
    def eval(self, x, y):
        self.model.eval()
        return self.loss(self.model(x), y).item(), 1
def main():
    xs, ys = np.random.rand(64, 8).astype("float32"), np.random.rand(64, 2).astype("float32")
    engine, seen = Engine(), []
    for epoch in range(3):
        for i in range(0, 48, 8):
            x = torch.Tensor(xs[i : i + 8])
            y = torch.Tensor(ys[i : i + 8])
            figures = engine.train(x, y)
        held = []
        for i in range(48, 64, 8):
            a = torch.Tensor(xs[i : i + 8])
            b = torch.Tensor(ys[i : i + 8])
            figures = engine.eval(a, b)
            held.append(figures[0])
        seen.append(np.mean(held))
        torch.save(engine.model.state_dict(), "a_" + str(epoch) + ".pt")
    engine.model.load_state_dict(torch.load("a_" + str(np.argmin(seen)) + ".pt"))
main()
"""


def test_an_object_that_trains_does_not_keep_the_batches_that_its_model_is_given() -> None:
    """Its evaluation was called one process's own, and the program that loads the best weights was refused."""
    (file,) = migrate([decode(ENGINE.encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert not file.blocked and text.count("accelerator.shard_batch(") == 2
    assert "np.argmin(seen)" in text and [one.id for one in file.diagnoses] == ["cpu-only", "sharded-batch"]
