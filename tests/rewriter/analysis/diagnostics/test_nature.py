"""What several processes do differently by nature: which calls are augmentations, and which only sound like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, RawConfig
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
thing = CALL
for x, y in torch.utils.data.DataLoader(train):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def changed(call: str, kind: str = "transforms") -> list[str]:
    text = SCRIPT.replace("CALL", call)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"
    return [trait.name for trait in file.traits if trait.kind == kind]


@pytest.mark.parametrize("name", ["RandomCrop", "RandomHorizontalFlip", "ColorJitter", "RandAugment"])
def test_an_augmentation(name: str) -> None:
    assert changed(f"transforms.{name}(32)") == [name]


@pytest.mark.parametrize(
    "call", ["np.random.RandomState(0)", "RandomSampler(train)", "RandomForestClassifier()", "RandomizedSearchCV(m, p)"]
)
def test_what_only_sounds_like_one(call: str) -> None:
    assert changed(call) == []


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("torch.nn.Dropout(0.5)\nother = thing(torch.ones(3))", ["Dropout"]),
        ("torch.nn.Dropout(0.5)\ndropout = thing\nother = dropout(torch.ones(3))", ["Dropout", "dropout"]),
        ("torch.nn.functional.dropout(torch.ones(3))", ["dropout"]),
    ],
)
def test_a_layer_is_named_where_it_is_made(call: str, names: list[str]) -> None:
    assert changed(call, "noise") == names


NET = """\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tail, self.dropout = torch.nn.Linear(8, 2), None
        self.dropout = torch.nn.Dropout(0.4)
    def forward(self, x):
        return self.tail(self.dropout(x))
model = Net()"""


def test_a_layer_is_not_named_again_where_it_runs() -> None:
    text = SCRIPT.replace("model = torch.nn.Linear(8, 2)", NET).replace("CALL", "1")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [trait.name for trait in file.traits if trait.kind == "noise"] == ["Dropout"]


OWN = """\
import random
import numpy as np
import torch
from torch.utils.data import Dataset

class RandomTurn:
    def __call__(self, row):
        return row * DRAWN

class Rows(Dataset):
    def __init__(self, change):
        self.change = change
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return self.change(torch.ones(8)), index % 2
"""
TURNED = """\
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(Rows(RandomTurn()), batch_size=4WORKERS):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("drawn", "workers", "told"),
    [
        ("random.random()", "", ["random.random"]),
        ("np.random.randint(3)", "", ["np.random.randint"]),
        ("torch.rand(1)", "", ["RandomTurn"]),
        ("random.random()", ", num_workers=2", ["RandomTurn"]),
    ],
    ids=["of Python", "of NumPy", "of torch", "in workers"],
)
def test_a_transform_of_the_script_is_named_for_what_it_draws(drawn: str, workers: str, told: list[str]) -> None:
    """Without workers the numbers of Python and NumPy are the same on all processes."""
    text = OWN.replace("DRAWN", drawn) + TURNED.replace("WORKERS", workers)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [trait.name for trait in file.traits if trait.kind in ("transforms", "alike")] == told


@pytest.mark.parametrize(
    ("base", "told"),
    [
        ("object", ["random.random"]),
        ("monai.transforms.MapTransform", ["random.random"]),
        ("monai.transforms.RandomizableTransform", ["random.random", "RandomTurn"]),
    ],
)
def test_a_class_draws_what_its_own_code_does_unless_its_base_draws(base: str, told: list[str]) -> None:
    text = "import monai\n" + OWN.replace("DRAWN", "random.random()").replace("RandomTurn:", f"RandomTurn({base}):")
    (file,) = migrate(
        [decode((text + TURNED.replace("WORKERS", "")).encode(), Path("train.py"))], CATALOGUE, Config()
    ).files
    assert [trait.name for trait in file.traits if trait.kind in ("transforms", "alike")] == told


