"""Names that hold one thing after another, and things with several names: each is prepared once, before it trains."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

Project = Callable[..., tuple[dict[str, str], list[str]]]

SCRIPT = """\
import argparse
import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from rows import more_rows, rows, test_rows


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Linear(8, width)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Pair(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.last = nn.Linear(3, 3)

    def forward(self, x):
        return self.last(self.inner(x))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def fit(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


parser = argparse.ArgumentParser()
parser.add_argument("--wide", action="store_true")
args = parser.parse_args()
"""
LOADER = "loader = DataLoader(rows, batch_size=32, shuffle=True)\n"
TRAIN = "optimizer = sgd(model)\nfit(model, loader, optimizer)\n"
ALL, BOTH = "model, optimizer, loader", "model, optimizer"
TEST = (
    "hits = 0\nfor x, y in {held}:\n    hits += (model(x).argmax(1) == y).sum().item()\nprint(hits / len(test_rows))\n"
)

NAMES = {
    "a model, and another": (f"{LOADER}model = Net()\n{TRAIN}model = Net(32)\n{TRAIN}", [ALL, BOTH]),
    "two models": (
        LOADER + "one, two = Net(), Net(32)\nfirst, second = sgd(one), sgd(two)\nfit(one, loader, first)\n"
        "fit(two, loader, second)\n",
        ["one, two, first, second, loader"],
    ),
    "a function that makes both, twice": (
        "def make(width):\n    net = Net(width)\n    return net, sgd(net)\n\n"
        f"{LOADER}one, first = make(8)\ntwo, second = make(16)\nfit(one, loader, first)\nfit(two, loader, second)\n",
        ["one, two, first, second, loader"],
    ),
    "a function that makes one, in a loop": (
        f"def make(width):\n    return Net(width)\n\n{LOADER}"
        "for width in (8, 16):\n    model = make(width)\n    optimizer = sgd(model)\n"
        "    fit(model, loader, optimizer)\n",
        ["loader", BOTH],
    ),
    "a list of models": (
        LOADER + "models = [Net(8), Net(16)]\nfor model in models:\n    optimizer = sgd(model)\n"
        "    fit(model, loader, optimizer)\n",
        ["Net(8)", "Net(16)", "loader", "optimizer"],
    ),
    "a list that a loop fills": (
        LOADER + "models = []\nfor width in (8, 16):\n    models.append(Net(width))\n"
        "for model in models:\n    optimizer = sgd(model)\n    fit(model, loader, optimizer)\n",
        ["Net(width)", "loader", "optimizer"],
    ),
    "a list that a loop fills, by a name": (
        LOADER + "models, optimizers = [], []\nfor width in (8, 16):\n    model = Net(width)\n"
        "    optimizer = sgd(model)\n    models.append(model)\n    optimizers.append(optimizer)\n"
        "for model, optimizer in zip(models, optimizers):\n    fit(model, loader, optimizer)\n",
        [BOTH, "loader"],
    ),
    "pairs that a loop puts into a list": (
        LOADER + "pairs = []\nfor width in (8, 16):\n    model = Net(width)\n    optimizer = sgd(model)\n"
        "    pairs.append((model, optimizer))\nfor model, optimizer in pairs:\n    fit(model, loader, optimizer)\n",
        [BOTH, "loader"],
    ),
    "entries that a loop sets": (
        LOADER + "models, optimizers = {}, {}\nfor width in (8, 16):\n    model = Net(width)\n"
        "    models[width] = model\n    optimizer = sgd(model)\n    optimizers[width] = optimizer\n"
        "for width in models:\n    fit(models[width], loader, optimizers[width])\n",
        [BOTH, "loader"],
    ),
    "models that are kept when they are trained": (
        LOADER + "models = []\nfor width in (8, 16):\n    model = Net(width)\n    optimizer = sgd(model)\n"
        "    fit(model, loader, optimizer)\n    models.append(model)\nprint(len(models))\n",
        ["loader", BOTH],
    ),
    "a table of models": (
        LOADER + "models = {'small': Net(8), 'large': Net(16)}\nfor name, model in models.items():\n"
        "    optimizer = sgd(model)\n    fit(model, loader, optimizer)\n",
        ["Net(8)", "Net(16)", "loader", "optimizer"],
    ),
    "a model in a model": (f"{LOADER}inner = Net()\nmodel = Pair(inner)\n{TRAIN}", [ALL]),
    "a model in a model of the same name": (f"{LOADER}model = Net()\nmodel = Pair(model)\n{TRAIN}", [ALL]),
    "a model that was trained, in a model of the same name": (
        f"{LOADER}model = Net()\n{TRAIN}model = Pair(model)\n{TRAIN}", [ALL, BOTH]
    ),
    "a model that was trained, in another one": (
        f"{LOADER}model = Net()\n{TRAIN}pair = Pair(model)\n"
        "last = torch.optim.SGD(pair.parameters(), lr=0.1)\nfit(pair, loader, last)\n",
        [ALL, "pair, last"],
    ),
    "a copy that is trained": (f"{LOADER}model = Net()\n{TRAIN}model = copy.deepcopy(model)\n{TRAIN}", [ALL, BOTH]),
    "a copy that is kept": (
        f"{LOADER}model = Net()\nbest = model\n{TRAIN}best = copy.deepcopy(model)\n" + TEST.format(held="loader"), [ALL]
    ),
    "a teacher, and a student of the same name": (
        f"{LOADER}model = Net(64)\n{TRAIN}teacher = model.eval()\nmodel = Net(8)\noptimizer = sgd(model)\n"
        "for x, y in loader:\n    with torch.no_grad():\n        told = teacher(x)\n    optimizer.zero_grad()\n"
        "    F.mse_loss(model(x), told).backward()\n    optimizer.step()\n",
        [ALL, BOTH],
    ),
    "a model by option": (f"{LOADER}if args.wide:\n    model = Net(64)\nelse:\n    model = Net()\n{TRAIN}", [ALL]),
    "a model of a table of classes": (
        f"{LOADER}model = {{'net': Net, 'flat': lambda: nn.Linear(8, 3)}}[sys.argv[1]]()\n{TRAIN}", [ALL]
    ),
    "an optimizer by option": (
        LOADER + "model = Net()\nif args.wide:\n    optimizer = torch.optim.Adam(model.parameters())\n"
        "else:\n    optimizer = sgd(model)\nfit(model, loader, optimizer)\n",
        [ALL],
    ),
    "an optimizer that a later epoch makes anew": (
        LOADER + "model = Net()\noptimizer = sgd(model)\nfor epoch in range(4):\n    if epoch == 2:\n"
        "        optimizer = torch.optim.Adam(model.parameters())\n    fit(model, loader, optimizer)\n",
        [ALL, "optimizer"],
    ),
    "a loader by option": (
        f"loader = DataLoader(rows if args.wide else more_rows, batch_size=32)\nmodel = Net()\n{TRAIN}", [ALL]
    ),
    "a loader in each branch": (
        "if args.wide:\n    loader = DataLoader(rows, batch_size=32)\nelse:\n    loader = DataLoader(more_rows)\n"
        f"model = Net()\n{TRAIN}",
        [ALL],
    ),
    "a loader that a branch replaces": (
        f"{LOADER}if args.wide:\n    loader = DataLoader(more_rows, batch_size=8)\nmodel = Net()\n{TRAIN}", [ALL]
    ),
    "a loader for each size": (
        "model = Net()\noptimizer = sgd(model)\nfor size in (8, 16):\n    loader = DataLoader(rows, batch_size=size)\n"
        "    fit(model, loader, optimizer)\n",
        [BOTH, "loader"],
    ),
    "a loader of the test, by the same name": (
        f"{LOADER}model = Net()\n{TRAIN}loader = DataLoader(test_rows, batch_size=9)\n{TEST.format(held='loader')}",
        [ALL, "loader"],
    ),
    "loaders of one function": (
        "def loaders(size):\n    return DataLoader(rows, batch_size=size), DataLoader(test_rows, batch_size=size)\n\n"
        f"loader, held = loaders(32)\nmodel = Net()\n{TRAIN}{TEST.format(held='held')}",
        [f"{ALL}, held"],
    ),
    "folds": (
        "for fold in range(3):\n    model = Net()\n    optimizer = sgd(model)\n"
        "    loader = DataLoader(rows, batch_size=32)\n    fit(model, loader, optimizer)\n",
        [ALL],
    ),
}  # fmt: skip


def _prepared(text: str) -> list[str]:
    """What each call of ``prepare`` takes, in the order of the text."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    methods = sorted((c for c in calls if isinstance(c.func, ast.Attribute)), key=lambda c: (c.lineno, c.col_offset))
    found = [c for c in methods if isinstance(c.func, ast.Attribute) and c.func.attr == "prepare"]
    return [", ".join(map(ast.unparse, call.args)) for call in found]


@pytest.mark.parametrize(("lines", "prepared"), NAMES.values(), ids=NAMES)
def test_each_is_prepared_before_it_trains(lines: str, prepared: list[str], trained_project: Project) -> None:
    texts, _ = trained_project(train=SCRIPT + lines)
    assert _prepared(texts["train"]) == prepared


@pytest.mark.parametrize(
    "lines",
    [
        f"{LOADER}model = Net()\noptimizer = sgd(model)\n\ndef grow():\n    global model, optimizer\n"
        "    model = Net(32)\n    optimizer = sgd(model)\n\nfit(model, loader, optimizer)\ngrow()\n"
        "fit(model, loader, optimizer)\n",
        LOADER + "".join(
            f"args.model = Net({width})\nargs.optimizer = sgd(args.model)\nfit(args.model, loader, args.optimizer)\n"
            for width in (8, 16)
        ),
    ],
    ids=["a name that a function sets anew", "an attribute that is set anew"],
)  # fmt: skip
def test_what_cannot_be_prepared_each_time_is_refused(lines: str, trained_project: Project) -> None:
    """The second model would train on the rows of one process, and no process would know of the others."""
    texts, findings = trained_project(train=SCRIPT + lines)
    assert set(findings) & {"prepare", "output-check"}
    assert texts["train"] == SCRIPT + lines
