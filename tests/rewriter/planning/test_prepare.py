"""Which variables are handed to prepare."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from torchlift.rewriter.facts.roles import Origin

Trained = Callable[..., tuple[str, list[str]]]
TrainedProject = Callable[..., tuple[dict[str, str], list[str]]]


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


PLAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=4)
"""
PARTS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=4)
"""
AT_IMPORT = {
    "at the top of the script": "run",
    "in a function": "def main():\n    run\n\n\nmain()",
}


@pytest.mark.parametrize("around", AT_IMPORT.values(), ids=AT_IMPORT)
def test_what_another_module_makes_is_prepared_where_it_is_imported(
    around: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    loop = """\
for x, y in rows:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()"""
    indent = "    " if "def" in around else ""
    train = "from torch import nn\nfrom parts import device, model, optimizer, rows\n\n"
    body = around.replace("run", loop.replace("\n", f"\n{indent}"))
    after, found = trained_project(train=f"{train}{body}\n", parts=PARTS)
    made = "accelerator = Accelerator()\nmodel, optimizer, rows = accelerator.prepare(\n    model, optimizer, rows\n)\n"
    assert made in after["train"] and "accelerator.backward(loss)" in after["train"] and found == []
    assert after["parts"] == PLAIN


def test_what_the_module_itself_evaluates_with_is_not_prepared_elsewhere(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    """A function beside it would go on with the plain loader, and gather what nobody has shared out."""
    evaluate = "def evaluate():\n    hits = 0\n    for x, y in rows:\n        hits += (model(x) > y).sum().item()\n"
    parts = f"{PARTS}\n\n{evaluate}    return hits\n"
    train = """\
from torch import nn
from parts import evaluate, device, model, optimizer, rows

for x, y in rows:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(evaluate())
"""
    after, found = trained_project(train=train, parts=parts)
    assert after["train"] == train and "accelerator-out-of-reach" in found


def test_what_only_looks_at_all_rows_keeps_the_plain_loader(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    parts = f"{PARTS}\n\ndef count():\n    return sum(len(x) for x, y in rows)\n"
    train = """\
from torch import nn
from parts import count, device, model, optimizer, rows

for x, y in rows:
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(count())
"""
    after, found = trained_project(train=train, parts=parts)
    assert "model, optimizer, rows = accelerator.prepare(" in after["train"] and found == []
    assert after["parts"] == parts.replace(PARTS, PLAIN), "nothing reads the device any more"


ONE_NAME = """\
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm
from data import rows, tests

batch = 4
model = torch.nn.Linear(4, 1)
loader = DataLoader(rows, batch_size=batch)
test_loader = DataLoader(tests, batch_size=batch)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    bar = tqdm(loader)
    for x, y in bar:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    losses = []
    with torch.no_grad():
        bar = tqdm(test_loader)
        for x, y in bar:
            losses.append(torch.nn.functional.mse_loss(model(x), y).item() / batch)
    print(sum(losses) / len(losses))
"""


def test_a_name_that_is_given_another_loader_iterates_that_one_alone(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    """An evaluation that seems to read the loader of the training would be refused."""
    after, found = trained_project(train=ONE_NAME)
    assert "model, optimizer, loader, test_loader = accelerator.prepare(" in after["train"]
    assert found == ["mean-of-batches"]


def test_what_a_file_gives_is_what_the_variable_holds_on_other_paths(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    train = """\
import sys
import torch
from torch.utils.data import DataLoader
from data import rows

if len(sys.argv) < 2:
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
else:
    saved = torch.load(sys.argv[1], weights_only=False)
    net = saved["net"]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(rows, batch_size=4):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
"""
    after, found = trained_project(train=train)
    assert "net, optimizer = accelerator.prepare(\n    net, optimizer\n)\n" in after["train"] and found == []


BARS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm
torch.manual_seed(0)
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


AROUND = """\
import torch
from torch.utils.data import DataLoader
from data import rows


class Rows:
    def __init__(self):
        self.loader = DataLoader(rows, batch_size=4)

    def __iter__(self):
        for batch in self.loader:
            yield batch


class Task:
    def __init__(self):
        self.net = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def feed(self, batch):
        self.x = batch[0]
        self.y = batch[1]

    def forward(self):
        self.out = self.net(self.x)

    def backward(self):
        self.loss = torch.nn.functional.mse_loss(self.out, self.y)
        self.loss.backward()

    def step(self):
        self.forward()
        self.optimizer.zero_grad()
        self.backward()
        self.optimizer.step()