def test_the_transform_of_a_data_set_of_a_package_is_named_for_what_it_draws() -> None:
    text = OWN.replace("DRAWN", "random.random()") + TURNED.replace("WORKERS", "")
    text = "import torchvision\n" + text.replace(
        "Rows(RandomTurn())", "torchvision.datasets.MNIST('d', transform=RandomTurn())"
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [trait.name for trait in file.traits if trait.kind in ("transforms", "alike")] == ["random.random"]


def test_what_a_module_draws_that_stays_as_it_is_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "rows.py").write_text(OWN.replace("DRAWN", "random.random()"))
    (tmp_path / "train.py").write_text(
        "import torch\nfrom rows import RandomTurn, Rows\n" + TURNED.replace("WORKERS", "")
    )
    traits = [t for file in Surveyor(CATALOGUE, RawConfig()).look([Path("train.py")]).files for t in file.traits]
    assert [trait.name for trait in traits if trait.kind in ("transforms", "alike")] == ["random.random"]


@pytest.mark.parametrize("count", ["len(train) // batch_size", "n_samples / args.batch", "len(rows) // self.batch"])
def test_the_steps_of_an_epoch(count: str) -> None:
    assert changed(f"warm_up({count} * 10)", "steps") == [count]


@pytest.mark.parametrize("count", ["len(train) // 2", "hits / batch_size", "len(words) // rows"])
def test_another_quotient(count: str) -> None:
    assert changed(f"warm_up({count})", "steps") == []


RUNNING = """\
import logging
import math
import sys
import torch
import wandb
from meters import Meter
from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger()
writer = SummaryWriter()
log = open("log.txt", "w")
meter = Meter()
meters = {"loss": Meter(), "lr": Meter()}

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
scores = []

def spread(guess):
    found = 0
    for part in [guess]:
        found += part.abs().mean()
    return found

for i, (x, y) in enumerate(torch.utils.data.DataLoader(train)):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    COLLECT
    if i % 10 == 9:
        LOG
"""


@pytest.mark.hazard("E6")
@pytest.mark.parametrize(
    ("collect", "log", "names"),
    [
        ("total += loss.item()", "print(total / (i + 1))", ["total"]),
        ("total += loss.item()", "text = f'{total / 10}'\n        print(text)\n        total = 0.0", ["total"]),
        ("scores.append(loss.item())", "print(sum(scores) / len(scores))", ["scores"]),
        ("total += loss.item()", "print(loss.item())", []),
        ("total = 0.0\n    total += loss.item()", "print(total)", []),
        ("total += 1", "print(total)", []),
        ("meter.update(loss.item(), len(x))", "print(meter.avg)", ["meter"]),
        ("meters['loss'].update(loss.item(), len(x))", "print(meters['loss'].avg)", ["meters['loss']"]),
        ("meters['loss'].update(loss.item(), len(x))", "print(meters['lr'].avg)", []),
        ("meter.total += loss.item()", "print(meter.total / 10)", ["meter.total"]),
        ("meter.total += loss.item()", "sys.stdout.write('%.3f' % meter.total)", ["meter.total"]),
        ("total = total + loss.item()", "mean = total / 10\n        logger.info('%f', mean)", ["total"]),
        ("total += loss.item()", "writer.add_scalar('loss', total / 10, i)", ["total"]),
        ("total += loss.item()", "wandb.log({'loss': total / 10})", ["total"]),
        ("total += loss.item()", "math.log(total)", []),
        ("meter.update(1)", "print(meter.avg)", []),
        ("for row in range(len(y)):\n        meter.table[y[row], 0] += 1", "print(meter.table.sum())", ["meter.table"]),
        ("if loss.item() > 1:\n        total += 1", "print(total)", ["total"]),
        ("scores.append(loss.item())\n    mean = sum(scores) / len(scores)", "print(mean)\nprint(sum(scores))", []),
    ],
    ids=[
        *("a sum", "a text", "a list", "a loss of the step", "of one step", "steps", "a meter", "one of several"),
        *("another of them", "an attribute", "on the console", "a logger", "TensorBoard", "W&B", "computed", "no rows"),
        *("by index", "on a condition", "one that is reduced"),
    ],
)
def test_a_figure_that_runs_along(collect: str, log: str, names: list[str]) -> None:
    text = RUNNING.replace("COLLECT", collect).replace("LOG", log)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"
    assert [trait.name for trait in file.traits if trait.kind == "running"] == names


