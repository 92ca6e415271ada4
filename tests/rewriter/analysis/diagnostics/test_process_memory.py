"""What a process remembers of its own rows is told; what it collects to be looked at later is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

BUFFER = """\
import random

class Buffer:
    def __init__(self):
        self.rows = []

    def exchange(self, new):
        out = []
        for row in new.detach():
            {keep}
            out.append({take})
        return torch.stack(out)

buffer = Buffer()
"""
LOSS = "loss = torch.nn.functional.cross_entropy(buffer.exchange(model(x)) + model(x), y)"


@pytest.mark.hazard("X25")
@pytest.mark.parametrize(
    ("keep", "take"),
    [
        ("self.rows.append(row)", "self.rows[0]"),
        ("self.rows[0] = row", "self.rows[-1].clone()"),
        ("self.rows.append(row)", "random.choice(self.rows)"),
        ("self.rows[0] = 0.9 * self.rows[0] + row", "sum(self.rows)"),
    ],
    ids=["by an index", "in place", "at random", "a mean that moves"],
)
def test_a_buffer_of_earlier_rows(keep: str, take: str, trained: Trained) -> None:
    _, findings = trained(top=BUFFER.format(keep=keep, take=take), loss=LOSS)
    assert "process-memory" in findings


@pytest.mark.parametrize(
    ("keep", "take"),
    [("self.rows.append(row)", "row"), ("self.rows.append(row.sum().item())", "row * self.rows[-1]")],
    ids=["never read", "numbers"],
)
def test_no_buffer_of_rows(keep: str, take: str, trained: Trained) -> None:
    _, findings = trained(top=BUFFER.format(keep=keep, take=take), loss=LOSS)
    assert "process-memory" not in findings


METER = """\
class Meter:
    def __init__(self):
        self.sums = {{}}
        self.seen = 0

    def update(self, figures):
        self.seen += 1
        for name, value in figures.items():
            if name in self.sums:
                {add}
            else:
                self.sums[name] = value

    def mean(self, name):
        return {mean}

meter = Meter()
"""
UPDATE = "meter.update({{'loss': {value}}})\nprint(meter.mean('loss'))"


@pytest.mark.parametrize(
    ("add", "mean", "value"),
    [
        ("self.sums[name] += value", "next(iter(self.sums.values())) / self.seen", "out.detach()"),
        ("self.sums[name] = self.sums[name] + value", "max(self.sums.values())", "out.detach()"),
        ("self.sums[name] += value", "self.sums[name] / self.seen", "loss.detach()"),
    ],
    ids=["added to", "added to, spelled out", "a loss, read by its name"],
)
def test_a_meter_is_no_memory(add: str, mean: str, value: str, trained: Trained) -> None:
    loss = "out = model(x)\nloss = torch.nn.functional.cross_entropy(out, y)"
    _, findings = trained(top=METER.format(add=add, mean=mean), loss=loss, step=UPDATE.format(value=value))
    assert "process-memory" not in findings


EACH = "torch.nn.functional.cross_entropy(out, y.argmax(1), reduction='none').detach().cpu()"
SEEN = "out = model(x)\n{made}loss = torch.nn.functional.cross_entropy(out, y.argmax(dim=1))"


@pytest.mark.hazard("X25")
@pytest.mark.parametrize(
    ("built", "made", "kept"),
    [
        ("y = None", "y = torch.cat((1 - y, y), 1)\n", False),
        ("y = torch.zeros(4, 2)", "y[:, 0] = out[:, 0].detach()\n", False),
        ("rows = torch.zeros(0, 2)", "rows = torch.cat((rows, out.detach()))\n", True),
        ("rows = torch.zeros(4, 2)", "rows[:2] = out[:2].detach()\n", True),
        ("rows = torch.zeros(9)", f"rows[y[:, 0]] = 0.5 * rows[y[:, 0]] + {EACH}\n", True),
        ("rows = torch.zeros(9)", f"rows[epoch] = {EACH}.mean()\n", False),
        ("rows = torch.zeros(0, 2)", "rows = torch.zeros(0, 2)\nrows = torch.cat((rows, out.detach()))\n", False),
    ],
    ids=[
        "of the batch",
        "into the batch",
        "joined",
        "in place",
        "a loss for each row",
        "one for an epoch",
        "made anew in each turn",
    ],
)
def test_what_each_turn_binds_anew_is_no_memory(built: str, made: str, kept: bool, trained: Trained) -> None:
    _, findings = trained(built=built, loss=SEEN.format(made=made))
    assert ("process-memory" in findings) == kept


@pytest.mark.parametrize(
    ("imports", "call", "told"),
    [
        ("import torch.quantization as tq", "tq.prepare_qat(model, inplace=True)", True),
        ("from torch.ao.quantization import prepare", "prepare(model, inplace=True)", True),
        ("from torch.ao.quantization.quantize_fx import prepare_fx", "prepare_fx(model, None, None)", True),
        ("import torch.ao.quantization as tq", "tq.convert(model)", False),
    ],
)
def test_observers_collect_the_ranges_of_one_shard(imports: str, call: str, told: bool, trained: Trained) -> None:
    _, findings = trained(top=imports, built=call)
    assert ("process-memory" in findings) == told


CENTRES = "centres = torch.zeros(2, 2)"


@pytest.mark.parametrize(
    ("loss", "step", "told"),
    [
        ("out = model(x)\nloss = (out - y).square().mean()", "centres[y] += 0.1 * (out.detach() - centres[y])", True),
        ("out = model(x)\nloss = torch.nn.functional.mse_loss(out, centres[y])", "centres[y] += out.detach()", True),
        ("out = model(x)\nloss = (out - y).square().mean()", "centres[y] += out.detach()\nprint(centres[0])", False),
    ],
    ids=["a mean that moves", "for the loss", "a total"],
)
def test_centres_that_are_added_to(trained: Trained, loss: str, step: str, told: bool) -> None:
    """`centres[y] = ...` was told; `centres[y] += ...` was not."""
    _, findings = trained(built=CENTRES, loss=loss, step=step)
    assert ("process-memory" in findings) is told