task = Task()
for batch in Rows():
    task.feed(batch)
    task.step()
"""


def test_an_object_around_a_loader_is_iterated_as_the_loader(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    """Its batches were called fed by no loader."""
    after, found = trained_project(train=AROUND)
    assert "self.loader = accelerator.prepare(self.loader)" in after["train"] and found == []
    assert "accelerator.backward(self.loss)" in after["train"]


LEFT_OVER = """\
import torch
from torch.utils.data import DataLoader
from data import rows

window = 4
loader = DataLoader(rows, batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=9)
for epoch in range(3):
    number = 0
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y) / window
        loss.backward()
        number += 1
        if number % window == 0:
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    if number % window != 0:
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
"""


def test_a_schedule_is_stepped_with_the_optimizer_for_what_is_left_over_too(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    after, found = trained_project(train=LEFT_OVER)
    assert "model, optimizer, loader, schedule = accelerator.prepare(" in after["train"] and set(found) == {"scheduler"}


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


RIVALS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import data


def optimizer_of(net, lr):
    {returned}


class Update:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer

    def __call__(self, x, sign):
        self.optimizer.zero_grad()
        (sign * self.net(x).mean()).backward()
        self.optimizer.step()


class Rivals:
    def __init__(self):
        self.one = nn.Linear(8, 1)
        self.two = nn.Linear(8, 1)
        self.of_one = optimizer_of(self.one, 0.1)
        self.of_two = optimizer_of(self.two, 0.2)
        self.better, self.worse = Update(self.one, self.of_one), Update(self.two, self.of_two)

    def run(self):
        for x, y in DataLoader(data, batch_size=4):
            self.better(x, 1.0)
            self.worse(x, -1.0)


Rivals().run()
"""
RETURNED = {
    "one of them": "return torch.optim.SGD(net.parameters(), lr=lr)",
    "one of two": "if lr:\n        return torch.optim.SGD(net.parameters(), lr=lr)\n"
    "    return torch.optim.Adam(net.parameters())",
    "out of a table": "return {'sgd': torch.optim.SGD(net.parameters(), lr=lr)}['sgd']",
}


@pytest.mark.parametrize("returned", RETURNED.values(), ids=RETURNED)
def test_each_optimizer_that_one_function_makes_is_prepared(
    returned: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    texts, findings = trained_project(train=RIVALS.format(returned=returned))
    names = "self.one, self.two, self.of_one, self.of_two"
    call = f"        {names} = self.accelerator.prepare(\n            {names}\n        )\n        self.better"
    assert call in texts["train"] and findings == []


SERVED = """\
class Served:
    def __init__(self, rows, held=None):
        self.rows, self.held = rows, held

    {method}

def fit(model, rows):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in rows:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def score(model, rows):
    right = 0
    with torch.no_grad():
        for x, y in rows:
            right += (model(x).argmax(1) == y).sum().item()
    print(right)
"""
WHOLE = "def __iter__(self):\n        for i in range(8):\n            yield self.rows[i], self.rows[i]"
BY_INDEX = "def __getitem__(self, i):\n        return self.rows[i]"
OF_LOADER = "def __iter__(self):\n        for x, y in self.held:\n            yield x, y"
CALLS = {
    "by an iterator": (WHOLE, "fit(model, loader)\nfit(model, Served(batches))", True),
    "by an index": (BY_INDEX, "fit(model, Served(batches))\nfit(model, loader)", True),
    "around a loader": (OF_LOADER, "fit(model, loader)\nfit(model, Served(batches, loader))", False),
    "in no training": (WHOLE, "fit(model, loader)\nprint(Served(batches))", False),
    "a list": (WHOLE, "fit(model, loader)\nfit(model, [(torch.ones(4, 8), torch.zeros(4).long())])", True),
    "a list of a loader's batches": (WHOLE, "fit(model, loader)\nfit(model, list(loader))", False),
}


@pytest.mark.parametrize(("method", "calls", "refused"), CALLS.values(), ids=CALLS)
def test_a_training_that_one_call_gives_no_loader_is_refused(
    method: str, calls: str, refused: bool, trained: Trained
) -> None:
    text, findings = trained(top=SERVED.format(method=method), end=calls)
    assert ("prepare" in findings) == refused
    assert ("accelerator.prepare(" in text) != refused


TURNS = "def turns(rows):\n    for row in rows:\n        yield row\n\n"


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("Served(batches)", True),
        ("[(rows, labels)]", True),
        ("zip(rows.split(4), labels.split(4))", True),
        ("turns([(rows, labels)])", True),
        ("held", True),
        ("odd.batches(4)", True),
        ("turns(test_loader)", False),
        ("islice(test_loader, 3)", False),
        ("list(test_loader)", False),
        ("enumerated", False),
    ],
)
def test_an_evaluation_that_one_call_gives_no_loader_stays_whole(given: str, whole: bool, trained: Trained) -> None:
    top = "import odd\nfrom itertools import islice\n" + TURNS + SERVED.format(method=WHOLE)
    data = "rows, labels = torch.ones(8, 8), torch.zeros(8).long()\nheld = [(rows, labels)]\nenumerated = test_loader\n"
    text, findings = trained(top=top, end=f"{data}score(model, test_loader)\nscore(model, {given})")
    if whole:
        assert "    model, optimizer, loader\n)" in text and "gather" not in text and "prepare" in findings
    else:
        assert "test_loader\n)" in text


