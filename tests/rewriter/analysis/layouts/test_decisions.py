"""What is decided on values that each process has of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]


def test_a_rate_that_nobody_sets(trained: Trained) -> None:
    """The function is never called: what it would set the learning rate to stops nothing."""
    unused = 'def unused():\n    for g in optimizer.param_groups:\n        g["lr"] = model(x).mean().item()'
    text, findings = trained(built=unused, epoch='for g in optimizer.param_groups:\n    g["lr"] = 0.1 * loss.item()')
    assert 'g["lr"] = 0.1 * accelerator.reduce(loss.detach(), reduction="mean").item()' in text
    assert findings == []


@pytest.mark.parametrize(
    "update",
    ["update(lr=0.1 * loss.item())", 'update({"lr": 0.1 * loss.item()})', "update(dict(lr=0.1 * loss.item()))"],
)
def test_a_rate_that_is_set_with_others(trained: Trained, update: str) -> None:
    """`group["lr"] = ...` was seen, and the same in another spelling was not: the models drifted apart."""
    text, findings = trained(epoch=f"optimizer.param_groups[0].{update}")
    assert 'accelerator.reduce(loss.detach(), reduction="mean").item()' in text
    assert findings == []


@pytest.mark.parametrize("sets", ['group |= {"lr": 0.1 * loss.item()}', 'group.__setitem__("lr", 0.1 * loss.item())'])
def test_a_rate_that_is_set_by_an_operator(trained: Trained, sets: str) -> None:
    text, findings = trained(epoch=f"for group in optimizer.param_groups:\n    {sets}")
    assert 'accelerator.reduce(loss.detach(), reduction="mean").item()' in text
    assert findings == []


def test_a_long_condition_names_its_variables() -> None:
    """It "depends on a value": which one, nobody could tell."""
    text = SKIPPING.replace("SKIPPED", 'not batch or "label" not in batch or batch["label"].max().item() == 0')
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (told,) = [each.message for each in file.diagnoses if each.id == "local-decision"]
    assert told.startswith(
        "an expression of `batch` is about the batch of one process: where it is true on one of them"
    )


SKIPPING = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(rows, batch_size=4):
    if SKIPPED:
        continue
    loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

METER = """\
import numpy as np
import torch
from torch.utils.data import DataLoader

class Meter:
    def __init__(self):
        self.total = np.zeros(2)

    def add_batch(self, labels, chosen):
        self.total += np.bincount(labels, minlength=2)

    def score(self):
        return self.total[0] / self.total.sum()

