"""What a loop counts, of which each process counts its own, and the device of a Mac."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

device = DEVICE
model = torch.nn.Linear(8, 2).to(device)
loader = DataLoader(train, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
for epoch in range(3):
    bar = tqdm(total=len(train))
    if epoch % 5 == 0:
        print(epoch)
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        MORE
"""
DEVICE = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'


KINDS = ("cadence", "long-cadence", "interval", "limit", "bar", "mac")


def told(more: str = "", device: str = "accelerator") -> list[tuple[str, str]]:
    text = SCRIPT.replace("MORE", more).replace("DEVICE", device)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"
    return [(t.kind, t.name) for t in file.traits if t.kind in KINDS]


COUNTED = {
    "every so many steps": ("if i % 100 == 99:\n            print(i)", "cadence", "i % 100 == 99"),
    "the first step, too": ("if i % 100 == 0:\n            print(i)", "interval", "i % 100 == 0"),
    "said in another way": ("if not i % 100:\n            print(i)", "interval", "not i % 100"),
    "or the last": ("if i % 9 == 0 or i == 99:\n            print(i)", "interval", "i % 9 == 0 or i == 99"),
    "and another": ("if i % 9 == 0 and i > 1:\n            print(i)", "cadence", "i % 9 == 0 and i > 1"),
    "counted from one": ("if (i + 1) % 100 == 0:\n            print(i)", "cadence", "(i + 1) % 100 == 0"),
    "a length": ("for j in range(len(loader)):\n            if j % 9 == 1: print(j)", "cadence", "j % 9 == 1"),
    "through all epochs": ("if not step % every:\n            print(i)", "long-cadence", "not step % every"),
    "through all epochs, and more": (
        "if step > 0 and (step + 1) % 9 == 0:\n            print(i)",
        "long-cadence",
        "step > 0 and (step + 1) % 9 == 0",
    ),
    "the first batches": ("if i >= 10:\n            break", "limit", "i >= 10"),
    "the first batches, counted from one": ("if i + 1 == 10: break", "limit", "i + 1 == 10"),
    "a limit of all steps": ("if step >= most:\n            break", "limit", "step >= most"),
    "a limit that may be none": ("if most and step > most:\n            break", "limit", "most and step > most"),
    "a limit with a name": ("last = step == most\n        if last:\n            break", "limit", "last"),
    "patience in steps": ("if step - best_step > 9:\n            break", "limit", "step - best_step > 9"),
    "a counter that is spelled out": ("n = n + 1\n        if n == 10: break", "limit", "n == 10"),
    "a counter of an object": ("run.step += 1\n        if run.step == 10: break", "limit", "run.step == 10"),
    "rows that a bar is told of": ("bar.update(x.shape[0])", "bar", "len(train)"),
    "rows by their length": ("bar.update(len(x))", "bar", "len(train)"),
}


@pytest.mark.parametrize(("more", "kind", "name"), COUNTED.values(), ids=COUNTED)
def test_counted_by_each_process(more: str, kind: str, name: str) -> None:
    assert told(more, DEVICE) == [(kind, name), ("mac", "")]


LEFT = {
    "nothing": "",
    "batches that a bar is told of": "bar.update(1)",
    "a dict that is updated": "state = {}\n        state.update(x=x)",
    "a loss that ends the loop": "if loss.item() < 1:\n            break",
    "evaluations": "if loss.item() < best: worse += 1\n        if worse > 3: break",
    "what is no limit of steps": "total += 2\n        if total > 99: break",
    "steps that end nothing": "if step == 10:\n            print(i)",
    "a text": "print('%d' % i)",
    "epochs": "if epoch % 5 == 0:\n            print(epoch)",
    "rounds of a loop": "with tqdm(range(9)) as b:\n            for j in b:\n                if j % 9: print(j)",
}


@pytest.mark.parametrize("more", LEFT.values(), ids=LEFT)
def test_not_counted(more: str) -> None:
    assert told(more, DEVICE) == [("mac", "")]


@pytest.mark.parametrize(
    "device",
    ['torch.device("cuda")', 'torch.device("cuda" if args.cuda else "mps" if args.mps else "cpu")', '"cpu"'],
    ids=["CUDA alone", "a Mac's as well", "the CPU alone"],
)
def test_no_other_device_on_a_mac(device: str) -> None:
    assert told(device=device) == []


def test_a_batch_beside_what_is_numbered() -> None:
    numbered = "for i, (x, y) in enumerate(loader):"
    text = SCRIPT.replace(numbered, "for (x, y), (i, _) in zip(loader, enumerate(names)):").replace("DEVICE", '"cpu"')
    text = text.replace("MORE", "if i % 100 == 0: print(i)")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"


def test_labels_are_not_gathered_to_count_rows_for_a_bar() -> None:
    text = (
        SCRIPT.replace("    bar = tqdm(total=len(train))\n", "")
        .replace("DEVICE", '"cpu"')
        .replace("        ", "            ")
    )
    text = text.replace("    for i,", "    with tqdm(total=len(train)) as bar:\n        for i,")
    text = text.replace("MORE", "bar.update(len(x))")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after and b"gather" not in file.after
    assert [t.name for t in file.traits if t.kind == "bar"] == ["len(train)"]


