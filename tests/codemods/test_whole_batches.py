"""The rule `shard_batch` where one batch, the whole of a small data set, is used in every step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.rewriter.result import FileResult

Migrated = Callable[[str], str]

SCRIPT = """\
import torch
from torch import nn

WIDTHS = [2, 3, 4]


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 6), nn.Embedding(4, 6)
        self.layers = nn.ModuleList([nn.Linear(6, width) for width in WIDTHS])
        self.out = nn.Linear(9, 2)

    def forward(self, rows):
        x = {forward}
        return self.out({joined}.mean(1))


texts = [([1, 2, 3, 4], 0), ([5, 6, 7, 8], 1), ([1, 3, 5, 7], 0), ([2, 4, 6, 8], 1)]
rows, labels = {made}
model = Reader()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    optimizer.zero_grad()
    scores = model(rows)
    loss = nn.functional.cross_entropy(scores, labels)
    loss.backward()
    optimizer.step()
rows, labels = map(torch.tensor, zip(*texts[:1]))
scores = model(rows)
scores = scores.data.max(1)[1].numpy()
print([score for score in scores], labels)
"""
PLAIN = {
    "forward": "self.words(rows)",
    "joined": "torch.cat([layer(x) for layer in self.layers], 2)",
    "made": "torch.tensor([text for text, _ in texts]), torch.tensor([label for _, label in texts])",
}
CUT = {
    "joined along a dimension that is a constant": {
        "joined": "torch.cat([layer(x).unsqueeze(1) for layer in self.layers], len(WIDTHS)).squeeze(1)"
    },
    "columns that are made one by one": {"made": "map(torch.tensor, zip(*texts))"},
    "places that are the same for each row": {
        "forward": "self.words(rows) + self.places(torch.arange(rows.size(1)).unsqueeze(0).expand_as(rows))"
    },
}


@pytest.mark.parametrize("parts", CUT.values(), ids=CUT)
def test_it_is_cut_before_the_loop(parts: dict[str, str], migrated: Migrated) -> None:
    text = migrated(SCRIPT.format(**{**PLAIN, **parts}))
    assert "rows_shard, labels_shard = accelerator.shard_batch((rows, labels))\nfor step" in text
    assert "    scores = model(rows_shard)\n" in text


@pytest.mark.parametrize(
    "line",
    ["WIDTHS.append(5)", "WIDTHS += [5]", "if model:\n    WIDTHS = [2]"],
    ids=["grows", "is added to", "changes"],
)
def test_the_length_of_a_list_that_changes_is_no_constant(line: str, check_noop: Callable[..., None]) -> None:
    joined = {"joined": "torch.cat([layer(x).unsqueeze(1) for layer in self.layers], len(WIDTHS)).squeeze(1)"}
    text = SCRIPT.format(**{**PLAIN, **joined})
    check_noop(text.replace("model = Reader()\n", f"model = Reader()\n{line}\n"), "no-data-parallel-axis")


def test_what_is_computed_anew_after_the_training_is_no_figure_of_a_step(result: Callable[..., FileResult]) -> None:
    file = result(SCRIPT.format(**PLAIN))
    assert [trait.name for trait in file.traits if trait.kind == "figure"] == []


STATES = """\
import torch
from torch import nn


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 6)
        self.read = nn.LSTM(6, 5, bidirectional=True, batch_first=True)
        self.out = nn.Linear(10, 2)

    def forward(self, rows):
        found, (last, _) = self.read(self.words(rows))
        asked = {asked}
        weights = torch.softmax(torch.bmm(found, asked).squeeze(2), 1)
        return self.out(torch.bmm(found.transpose(1, 2), weights.unsqueeze(2)).squeeze(2))


rows, labels = torch.randint(20, (6, 4)), torch.randint(2, (6,))
model = Attends()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(rows), labels)
    loss.backward()
    optimizer.step()
"""


def test_a_view_that_mixes_rows_is_the_reason_and_its_remedy_leads_on(
    migrated: Migrated, result: Callable[..., FileResult]
) -> None:
    """The states of both directions come first: the view puts those of two rows into one. It was said of a product
    further down that something is not known."""
    (told,) = result(STATES.format(asked="last.view(-1, 10, 1)")).diagnoses
    assert "joins rows in different orders, as an earlier view or reshape has merged" in told.message
    assert "x.transpose(0, 1).reshape(...)" in told.remedy
    text = migrated(STATES.format(asked="last.transpose(0, 1).reshape(-1, 10, 1)"))
    assert "rows, labels = accelerator.shard_batch((rows, labels))\n" in text


UNSEEN = """\
import torch
from torch import nn
from somewhere import solve

x, y = torch.randn(100, 8), torch.randint(2, (100,))
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    w = y.float()
    loss = ({given} * w).sum() / w.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("given", ["solve(model(x))[:, 0]", "solve(model(x))[0]", "solve(model(x)).logits"])
def test_a_part_of_what_unseen_code_gives_meets_no_rows_that_are_cut(
    check_noop: Callable[..., None], given: str
) -> None:
    """Only the weights were cut, and the first step on two processes failed."""
    check_noop(UNSEEN.format(given=given), "no-data-parallel-axis")