@pytest.mark.hazard("E6")
@pytest.mark.parametrize(
    ("collect", "after", "names"),
    [
        ("average = average * 0.9 + float(loss) * 0.1", "print(average)", ["average"]),
        ("pass", "print('last', loss.item())", ["loss"]),
        ("last = loss.item()", "print(f'{last:.3f}')", ["last"]),
        ("pass", "print(i)", []),
    ],
    ids=["a moving average", "the last loss", "kept", "a number"],
)
def test_a_figure_of_the_last_steps_that_is_printed_after_the_loop(collect: str, after: str, names: list[str]) -> None:
    text = RUNNING.replace("COLLECT", collect).replace("LOG", "pass") + f"{after}\n"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"
    assert [trait.name for trait in file.traits if trait.kind == "figure"] == names


@pytest.mark.hazard("E6")
@pytest.mark.parametrize(
    ("collect", "log", "names"),
    [
        ("hits = (model(x).argmax(1) == y).float().mean()", "print(hits.item())", ["hits"]),
        ("bar = tqdm(range(3))", "bar.set_postfix(loss=loss.item())", ["loss"]),
        ("pass", "print(i)", []),
        ("hits = 100.0 * (model(x).argmax(1) == y).sum().item()", "sys.stdout.write(f'{hits}')", ["hits"]),
        ("pass", "writer.add_scalar('loss', loss.item(), i)", ["loss"]),
        ("pass", "writer.add_histogram('loss', loss.detach(), i)", ["loss"]),
        ("pass", "log.write(f'{loss.item()}')", ["loss"]),
        ("pass", "log.write(f'{i}')", []),
        ("part = spread(model(x))\n    whole = loss + part", "print(part.item(), whole.item())", ["part", "whole"]),
        ("best = max(scores)", "print(best, evaluated())", []),
        ("scores.append(loss.item())\n    mean = sum(scores) / len(scores)", "print(mean)\nprint(sum(scores))", []),
    ],
    ids=[
        *("an accuracy", "on a bar", "a number", "on the console", "TensorBoard", "another call of TensorBoard"),
        *("in a file", "a number in a file", "of a function", "no rows"),
        "one that is reduced",
    ],
)
def test_a_figure_of_a_step_that_is_shown(collect: str, log: str, names: list[str]) -> None:
    text = "from tqdm import tqdm\n" + RUNNING.replace("COLLECT", collect).replace("LOG", log)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"
    assert [trait.name for trait in file.traits if trait.kind == "figure"] == names


AVERAGE = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

train_loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    total = 0.0
    for x, y in train_loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, SHOWN)
"""


LENGTHS = """\
import torch
from torch.utils.data import DataLoader

def look(model, loader):
    found = [None] * len(loader)
    with torch.no_grad():
        for k, (x, y) in enumerate(loader):
            for row in x:
                found[k] = model(row)
    return found

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train_loader, test_loader = DataLoader(train), DataLoader(test)
for x, y in train_loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print(len(train_loader))
look(model, LOOKED_AT)
"""


@pytest.mark.parametrize(
    ("looked_at", "told"), [("test_loader", {"train_loader"}), ("train_loader", {"train_loader", "loader"})]
)
def test_a_loader_that_is_not_prepared_keeps_its_length(looked_at: str, told: set[str]) -> None:
    text = LENGTHS.replace("LOOKED_AT", looked_at)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"test_loader = accelerator.prepare" not in file.after
    assert {trait.name for trait in file.traits if trait.kind == "length"} == told


@pytest.mark.parametrize(("shown", "told"), [("total / len(train_loader)", 0), ("epoch * len(train_loader)", 1)])
def test_a_mean_over_the_batches_of_a_process_is_one_with_its_own_length(shown: str, told: int) -> None:
    """`total / len(loader)` was said to change: both are of the same batches."""
    text = AVERAGE.replace("SHOWN", shown)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"train_loader = accelerator.prepare" in file.after.replace(b"model, optimizer, ", b"")
    assert [trait.kind for trait in file.traits].count("length") == told


def test_a_length_that_is_read_before_prepare_is_that_of_the_script() -> None:
    made = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    text = LENGTHS.replace("LOOKED_AT", "test_loader").replace(made, "")
    text = text.replace("for x, y in train", f"steps = len(train_loader)\n{made}for x, y in train")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    places = {trait.line for trait in file.traits if trait.kind == "length"}
    assert places == {number for number, line in enumerate(text.splitlines(), 1) if line == "print(len(train_loader))"}


EARLY = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 2)
loader = DataLoader(train, batch_size=4)
BEFORE
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
MADE
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    AFTER
"""
RATE = "scheduler = torch.optim.lr_scheduler."


