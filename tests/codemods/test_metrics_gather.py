"""The rule `metrics_gather`: metrics of the whole data set."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent
from typing import Any

import pytest

from torchlift.rewriter.result import FileResult

Lines = Callable[..., tuple[list[str], list[str], list[str]]]


def evaluation(*body: str, head: str = "for x, y in test_loader:") -> str:
    return f"{head}\n" + indent("\n".join(body), "    ")


NOOPS: dict[str, dict[str, Any]] = {
    "outputs that nothing is computed from": {"end": evaluation("model(x)")},
    "a loss printed now and then is that of the process": {"step": "last = loss.item()"},
    "a loop over something else": {"end": evaluation("total += x", head="for x in range(3):")},
    "a loop that does not call the model": {"end": evaluation("rows += len(x)")},
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    assert not any("gather" in line or "reduce" in line for line in lines(**parts)[1])


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop(
        """
        import torch
        from torch.utils.data import DataLoader
        model = torch.nn.Linear(2, 2)
        right = 0
        for x, y in DataLoader(data, batch_size=10):
            right += (model(x).argmax(1) == y).sum().item()
        print(right)
        """
    )


GATHERS: dict[str, tuple[list[str], list[str]]] = {
    "output and target": (
        ["scores = model(x)", "right += (scores.argmax(1) == y).sum().item()"],
        ["    scores, y = accelerator.gather_for_metrics((scores, y))"],
    ),
    "only what is read later": (
        ["scores = model(x)", "total += scores.sum().item()"],
        ["    scores = accelerator.gather_for_metrics(scores)"],
    ),
    "the inputs, where they are read": (
        ["scores = model(x)", "total += (scores - x).abs().sum().item()"],
        ["    scores, x = accelerator.gather_for_metrics((scores, x))"],
    ),
    "a function of the rows around the forward": (
        ["scores = torch.sigmoid(model(x))", "seen.extend(scores.tolist())", "told.extend(y.tolist())"],
        ["    scores, y = accelerator.gather_for_metrics((scores, y))"],
    ),
    "two functions of the rows around it": (
        ["best = torch.argmax(torch.softmax(model(x), dim=1), dim=1)", "right += (best == y).sum().item()"],
        ["    best, y = accelerator.gather_for_metrics((best, y))"],
    ),
    "a list of predictions": (
        ["scores = model(x)", "seen.extend(scores.tolist())"],
        ["    scores = accelerator.gather_for_metrics(scores)"],
    ),
}


@pytest.mark.parametrize(("body", "come"), GATHERS.values(), ids=GATHERS)
def test_gathered_behind_the_forward_pass(body: list[str], come: list[str], lines: Lines) -> None:
    assert lines(end=evaluation(*body)) == ([], come, [])


EARLY: dict[str, tuple[list[str], str]] = {
    "the rows of the labels": (["total += y.size(0)"], "    total += accelerator.gather_for_metrics(y).size(0)"),
    "the rows of the labels, by their length": (
        ["total += len(y)"],
        "    total += len(accelerator.gather_for_metrics(y))",
    ),
    "those of the inputs": (["total += x.shape[0]"], "    total += accelerator.gather_for_metrics(x).shape[0]"),
    "a set of the labels": (
        ["labels.update(y.unique().tolist())"],
        "    labels.update(accelerator.gather_for_metrics(y).unique().tolist())",
    ),
    "a list of them": (["told.extend(y.tolist())"], "    told.extend(accelerator.gather_for_metrics(y).tolist())"),
    "a sum over the inputs": (
        ["total += x.abs().sum().item()"],
        "    total += accelerator.gather_for_metrics(x).abs().sum().item()",
    ),
}


@pytest.mark.parametrize(("body", "line"), EARLY.values(), ids=EARLY)
def test_rows_that_are_counted_before_the_forward_pass_are_those_of_all_processes(
    body: list[str], line: str, lines: Lines
) -> None:
    gathered = "    scores, y = accelerator.gather_for_metrics((scores, y))"
    gone, come, findings = lines(
        end="total, labels = 0, set()\n"
        + evaluation(*body, "scores = model(x)", "right += (scores.argmax(1) == y).sum().item()")
    )
    assert (gone, come, findings) == ([f"    {body[0]}"], [line, gathered], [])


def test_labels_are_counted_in_place_of_inputs_that_are_larger(lines: Lines) -> None:
    loss = "loss_sum += torch.nn.functional.cross_entropy(scores, y).item()"
    _, come, _ = lines(end="total, loss_sum = 0, 0.0\n" + evaluation("total += x.size(0)", "scores = model(x)", loss))
    assert come[0] == "    total += accelerator.gather_for_metrics(y).size(0)"


def test_gathered_behind_a_with_that_holds_only_the_forward_pass(lines: Lines) -> None:
    body = ["with torch.no_grad():", "    scores = model(x)", "right += (scores.argmax(1) == y).sum().item()"]
    _, come, _ = lines(end=evaluation(*body))
    assert come == ["    scores, y = accelerator.gather_for_metrics((scores, y))"]


def test_a_sum_of_training_losses_is_averaged_over_the_processes(lines: Lines) -> None:
    gone, come, findings = lines(top="total = 0.0", step="total += loss.item()", epoch="history = total / len(loader)")
    assert gone == ["        total += loss.item()"]
    assert come == ['        total += accelerator.reduce(loss.detach(), reduction="mean").item()']
    assert findings == []


REDUCED = 'accelerator.reduce(loss.detach(), reduction="mean").item()'

TOTALS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an entry of a dict": (
        {"top": "sums = {}", "step": 'sums["loss"] += loss.item()', "epoch": 'print(sums["loss"])'},
        [f'        sums["loss"] += {REDUCED}'],
    ),
    "an attribute": (
        {"top": "self = Namespace()", "step": "self.total += loss.item()", "epoch": "print(self.total)"},
        [f"        self.total += {REDUCED}"],
    ),
    "a list in an attribute": (
        {"top": "self = Namespace()", "step": "self.losses.append(loss.item())", "epoch": "print(self.losses)"},
        [f"        self.losses.append({REDUCED})"],
    ),
    "a list that has another name": (
        {"top": "one, two = [], []\nfor seen in (one, two): pass", "step": "seen.append(loss.item())"},
        [f"        seen.append({REDUCED})"],
    ),
    "a sum that is written out": (
        {"top": "total = 0.0", "step": "total = total + loss.item()", "epoch": "print(total)"},
        [f"        total = total + {REDUCED}".replace("mean", "sum_of_means")],
    ),
}


@pytest.mark.parametrize(("parts", "come"), TOTALS.values(), ids=TOTALS)
def test_a_total_of_training_is_kept_in(parts: dict[str, Any], come: list[str], lines: Lines) -> None:
    _, found, findings = lines(**parts)
    assert [line for line in found if "reduce" in line] == come
    assert findings == (["filled-batch"] if 'reduction="sum"' in "".join(come) else [])


def test_a_figure_by_way_of_two_numbers_is_of_the_rows_of_all_processes(migrated: Callable[[str], str]) -> None:
    """Hits of one process, divided by the rows of all, are 1/N of the accuracy."""
    text = migrated("""\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = rows = 0