FITTED = """\
import pandas
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))

    def forward(self, x):
        return self.layers(x)


def columns(frame):
    return torch.FloatTensor(frame.iloc[:, :-1].values), torch.FloatTensor(frame.iloc[:, -1:].values)


def judge(model, x, y):
    model.eval()
    with torch.no_grad():
        hits = ((model(x) > 0) == y.bool()).sum().item()
    return {{"hits": hits, "share": hits / len(y)}}


def fit(model, {given}):
    {x}, {y} = {taken}
    optimizer = torch.optim.Adam(model.parameters())
    best = 0.0
    for epoch in range(20):
        loss = nn.functional.binary_cross_entropy_with_logits(model({x}), {y})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        share = judge(model, {a}, {b})["share"]
        if share > best:
            best = share
    return best


x, y = columns(pandas.read_csv("rows.csv"))
print(fit(Net(), {handed}))
"""
HANDED = {
    "a pair": {"given": "train, other", "x": "rows", "y": "labels", "taken": "train", "handed": "(x, y), other=(x, y)"},
    "a pair by its name": {
        "given": "train, other", "x": "rows", "y": "labels", "taken": "train[0], train[1]",
        "handed": "other=(x, y), train=(x, y)",
    },
    "a dict": {"given": "data, other", "x": "rows", "y": "labels", "taken": 'data["x"], data["y"]',
               "handed": '{"x": x, "y": y}, (x, y)'},
}  # fmt: skip


@pytest.mark.parametrize("parts", HANDED.values(), ids=HANDED)
def test_data_that_a_function_is_given_in_one_is_cut_there(parts: dict[str, str], migrated: Migrated) -> None:
    text = migrated(FITTED.format(**parts, a="other[0]", b="other[1]"))
    assert "rows, labels = accelerator.shard_batch((rows, labels))\n    for epoch" in text


def test_all_processes_judge_all_rows(migrated: Migrated) -> None:
    """The function that judges runs the model without gradients: what the model runs by itself is not seen there."""
    parts = {**HANDED["a pair"], "given": "train, other"}
    text = FITTED.format(**parts, a="seen", b="known").replace(
        "    best = 0.0", "    seen, known = other\n    best = 0.0"
    )
    text = migrated(text)
    assert "rows, labels = accelerator.shard_batch((rows, labels))\n    for epoch" in text
    assert 'judge(model, seen, known)["share"]' in text


ELSEWHERE = """\
import random

import torch
from torch import nn

import source


def learn(model, optimizer, kept):
    x, y = kept
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


facts, kept = source.facts(), source.kept()
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    loss = learn(model, optimizer, kept)
    print(step, loss, [facts[i] for i in random.sample(range(len(facts)), 9)])
"""


def test_what_is_drawn_for_something_else_says_nothing_of_the_loss(result: Callable[[str], FileResult]) -> None:
    """The loss was said to be no mean over rows that it has nothing to do with."""
    (found,) = (one for one in result(ELSEWHERE).diagnoses if one.severity.value == "blocked")
    assert found.message.endswith("cannot be cut into shards: where its batches are made was not found")


ANEW = """\
import numpy as np
import torch
from torch import nn


def windows(series, size):
    x, y = [], []
    for i in range(len(series) - size):
        x.append(series[i : i + size])
        y.append(series[i + size])
    return np.array(x), np.array(y)


def parts(table, name):
    series = table[name]
    first, rest = series[:20], series[20:]
    x, y = windows(first, 8)
    for key, other in table.items():
        if key != name:
            more_x, more_y = windows(other, 8)
            x, y = np.r_[x, more_x], np.r_[y, more_y]
    return x, y, list(first), list(rest)


def score(model, first, rest):
    row = np.array(first[-8:]).reshape(1, 8).astype(np.float32)
    return abs(float(model(torch.from_numpy(row)).item()) - rest[0])


def train(table, epochs):
    scores = []
    for name in table:
        x, y, first, rest = parts(table, name)
        model = nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(epochs):
            xs = torch.from_numpy(x.astype(np.float32))
            ys = torch.from_numpy(y.reshape(-1, 1).astype(np.float32))
            loss = ((model(xs) - ys) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scores.append(score(model, first, rest))
    return scores


print(train({"a": list(np.sin(np.arange(60))), "b": list(np.cos(np.arange(60)))}, 5))
"""


def test_each_model_of_a_loop_has_a_training_of_its_own(migrated: Migrated) -> None:
    """What a function returns beside the rows, and what a score reads, stays whole; rows are cut once a model."""
    new = migrated(ANEW)
    cut = "        x, y = accelerator.shard_batch((x, y))\n        for epoch in range(epochs):\n"
    assert cut in new and new.count("shard_batch") == 1


def test_rows_that_all_models_share_are_not_cut_twice(migrated: Migrated) -> None:
    shared = ANEW.replace("        x, y, first, rest = parts(table, name)\n", "").replace(
        "    scores = []\n", "    scores = []\n    x, y, first, rest = parts(table, 'a')\n"
    )
    new = migrated(shared)
    assert new.count("shard_batch") == 1
    if "        x, y = accelerator.shard_batch" in new:
        raise AssertionError("the second model would train on a shard of a shard")


@pytest.mark.parametrize("stack", ["np.r_[x, more_x], np.r_[y, more_y]", "np.c_[x.T, x.T].T, np.r_[y, y]"])
def test_rows_that_numpy_joins_by_an_index_are_data(stack: str, migrated: Migrated) -> None:
    text = f"""\
import numpy as np
import torch
from torch import nn

x, y = np.random.rand(20, 8), np.random.rand(20)
more_x, more_y = np.random.rand(20, 8), np.random.rand(20)
x, y = {stack}
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(5):
    loss = ((model(torch.from_numpy(x).float()) - torch.from_numpy(y).float().view(-1, 1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    assert "x, y = accelerator.shard_batch((x, y))" in migrated(text)