@pytest.mark.parametrize(
    ("before", "made", "after", "told"),
    [
        ("steps = len(loader)", "", "print(steps)", ["steps"]),
        ("steps = len(loader)", "", "left = 3 * steps", []),
        ("steps = len(loader)", "", "left = 3 * steps\n    print(left)", ["steps"]),
        ("whole = 3 * len(loader)", "", "bar.set_postfix(of=whole)", ["whole"]),
        ("args.steps = len(loader)", "", "log.info('%d', args.steps)", ["args.steps"]),
        ("print(len(loader))", "", "", ["len(loader)"]),
        ("steps = len(loader)", RATE + "OneCycleLR(optimizer, 1, total_steps=steps)", "scheduler.step()", []),
        ("", RATE + "OneCycleLR(optimizer, 1, total_steps=len(loader))", "scheduler.step()", []),
        (
            "steps = len(loader)\ndef rate(step):\n    return 1 - step / max(1, steps)",
            RATE + "LambdaLR(optimizer, rate)",
            "scheduler.step()",
            [],
        ),
        ("steps = len(loader)", "", "print(loss.item() / steps)", []),
        ("", "", "print(len(loader))", []),
        ("steps = len(other)", "", "print(steps)", []),
    ],
)
def test_a_length_from_before_prepare_that_is_shown_later(before: str, made: str, after: str, told: list[str]) -> None:
    text = EARLY.replace("BEFORE", before).replace("MADE", made).replace("AFTER", after or "pass")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.prepare(" in file.after
    assert [trait.name for trait in file.traits if trait.kind == "early-length"] == told


IN_A_FUNCTION = """
import torch

def fit(model, batches, of):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(batches):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(i, "of", of)

def main(rows):
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    LINES

main(torch.load("rows.pt"))
"""


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("steps = len(loader)\n    fit(torch.nn.Linear(4, 1), loader, steps)", ["steps"]),
        ("fit(torch.nn.Linear(4, 1), loader, len(loader))", ["len(loader)"]),
        ("steps = 50 if rows is None else len(loader)\n    fit(torch.nn.Linear(4, 1), loader, of=steps)", ["steps"]),
    ],
    ids=["kept", "handed over", "one of two"],
)
def test_a_length_from_before_a_function_that_prepares(lines: str, told: list[str]) -> None:
    """It is said to be that of one process, and not to be 1/N of it."""
    text = IN_A_FUNCTION.replace("LINES", lines)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"model, optimizer, batches = accelerator.prepare(" in file.after
    assert [(t.kind, t.name) for t in file.traits if "length" in t.kind] == [("early-length", name) for name in told]


def test_a_length_of_the_global_batches_is_the_same_on_all_processes() -> None:
    text = EARLY.replace("BEFORE", "steps = len(loader)").replace("MADE", "").replace("AFTER", "print(steps)")
    config = Config(keep_global_batch=True)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, config).files
    assert not [trait for trait in file.traits if trait.kind == "early-length"]