class Trainer:
    def __init__(self):
        self.loader = DataLoader(rows, batch_size=4)
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.meter = Meter()
        self.best = 0.0

    def train(self):
        for x, y in self.loader:
            scores = self.model(x)
            loss = torch.nn.functional.cross_entropy(scores, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.meter.add_batch(y.numpy(), scores.argmax(1).numpy())
        score = self.meter.score()
        if score > self.best:
            self.best = score
            torch.save(self.model.state_dict(), "best.pt")
            self.optimizer.param_groups[0]["lr"] *= 0.5

Trainer().train()
"""


def test_a_meter_of_rows_that_are_not_gathered_decides_nothing() -> None:
    """A learning rate that one process halves and another does not lets their models drift apart."""
    (file,) = migrate([decode(METER.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert not file.changed and [d.id for d in file.diagnoses] == ["local-decision"]
    said = file.diagnoses[0].message
    assert said.startswith("whether the learning rate changes here depends on `score > self.best`"), said
    assert "would hang" not in said, "no process waits for another at that line"


NAMED = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    figures = {{"entropy": loss.item()}}
    {more}
    return figures


for x, y in DataLoader(rows, batch_size=4):
    figures = step(x, y)
    if "entropy" in figures:
        torch.save(model.state_dict(), "last.pt")
"""


def test_the_keys_of_a_dict_are_the_same_whatever_its_values_are() -> None:
    """Not where one is set under a condition that reads them."""
    for more, told in (("pass", []), ('if loss < 1:\n        figures["entropy"] = 0.0', ["local-decision"])):
        (file,) = migrate([decode(NAMED.format(more=more).encode(), Path("train.py"))], CATALOGUE, Config()).files
        assert [d.id for d in file.diagnoses if d.id == "local-decision"] == told


def test_rows_that_were_chosen_are_not_as_many_everywhere(trained: Trained) -> None:
    """A short last batch is filled up; what a mask leaves of it is each process's own number."""
    loss = "loss = torch.nn.functional.cross_entropy(model(x), y)"
    for chosen, alike in (("x, y = x[y > 0], y[y > 0]", False), ("x, y = x[:, :4], y", True)):
        text, findings = trained(loss=f"{chosen}\nif len(x) < 4:\n    continue\n{loss}")
        assert ("if len(x) < 4:" in text) is alike and "local-decision" in findings


LEFT_OUT = (
    "rows = y > 0\nif {asked}:\n    {done}continue\nloss = torch.nn.functional.cross_entropy(model(x)[rows], y[rows])"
)


@pytest.mark.parametrize("asked", ["not rows.any()", "rows.sum() == 0", "y[rows].numel() == 0", "len(y[rows]) < 2"])
def test_a_step_that_is_left_out_by_its_batch_is_left_out_by_all(asked: str, trained: Trained) -> None:
    """One process alone would pass it over, and the others wait for it. Where the rows of all were counted, the mean
    of a process that had none was NaN."""
    text, findings = trained(loss=LEFT_OUT.format(asked=asked, done="left += 1\n    "), built="left = 0")
    together = f'accelerator.reduce(torch.tensor(bool({asked}), dtype=torch.float64), reduction="sum").item()'
    assert f"if {together}:" in text
    assert "local-decision" in findings


@pytest.mark.parametrize(
    ("loss", "config"),
    [
        (LEFT_OUT.format(asked="not rows.any()", done="").replace("continue", "break"), Config()),
        (LEFT_OUT.format(asked="not rows.any()", done="optimizer.step()\n    "), Config()),
        (LEFT_OUT.format(asked="not rows.any()", done=""), Config(keep_global_batch=True)),
    ],
    ids=["the loop ends", "all would step there", "each has a part of the batch"],
)
def test_other_decisions_by_a_batch_are_refused(loss: str, config: Config, trained: Trained) -> None:
    text, findings = trained(loss=loss, config=config)
    assert "Accelerator" not in text and "local-decision" in findings


def test_a_number_of_rows_that_is_unpacked_is_one(trained: Trained) -> None:
    """A prepared loader gives all processes as many rows: the batch that was left out is filled up, and trained on."""
    loss = "loss = torch.nn.functional.cross_entropy(model(x), y)"
    for count in ("rows, width = x.shape", "rows, width = x.size()", "rows = x.shape[0]"):
        text, findings = trained(loss=f"{count}\nif rows < 4:\n    continue\n{loss}")
        assert "Accelerator" in text and findings == ["local-decision"]


CLOCK = "import time\nstart = time.time()\ndef late():\n    return time.time() - start > 60\n"


def test_the_main_process_looks_at_the_clock_for_all(trained: Trained) -> None:
    """One process would take a step more than another, and wait for it."""
    for asked in ("time.time() - start > 60", "late()", "epoch > 1 and late()", "torch.cuda.memory_allocated() > 9"):
        text, findings = trained(built=CLOCK, step=f"if {asked}:\n    break")
        assert f"        if broadcast_object_list([{asked}])[0]:\n            break\n" in text and findings == []


def test_what_the_clock_decides_for_one_process(trained: Trained) -> None:
    for done in ("print(loss.item())", "start = time.time()", "torch.cuda.empty_cache()"):
        assert "broadcast_object_list" not in trained(built=CLOCK, step=f"if late():\n    {done}")[0]


HITS = ("(model(x).argmax(1) == y).float().mean()", "mean")


@pytest.mark.parametrize(
    ("condition", "figures"),
    [
        ("{} > 0.9", [HITS]),
        ("{} < 4", [("(rows > rows.median()).sum()", "sum")]),
        ("{}.item() < 4", [("keep.sum()", "sum")]),
        ("{} > 3 or {} > 9", [("rows.mean()", "mean"), ("loss", "mean")]),
    ],
)
def test_a_figure_of_rows_is_that_of_all(condition: str, figures: list[tuple[str, str]], trained: Trained) -> None:
    """What was reduced was the mask itself, as if it were a loss: a migrated script ended in its first step."""
    rows = "rows = torch.nn.functional.cross_entropy(model(x), y, reduction='none')\nkeep = rows > rows.median()"
    script = condition.format(*(what for what, _ in figures))
    text, findings = trained(loss=f"{rows}\nloss = rows.mean()", step=f"if {script}:\n    break")
    joined = (f'accelerator.reduce({what}.detach(), reduction="{how}")' for what, how in figures)
    assert f"if {condition.format(*joined)}:" in text and findings == []


@pytest.mark.parametrize("condition", ["loss > 9 and len(kept) > 4", "not keep.any()", "len(rows[keep]) == 0"])
def test_a_decision_on_what_is_no_figure_of_all_is_none(condition: str, trained: Trained) -> None:
    """The loss alone was reduced, and the list beside it taken for one of all processes."""
    rows = "rows = torch.nn.functional.cross_entropy(model(x), y, reduction='none')\nkeep = rows > rows.median()"
    step = f"kept.extend(x[keep])\nif {condition}:\n    break"
    text, findings = trained(built="kept = []", loss=f"{rows}\nloss = rows.mean()", step=step)
    assert "local-decision" in findings and "import Accelerator" not in text


def test_the_clock_is_not_asked_where_not_all_come(trained: Trained) -> None:
    text, findings = trained(built=CLOCK, step="if time.time() - start > 9:\n    if late():\n        break")
    assert text.count("if broadcast_object_list([") == 2 and findings == []
    text, findings = trained(built=CLOCK, step="if y.max() > 3:\n    if late():\n        break")
    assert findings == ["local-decision", "local-decision"] and "broadcast_object_list" not in text


def test_the_type_of_what_a_model_gives_is_the_same_everywhere(trained: Trained) -> None:
    """It was told that each process computes `isinstance(out, dict)` from its own rows."""
    for asked in ("isinstance(out, dict)", "hasattr(out, 'scores')", "torch.is_tensor(out)", "type(out) is tuple"):
        choice = f"    loss = out['loss']\nelse:\n{' ' * 4}loss = torch.nn.functional.cross_entropy(out, y)"
        _, findings = trained(loss=f"out = model(x)\nif {asked}:\n{choice}", epoch="print(epoch)")
        assert "local-decision" not in findings
    choice = "    loss = out.mean()\nelse:\n    loss = torch.nn.functional.cross_entropy(out, y)"
    _, findings = trained(loss=f"out = model(x)\nif out.max() > 3:\n{choice}", epoch="print(epoch)")
    assert "local-decision" in findings


def test_a_time_that_one_option_has_is_not_in_the_others(trained: Trained) -> None:
    top = "import argparse\nimport time\nparser = argparse.ArgumentParser()\n"
    top += "parser.add_argument('--folder', default=str(time.time()))\nparser.add_argument('--once', default=False)\n"
    text, findings = trained(built=f"{top}args = parser.parse_args()", step="if args.once:\n    break")
    assert "if args.once:" in text and findings == []


@pytest.mark.parametrize(
    "step",
    [
        "while step(x, y) > 0.5:\n    pass",
        "while (value := step(x, y)) > 0.5:\n    pass",
        "value = step(x, y)\nvalue > 0.5 and step(x, y)",
        "value = step(x, y)\nstep(x, y) if value > 0.5 else None",
        "[step(x, y) for _ in range(int(y.sum()))]",
        "match step(x, y) > 0.5:\n    case True:\n        step(x, y)",
    ],
)
def test_a_step_that_is_taken_in_an_expression(trained: Trained, step: str) -> None:
    """By a value of one process's own: in the condition of a loop, after `and`, in a comprehension."""
    assert trained(built=STEP, step=step)[1] == ["local-decision"]


STEP = """\
def step(x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("while (loss := loss / 2) > 9", 'while {reduce}((loss := loss / 2).detach(), reduction="mean") > 9'),
        ("if (value := loss.item()) > 9", 'if (value := {reduce}(loss.detach(), reduction="mean").item()) > 9'),
        (
            "if not torch.isfinite(loss := loss / 2)",
            'if not torch.isfinite({reduce}((loss := loss / 2).detach(), reduction="mean"))',
        ),
    ],
)
def test_a_loss_that_is_named_in_the_condition(trained: Trained, before: str, after: str) -> None:
    text, findings = trained(built=STEP, loss=LOSS + f"\n{before}:\n    step(x, y)")
    assert after.format(reduce="accelerator.reduce") in text and findings == []


LOSS = "loss = torch.nn.functional.cross_entropy(model(x), y)"
ENDLESS = """\
import torch
from itertools import repeat
from torch.utils.data import DataLoader

def endless(loader):
    for each in repeat(loader):
        yield from each

class Trainer:
    def __init__(self, model, loader, steps=None):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if steps is None:
            self.steps = len(self.loader)
        else:
            self.loader, self.steps = endless(loader), steps

    def run(self):
        for number, (x, y) in enumerate(self.loader):
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if number == self.steps:
                break

Trainer(torch.nn.Linear(8, 1), DataLoader(load(), batch_size=4), 9).run()
"""


def test_how_many_batches_a_loader_has_is_the_same_everywhere() -> None:
    """Also where the same attribute may hold a generator of its batches, which has no length."""
    (file,) = migrate([decode(ENDLESS.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.changed and "local-decision" not in {found.id for found in file.diagnoses}


LEAST = """\
import math
import numpy as np
import sys
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
least = FIRST
for step, (x, y) in enumerate(DataLoader(rows, batch_size=4)):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 3:
        least = loss
    if step > 3 and loss < least:
        least = loss
        torch.save(model.state_dict(), "best.pt")
"""


@pytest.mark.parametrize("first", ["0", "1e9", 'float("inf")', "math.inf", "-np.inf", "sys.maxsize"])
def test_a_least_loss_that_begins_as_a_number_is_averaged_where_it_is_kept(first: str) -> None:
    """A number has no `detach()`: the script would stop at the first comparison."""
    (file,) = migrate([decode(LEAST.replace("FIRST", first).encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert text.count('mean_loss = accelerator.reduce(loss.detach(), reduction="mean")\n') == 1
    assert text.count("least = mean_loss") == 2 and "if step > 3 and mean_loss < least:" in text
    assert "least.detach()" not in text and not file.diagnoses


WAITING = """\
import math
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self):
        self.loader = DataLoader(rows, batch_size=4)
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.least, self.waited = math.inf, 0

    def train(self):
        for x, y in self.loader:
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if loss.item() < self.least:
                self.least = KEPT
                self.waited = 0
            else:
                self.waited += 1
            if self.waited > 3:
                break

