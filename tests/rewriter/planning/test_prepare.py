"""Which variables are handed to prepare."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]


def test_the_variable_that_held_the_wrapper(trained: Trained) -> None:
    loss = "loss = torch.nn.functional.cross_entropy(wrapped(x), y)"
    text, findings = trained(built="wrapped = torch.nn.DataParallel(model)", loss=loss)
    assert "wrapped = model\n" in text
    assert "wrapped, optimizer, loader = accelerator.prepare(\n    wrapped, optimizer, loader" in text
    assert findings == ["data_parallel"]


TWICE = """\
def score(m, l):
    hits = 0
    for x, y in l:
        hits += sorted(m(x).tolist())[0]
        pred = m(x)
        yield pred, hits
for q in score(model, test_loader):
    print(q)
with torch.no_grad():
    for x, y in test_loader:
        out = model(x)
        print((out.argmax(1) == y).sum().item())
"""


def test_a_loader_of_an_evaluation_that_is_not_understood_stays_whole(trained: Trained) -> None:
    """Another evaluation of it, which is understood, does not change that."""
    text, findings = trained(epoch=TWICE)
    assert "    model, optimizer, loader\n)" in text
    assert findings == ["prepare", "prepare"]


def test_rows_of_a_loader_that_stays_whole_are_not_gathered(trained: Trained) -> None:
    """Every process reads them all: each would count once a process."""
    text, _ = trained(epoch=TWICE)
    assert "gather_for_metrics" not in text


LAYERED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
net = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
optimizer = torch.optim.SGD({groups}, lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "groups",
    [
        "[{'params': net[0].parameters()}, {'params': net[1].parameters(), 'lr': 0.5}]",
        "net[0].parameters()",
        "[{'params': layer.parameters()} for layer in net]",
    ],
)
def test_layers_of_a_container_are_parts_of_it(
    groups: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    texts, findings = trained_project(train=LAYERED.format(groups=groups))
    assert "net, optimizer, loader = accelerator.prepare(" in texts["train"]
    assert findings == []


BUILT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
        self.layers[1].weight.data.zero_()
    def forward(self, x):
        return self.layers(x)
net = Net().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_weights_that_a_constructor_sets_need_no_device(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    texts, _ = trained_project(train=BUILT)
    assert "net = Net()\n" in texts["train"]


TWO_RUNS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
def build():
    net = nn.Linear(8, 2)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)
def fit(net, optimizer, loader):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
loader = DataLoader(data, batch_size=8, shuffle=True)
net, optimizer = build()
{run}
net, optimizer = build()
{run}
"""
HERE = """\
for x, y in loader:
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()"""