for x, y in loader:
    scores = model(x)
    loss = torch.nn.functional.cross_entropy(scores, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hits = (scores.argmax(1) == y).sum().item()
    accuracy = hits / y.size(0)
    total += accuracy * y.size(0)
    rows += y.size(0)
print(total / rows)
""")
    gather = text.index("gather_for_metrics((")
    assert text.index("optimizer.step()") < gather < text.index("hits = ")
    assert set(text[gather:].split("((")[1].split("))")[0].split(", ")) == {"scores", "y"}


def test_an_attribute_that_nothing_reads_is_left_alone(lines: Lines) -> None:
    _, come, _ = lines(top="self = Namespace()", step="self.total += loss.item()")
    assert not any("reduce" in line for line in come)


METER = """\
import torch
from torch.utils.data import DataLoader


def accuracy(output, y):
    return (output.argmax(1) == y).float().mean().item()


class Meter:
    def update(self, value, count=1):
        self.history.append(value)


class Trainer:
    def __init__(self, model, loader, optimizer):
        self.model, self.loader, self.optimizer = model, loader, optimizer
        self.losses = Meter()
        self.total = 0.0

    def train(self, metrics):
        for x, y in self.loader:
            output = self.model(x)
            loss = torch.nn.functional.cross_entropy(output, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            {collects}
        return {result}


model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Trainer(model, DataLoader(data, 4), optimizer).train([accuracy])
"""
METERS = {
    "an object of self": (
        "self.losses.update(loss.item())", "self.losses.history",
        'self.losses.update(accelerator.reduce(loss.detach(), reduction="mean").item())',
    ),
    "a number of self": (
        "self.total += loss.item()", "self.total",
        'self.total += accelerator.reduce(loss.detach(), reduction="mean").item()',
    ),
    "metrics in a loop of their own": (
        "for metric in metrics: self.losses.update(metric(output, y))", "self.losses",
        "output, y = accelerator.gather_for_metrics((output, y))\n            for metric in metrics:",
    ),
    "what nobody reads behind the loop": (
        "self.losses.update(loss.item())", "None", "self.losses.update(loss.item())",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("collects", "result", "after"), METERS.values(), ids=METERS)
def test_totals_that_an_object_keeps(collects: str, result: str, after: str, migrated: Callable[[str], str]) -> None:
    text = METER.replace("{collects}", collects).replace("{result}", result)
    assert f"            {after}" in migrated(text)


def test_an_evaluation_stays_whole_where_a_schedule_needs_a_figure_that_cannot_be_gathered(
    result: Callable[..., FileResult],
) -> None:
    """U29: slower, and right: every process evaluates all of it, and has the same score."""
    file = result(
        """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

def dice(out, y):
    return 2 * (out * y).sum() / (out.sum() + y.sum())

def evaluate(net, batches):
    total = 0
    for batch in batches:
        x, y = batch["x"], batch["y"]
        out = net(x)
        if net.classes == 1:
            total += dice((F.sigmoid(out) > 0.5).float(), y)
        else:
            y = F.one_hot(y, net.classes)
            total += dice(F.one_hot(out.argmax(1), net.classes).float(), y) * batch["sure"].mean()
    return total / len(batches)

net = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
test_loader = DataLoader(test_data, batch_size=32)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max")
for epoch in range(3):
    for batch in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(net(batch["x"]), batch["y"])
        loss.backward()
        optimizer.step()
    scheduler.step(evaluate(net, test_loader))
"""
    )
    assert b"net, optimizer, loader = accelerator.prepare(" in file.after
    assert b"gather_for_metrics" not in file.after
    found = {d.id: d.message for d in file.diagnoses}
    assert "every process evaluates the whole set" in found["prepare"]
    assert b"        batch = send_to_device(batch, accelerator.device)\n" in file.after
    assert "local-decision" not in found