Trainer().train()
"""


def test_a_least_loss_that_an_object_keeps_is_averaged_too() -> None:
    """Else each process compares the mean with a least loss of its own, and one leaves the loop before the others."""
    script = WAITING.replace("KEPT", "loss.item()")
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
    mean = 'mean_loss = self.accelerator.reduce(loss.detach(), reduction="mean")\n            if mean_loss.item() < '
    assert f"{mean}self.least:\n                self.least = mean_loss.item()\n" in file.after.decode()
    assert not file.diagnoses


def test_what_an_object_keeps_of_the_rows_alone_cannot_be_averaged() -> None:
    script = WAITING.replace("KEPT", "x.unique().numel()")
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert not file.changed and "local-decision" in [d.id for d in file.diagnoses]


@pytest.mark.parametrize("more", ["loss += part", "loss = loss + part"])
def test_a_number_to_which_losses_are_added_is_a_loss(more: str, trained: Trained) -> None:
    part = "part = torch.nn.functional.cross_entropy(model(x) * scale, y)"
    added = f"loss = 0\nfor scale in (1, 2):\n    {part}\n    {more}"
    text, findings = trained(loss=added, step="if loss > 9:\n    break")
    assert 'if accelerator.reduce(loss.detach(), reduction="mean") > 9:' in text and findings == []


KEEPERS = {
    "an attribute that is set from outside": ("state = State()\nstate.least = 9.0", "state.least", "state.least = {}"),
    "what a method is given": ("state = State()", "state.least", "state.note({})"),
}


@pytest.mark.parametrize(("made", "read", "kept"), KEEPERS.values(), ids=KEEPERS)
def test_a_least_loss_in_another_object_is_averaged_where_it_is_given(
    made: str, read: str, kept: str, trained: Trained
) -> None:
    """One process counted to its limit before the others, which waited for it."""
    top = "class State:\n    least = 9.0\n    def note(self, value):\n        self.least = value"
    step = f"if loss.item() < {read}:\n    {kept.format('loss.item()')}\n    waited = 0\nelse:\n    waited += 1"
    text, findings = trained(top=top, built=f"{made}\nwaited = 0", step=step, epoch="if waited > 3:\n    break")
    mean = 'accelerator.reduce(loss.detach(), reduction="mean")'
    shared = f"if mean_loss.item() < {read}:\n            {kept.format('mean_loss.item()')}\n"
    assert f"mean_loss = {mean}\n" in text and shared in text and findings == []


BESTS = {
    "set anew in each epoch": ("for _ in range(3):\n    best = 9.0", "loss.item()"),
    "set with another": ("best, last = 9.0, 0.0\nfor _ in range(3):\n    pass", "loss.item()"),
    "a tensor later": ("best, last = 9.0, 0.0\nfor _ in range(3):\n    pass", "loss"),
    "raised by a number": ("best = 9.0\nfor _ in range(3):\n    best += 1", "loss"),
}


@pytest.mark.parametrize(("start", "kept"), BESTS.values(), ids=BESTS)
def test_a_least_loss_that_begins_as_a_number(start: str, kept: str) -> None:
    """The loss that was kept stayed each process's own, or the number was asked for its gradient."""
    text = BEST.format(start=start.replace("\n", "\n    "), kept=kept)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    after, mean = file.after.decode(), 'accelerator.reduce(loss.detach(), reduction="mean")'
    once = after.replace(f"mean_loss = {mean}\n", "").replace("mean_loss", mean)
    assert f"if {mean} < best:\n" in once and f"best = {kept.replace('loss', mean)}\n" in once
    assert not file.diagnoses


BEST = """\
import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def run():
    {start}
        for x, y in DataLoader(rows, batch_size=4):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if loss < best:
                best = {kept}
                torch.save(model.state_dict(), "model.pt")


run()
"""