@pytest.mark.parametrize("run", ["fit(net, optimizer, loader)", HERE], ids=["in a function", "here"])
def test_what_one_function_builds_twice_is_prepared_twice(
    run: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    texts, findings = trained_project(train=TWO_RUNS.format(run=run))
    first, second = texts["train"].split("net, optimizer = build()\n")[1:]
    assert first.startswith("net, optimizer, loader = accelerator.prepare(\n    net, optimizer, loader\n)\n")
    assert second.startswith("net, optimizer = accelerator.prepare(\n    net, optimizer\n)\n")
    assert findings == []


BARS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
{loader}
def fit(epochs):
    net = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(epochs):
        {bar}
        for x, y in rows:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows.set_postfix(loss=loss.item())
fit(3)
"""


@pytest.mark.parametrize(
    ("loader", "bar", "expected"),
    [
        (
            "loader = DataLoader(data, batch_size=8, shuffle=True)",
            "rows = tqdm(loader)",
            "loader = DataLoader(data, batch_size=8, shuffle=True)\nloader = accelerator.prepare(loader)\n",
        ),
        (
            "loader = DataLoader(data, batch_size=8, shuffle=True)\nloader = tqdm(loader)",
            "rows = loader",
            "loader = accelerator.prepare(DataLoader(data, batch_size=8, shuffle=True))\n",
        ),
        (
            "loader = DataLoader(data, batch_size=8, shuffle=True)\ndef bar(rows):\n    return tqdm(rows, leave=False)",
            "rows = bar(loader)",
            "loader = DataLoader(data, batch_size=8, shuffle=True)\nloader = accelerator.prepare(loader)\n",
        ),
        (
            "",
            "rows = tqdm(DataLoader(data, batch_size=8, shuffle=True))",
            "rows = tqdm(accelerator.prepare(DataLoader(data, batch_size=8, shuffle=True)), disable=",
        ),
    ],
    ids=["a variable of its own", "the loader's variable", "made by a function", "around a new loader"],
)
def test_the_loader_inside_a_bar_is_prepared_and_not_the_bar(
    loader: str, bar: str, expected: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    texts, findings = trained_project(train=BARS.format(loader=loader, bar=bar))
    assert expected in texts["train"]
    assert "rows = accelerator.prepare(rows)" not in texts["train"]
    assert findings == []


OWN_ITERATOR = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Helper:
    def __init__(self, loader):
        self.inner = super(Own, loader).__iter__()
    def __iter__(self):
        return iter(list(self.inner))
class Own(DataLoader):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.drawn = super().__iter__()
    def __iter__(self):
        {body}
    def __next__(self):
        return next(self.drawn)
loader = Own(TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))), batch_size=8, shuffle=True)
net = nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ("return (next(self.drawn) for _ in range(len(self)))", True),
        ("return self", True),
        ("yield from (self.collate_fn([self.dataset[i] for i in rows]) for rows in self.batch_sampler)", True),
        ("self.drawn = super().__iter__(); return self", False),
        ("self.drawn = DataLoader.__iter__(self); return self", False),
        ("return iter(Helper(self))", False),
    ],
)
def test_a_loader_whose_own_iterator_no_shard_reaches_is_refused(
    body: str, refused: bool, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    texts, findings = trained_project(train=OWN_ITERATOR.format(body=body))
    assert findings == (["prepare"] if refused else [])
    assert ("accelerator.prepare(" in texts["train"]) is not refused


RUNNER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Runner(nn.Module):
    def __init__(self, net, rows, optimizer):
        super().__init__()
        self.net, self.rows, self.optimizer = net, rows, optimizer
        self.criterion = nn.CrossEntropyLoss()
{forward}
    def run(self):
        for x, y in self.rows:
            loss = self.criterion(self.net(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
rows = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))), batch_size=8, shuffle=True)
net = nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
runner = Runner(net, rows, optimizer)
runner.run()
"""


def test_a_module_that_trains_another_one_gets_the_prepared_loader(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    texts, findings = trained_project(train=RUNNER.format(forward=""))
    prepared = "net, optimizer, rows = accelerator.prepare(\n    net, optimizer, rows\n)\nrunner = Runner("
    assert prepared in texts["train"]
    assert findings == []


def test_a_model_that_keeps_a_loader_gets_the_prepared_one(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    forward = "    def forward(self, x):\n        return self.net(x)"
    texts, findings = trained_project(train=RUNNER.format(forward=forward))
    first, _, behind = texts["train"].partition("runner = Runner(")
    assert "rows = accelerator.prepare(rows)\n" in first
    assert "runner, optimizer = accelerator.prepare(\n    runner, optimizer\n)\n" in behind
    assert findings == []


CONTAINED = """\
from itertools import cycle, islice
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
first = DataLoader(data, batch_size=8, shuffle=True)
{first}
second = DataLoader(data, batch_size=4, shuffle=True)
{second}
net = nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{last}
for epoch in range(3):
    {around}
        for x, y in {source}:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
FIRST = "first = accelerator.prepare(first)\n"
BOTH = "first, second = accelerator.prepare(\n    first, second\n)\n"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("", "rows = {'a': first, 'b': second}", "", "for name in rows:", "rows[name]"), f"{BOTH}rows ="),
        (("", "rows = [first, second]", "", "for part in rows:", "part"), f"{BOTH}rows ="),
        (("", "rows = [('a', first), ('b', second)]", "", "for name, part in rows:", "part"), f"{BOTH}rows ="),
        (("", "rows = dict(a=first, b=second)", "", "for part in rows.values():", "part"), f"{BOTH}rows ="),
        (
            ("rows = []\nrows.append(first)", "rows.append(second)", "", "for part in rows:", "part"),
            "first = accelerator.prepare(first)\nrows = []\nrows.append(first)\n"
            "second = DataLoader(data, batch_size=4, shuffle=True)\nsecond = accelerator.prepare(second)\n",
        ),
        (
            ("rows = {}\nrows['a'] = first", "rows['b'] = second", "", "for name in rows:", "rows[name]"),
            "first = accelerator.prepare(first)\nrows = {}\nrows['a'] = first\n"
            "second = DataLoader(data, batch_size=4, shuffle=True)\nsecond = accelerator.prepare(second)\n",
        ),
        (("rows = first", "", "", "for _ in range(2):", "rows"), f"{FIRST}rows ="),
        (("rows = tqdm(first)", "", "", "for _ in range(2):", "rows"), f"{FIRST}rows ="),
        (("rows = cycle(first)", "", "", "for _ in range(2):", "islice(rows, 9)"), f"{FIRST}rows ="),
        (
            ("", "", "rows = {'a': first, 'b': second}", "for name in rows:", "rows[name]"),
            "net, optimizer, first, second = accelerator.prepare(\n    net, optimizer, first, second\n)\nrows =",
        ),
    ],
    ids=["a dict", "a list", "pairs", "a call", "added", "put in", "another name", "a bar", "endless", "afterwards"],
)
def test_what_takes_loaders_in_is_given_the_prepared_ones(
    parts: tuple[str, ...], expected: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    named = dict(zip(("first", "second", "last", "around", "source"), parts, strict=True))
    texts, findings = trained_project(train=CONTAINED.format(**named))
    assert expected in texts["train"]
    assert findings == []


@pytest.mark.parametrize("taking", ["enumerate(first)", "zip(range(9), first)"])
def test_what_numbers_the_batches_is_given_the_prepared_loader(
    taking: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    script = CONTAINED.format(first=f"rows = {taking}", second="", last="", around="if not epoch:", source="rows")
    texts, findings = trained_project(train=script.replace("for x, y in rows", "for _, (x, y) in rows"))
    assert f"{FIRST}rows = {taking}\n" in texts["train"]
    assert findings == []