EVALUATED = """

def evaluate():
    hits = rows = 0
    for x, y in torch.utils.data.DataLoader(held, batch_size=4):
        hits += (model(x).argmax(1) == y).sum().item()
        rows += len(y)
    return hits / rows
"""


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ("print((i + 1) * len(x), len(data))", ["(i + 1) * len(x)"]),
        ("done = i * x.size(0)\n    print(f'{done} of {len(data)}')", ["i * x.size(0)"]),
        ("print(y.shape[0] * i)", ["y.shape[0] * i"]),
        ("print(i * args.size + len(x))", ["i * args.size + len(x)"]),
        ("print(f'{i * args.size} of {len(data)}')", ["i * args.size"]),
        ("print(i * args.other + len(x))", ["i * args.other + len(x)"]),
        ("seen += args.size\n    print(seen)", ["seen += args.size"]),
        ("seen += 1\n    print(seen * args.size)", []),
        ("seen += args.size\n    print(total / seen)", []),
        ("seen += args.size", []),
        ("print(i * args.other + 1)", []),
        ("print(i * len(data))", []),
        ("print(3 * len(x))", []),
        ("total += loss.item() * len(x)", []),
    ],
    ids=[
        "in a line",
        "by a variable",
        "turned",
        "by the size",
        "the size alone",
        "the size by another name",
        "the size added up",
        "what not every step counts",
        "what is divided by",
        "what nothing shows",
        "another",
        "of all",
        "no step",
        "a sum",
    ],
)
def test_rows_that_a_loop_has_gone_through(shown: str, names: list[str]) -> None:
    assert _rows_done(shown, Config()) == names


@pytest.mark.parametrize(("counted", "names"), [("seen += 1", ["seen * args.size"]), ("seen += 2", [])])
def test_rows_of_the_steps_that_are_counted_by_hand(counted: str, names: list[str]) -> None:
    assert _rows_done("print(f'{seen * args.size} of {len(data)}')", Config(), counted) == names


def test_rows_of_global_batches_by_the_size_that_the_script_gives() -> None:
    assert _rows_done("print(i * args.size + 1)", Config(keep_global_batch=True)) == []
    assert _rows_done("print(i * args.other + len(x))", Config(keep_global_batch=True)) == []
    assert _rows_done("print(i * len(x))", Config(keep_global_batch=True)) == ["i * len(x)"]


def _rows_done(shown: str, config: Config, counted: str = "pass") -> list[str]:
    text = (
        RUNNING.replace("COLLECT", counted)
        .replace("LOG", shown)
        .replace("DataLoader(train)", "DataLoader(train, args.size)")
    )
    assert "args.size" in text.replace(shown, "")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, config).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"
    return [trait.name for trait in file.traits if trait.kind == "rows-done"]


HELPERS = """\
class Log:
    def keep(self, values):
        for name, value in values.items():
            print(name, value)
    def count(self, values):
        print("one more")
def note(value):
    text = f"loss: {value}"
    print(text)
def again(out, y):
    return {"loss": torch.nn.functional.cross_entropy(out, y).item()}
book = Log()
"""