GIVEN_ANOTHER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def run(loader):
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    loader = DataLoader(torch.ones(64, 8), batch_size=4)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


run(DataLoader(torch.ones(64, 8), batch_size=8))
"""


def test_a_parameter_that_is_given_another_loader_is_prepared_each_time(trained_project: TrainedProject) -> None:
    """Without its shard, every process would train on all rows of the second."""
    after, findings = trained_project(train=GIVEN_ANOTHER)
    assert after["train"].count("model, optimizer, loader = accelerator.prepare(") == 2 and findings == []


MADE = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))


def loaders():
    return {made}
"""
TRAINER = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from made import loaders

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
model = DDP(torch.nn.Linear(8, 2).cuda(rank), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{names} = loaders()
for x, y in e:
    loss = torch.nn.functional.cross_entropy(model(x.cuda(rank)), y.cuda(rank))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
{loops}
"""


def test_loaders_are_prepared_in_one_order_wherever_objects_are_in_memory(
    trained_project: TrainedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ", ".join(["DataLoader(data, batch_size=8, sampler=DistributedSampler(data))"] * 6)
    loops = "\n".join(f"    for x, y in {name}:\n        model(x.cuda(rank))" for name in "adcbf")
    train = TRAINER.format(names=", ".join("eadcbf"), loops=loops)
    found = []
    for way in (1, -1):
        addresses: dict[int, int] = {}
        place = partial(_address, addresses, way)
        monkeypatch.setattr(Origin, "__hash__", lambda origin, place=place: place(origin))
        found.append(trained_project(train=train, made=MADE.format(made=made))[0]["train"])
    assert found[0] == found[1]


def _address(addresses: dict[int, int], way: int, origin: Origin) -> int:
    return addresses.setdefault(id(origin), 10_000 + way * len(addresses))


OWN_TRAINERS = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader
class One(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)
        self.head = nn.Linear(4, 2)
        self.rule = torch.optim.SGD([*self.encoder.parameters(), *self.head.parameters()], lr=0.1)
    def fit(self, loader):
        for x, y in loader:
            self.rule.zero_grad()
            loss = nn.functional.cross_entropy(self.head(self.encoder(x)), y)
            loss.backward()
            self.rule.step()
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 4), nn.Linear(8, 4)
        self.head = nn.Linear(4, 2)
        weights = list(self.left.parameters()) + list(self.right.parameters()) + list(self.head.parameters())
        self.rule = torch.optim.SGD(weights, lr=0.1)
    def fit(self, loader):
        for x, y in loader:
            self.rule.zero_grad()
            loss = nn.functional.cross_entropy(self.head(self.left(x) + self.right(x)), y)
            loss.backward()
            self.rule.step()
loader = DataLoader(rows, batch_size=8)
if "two" in sys.argv:
    model = Two()
else:
    model = One()
model.fit(loader)
"""


def test_a_module_that_trains_its_own_layers_is_prepared_and_not_each_of_them(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    texts, findings = trained_project(train=OWN_TRAINERS)
    prepared = "model, model.rule, loader = accelerator.prepare(\n    model, model.rule, loader\n)\n"
    assert prepared in texts["train"] and findings == []