@pytest.mark.parametrize(
    ("start", "kind"),
    [(", 0", "interval"), (", start=0", "interval"), (", 1", "cadence"), (", start=first", "cadence")],
)
def test_where_the_numbers_of_the_batches_start(start: str, kind: str) -> None:
    """Zero that is written out was no zero: code that runs at each first batch was said perhaps never to run."""
    text = SCRIPT.replace("enumerate(loader)", f"enumerate(loader{start})").replace("DEVICE", '"cpu"')
    text = text.replace("MORE", "if i % 100 == 0:\n            print(i)")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [t.kind for t in file.traits if t.kind in KINDS] == [kind]


@pytest.mark.parametrize(
    ("told", "bars"),
    [("len(x)", []), ("x.size(0)", []), ("x.shape[0]", []), ("len(y)", []), ("n", ["len(train)"])],
)
def test_a_bar_that_is_told_of_gathered_rows_counts_those_of_all(told: str, bars: list[str]) -> None:
    """What the script counts its rows with is gathered for the average of the epoch, before the bar is told of it."""
    text = SCRIPT.replace("DEVICE", '"cpu"').replace("    bar = tqdm(", "    total, rows = 0.0, 0\n    bar = tqdm(")
    text = text.replace("        loss.backward()", "        n = len(x)\n        loss.backward()")
    text = text.replace("MORE", f"meter.update(loss.item(), len(x))\n        bar.update({told})")
    meter = (
        "class Meter:\n    def __init__(self):\n        self.sum, self.count, self.avg = 0, 0, 0\n\n"
        "    def update(self, value, n=1):\n        self.sum += value * n\n        self.count += n\n"
        "        self.avg = self.sum / self.count\n\n\n"
    )
    text = text.replace("device = ", f"{meter}device = ", 1).replace(
        "    bar = tqdm(", "    meter = Meter()\n    bar = tqdm("
    )
    text += "    print(meter.avg)\n"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.gather_for_metrics(" in file.after
    assert [t.name for t in file.traits if t.kind == "bar"] == bars


def test_patience_in_steps_ends_a_function() -> None:
    inner = SCRIPT.partition("model = ")[2].partition("MORE")[0]
    text = SCRIPT.partition("model = ")[0] + "def fit(most):\n    model = " + inner.replace("\n", "\n    ")
    text = (text + "if step - best >= most:\n                return best\n\nfit(9)\n").replace("DEVICE", '"cpu"')
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after
    assert [t.name for t in file.traits if t.kind == "limit"] == ["step - best >= most"]


def test_steps_that_each_epoch_counts_anew_end_with_it() -> None:
    """Of a counter that goes on it was said that code may never run, if an epoch has fewer steps."""
    text = SCRIPT.replace("    bar = tqdm(total=len(train))", "    step = 0").replace("DEVICE", '"cpu"')
    text = text.replace("MORE", "if not step % every:\n            print(i)")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [t.kind for t in file.traits if t.kind in KINDS] == ["cadence"]


LIMITED = {
    "a slice": ("islice(loader, most)", ["islice(loader, most)"]),
    "a slice in a bar": ("tqdm(islice(loader, 0, most))", ["islice(loader, 0, most)"]),
    "numbers beside": ("zip(range(most), loader)", ["range(most)"]),
    "half of them": ("islice(loader, len(loader) // 2)", []),
    "all but the first": ("islice(loader, 3, None)", []),
    "every number": ("zip(range(len(loader)), loader)", []),
    "every number but the first": ("zip(range(1, len(loader)), loader)", []),
    "from a number to one": ("zip(range(first, most), loader)", ["range(first, most)"]),
}


@pytest.mark.parametrize(("source", "limits"), LIMITED.values(), ids=LIMITED)
def test_what_ends_a_loop_before_its_loader(source: str, limits: list[str]) -> None:
    """A limit that is no `break` was not named: N processes went through N times as many batches."""
    text = SCRIPT.replace("for i, (x, y) in enumerate(loader)", f"for batch in {source}").replace("MORE", "")
    text = text.replace("        x, y = x", "        x, y = batch[1] if most else batch\n        x, y = x")
    text = text.replace("from tqdm", "from itertools import islice\nfrom tqdm").replace("DEVICE", '"cpu"')
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after
    assert [t.name for t in file.traits if t.kind == "limit"] == limits


FETCHER = """\
class Fetcher:
    def __init__(self, loader):
        self.batches = iter(loader)

    def next(self):
        return next(self.batches, None)


"""


def test_epochs_around_a_loop_that_fetches_all_batches_are_no_limit() -> None:
    text = SCRIPT.replace("DEVICE", DEVICE).replace("model =", f"{FETCHER}model =", 1)
    head, _, body = text.partition("    for i, (x, y) in enumerate(loader):\n")
    begun = "    fetcher = Fetcher(loader)\n    batch = fetcher.next()\n"
    loop = f"{begun}    while batch is not None:\n        x, y = batch\n"
    body = body.replace("step += 1\n        MORE", "batch = fetcher.next()")
    (file,) = migrate([decode(f"{head}{loop}{body}".encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after
    assert not any(trait.kind == "limit" for trait in file.traits)