@pytest.mark.hazard("E6")
@pytest.mark.parametrize(
    ("collect", "kept", "names"),
    [
        ("pass", "torch.save({'loss': loss.item()}, 'a.pt')", ["loss"]),
        ("entry = {'loss': loss.item(), 'step': i}", "torch.save(entry, 'a.pt')", ["loss"]),
        ("pass", "torch.save({'step': i, 'model': model.state_dict()}, 'a.pt')", []),
        ("pass", "note(loss.item())", ["loss"]),
        ("values = again(model(x), y)", "book.keep({**values, 'step': i})", ["values"]),
        ("values = again(model(x), y)", "book.count(values)", []),
    ],
    ids=["saved", "saved in a dict", "a state", "by a function", "a dict by a method", "what shows nothing of it"],
)
def test_a_figure_of_a_step_that_is_kept(collect: str, kept: str, names: list[str]) -> None:
    text = (
        RUNNING.replace("COLLECT", collect)
        .replace("LOG", kept)
        .replace("import torch\n", f"import torch\n{HELPERS}", 1)
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"
    assert [trait.name for trait in file.traits if trait.kind == "figure"] == names


@pytest.mark.hazard("E6")
def test_what_an_evaluation_gives_is_of_all_rows() -> None:
    collect = "rate = evaluate()\n    best = max(best, rate)"
    text = RUNNING.replace("COLLECT", collect).replace("LOG", "print(best, rate, loss.item())")
    text = text.replace("total = 0.0", "best = 0.0" + EVALUATED)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"gather_for_metrics(" in file.after, "the evaluation was not migrated"
    assert [trait.name for trait in file.traits if trait.kind in ("running", "figure")] == ["loss"]


BETWEEN_STEPS = """\
import torch

class Gaps:
    def __init__(self):
        self.sum, self.batches = 0.0, 0
    def update(self, out, y):
        self.sum, self.batches = self.sum + torch.median(out - y).item(), self.batches + 1
    def figures(self):
        return {"gap": self.sum / self.batches}

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(rows, batch_size=8)
held = torch.utils.data.DataLoader(others, batch_size=8)
gaps, worst = Gaps(), []
for step, (x, y) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 9:
        with torch.no_grad():
            for a, b in held:
                out = model(a)
                gaps.update(out, b)
                worst.append(torch.median(out - b).item())
        for name, value in gaps.figures().items():
            print(name, value)
        print(sum(worst) / len(worst), loss.item())
"""


def test_what_an_evaluation_between_steps_collects_is_its_own() -> None:
    """Every process runs it whole: it was said that each has the figures of its own rows."""
    (file,) = migrate([decode(BETWEEN_STEPS.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [found.id for found in file.diagnoses] == ["prepare"]
    assert [trait.name for trait in file.traits if trait.kind in ("running", "figure", "shown")] == ["loss"]


TESTED = """\
import torch
from torch.utils.data import DataLoader
data, test_data, test_target = load()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.8)
for x, y in DataLoader(data, batch_size=8):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        after = torch.nn.functional.mse_loss(model({tested}), {target})
        print(after.item())
"""


@pytest.mark.parametrize(
    ("tested", "target", "names"),
    [("test_data", "test_target", []), ("x", "y", ["after"])],
    ids=["of all rows", "of the batch"],
)
def test_a_loss_of_all_rows_between_steps_is_no_figure_of_one_process(
    tested: str, target: str, names: list[str]
) -> None:
    text = TESTED.format(tested=tested, target=target)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "accelerator.backward(loss)" in file.after.decode()
    assert [trait.name for trait in file.traits if trait.kind in ("running", "figure", "shown")] == names


NAMED_TWICE = """\
import torch

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def run():
    rows = torch.utils.data.TensorDataset(inputs, labels)
    print(len(rows))
    rows = torch.utils.data.DataLoader(rows, batch_size=8)
    for x, y in rows:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    SHOWN

run()
"""


@pytest.mark.parametrize(("shown", "told"), [("pass", []), ("print(len(rows))", ["rows"])])
def test_a_data_set_with_the_name_of_a_loader_is_none(shown: str, told: list[str]) -> None:
    """Its length was said to be a number of batches."""
    text = NAMED_TWICE.replace("SHOWN", shown)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after
    assert [trait.name for trait in file.traits if trait.kind == "length"] == told


MOVED = """\
import torch
from torch.utils.data import DataLoader

on_gpu = torch.cuda.is_available()
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8, shuffle=True)
for epoch in range(3):
    for x, y in loader:
        if on_gpu:
            x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        loss = torch.mean(torch.square(model(x) - y))
        loss.backward()
        optimizer.step()
    print("last", loss.item())
with torch.no_grad():
    x = rows[:4]
    if on_gpu:
        x = x.cuda()
    print(model(x).tolist())
"""


@pytest.mark.hazard("E6")
def test_a_last_loss_whose_batch_has_its_name_again_in_an_evaluation() -> None:
    (file,) = migrate([decode(MOVED.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(loss)" in file.after
    assert "loss" in [trait.name for trait in file.traits if trait.kind == "figure"]
