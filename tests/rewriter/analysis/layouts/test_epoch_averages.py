"""Totals of an epoch that become an average: what is known to be the loss is reduced, other figures are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pytest
import torch

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, Target
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]


def test_the_loss_is_reduced(trained: Trained) -> None:
    text, findings = trained(step="value = loss.item()\ntotal += value", epoch="print(total / len(loader))")
    assert 'accelerator.reduce(loss.detach(), reduction="mean").item()' in text
    assert findings == []


RATES = {
    "loss.item() / len(y)": (
        'accelerator.reduce(torch.tensor(loss.item() / len(y), dtype=torch.float64), reduction="mean").item()'
    ),
    "(loss / y.size(0)).item()": 'accelerator.reduce((loss / y.size(0)).detach(), reduction="mean").item()',
}


@pytest.mark.parametrize(("value", "reduced"), RATES.items())
def test_a_sum_that_is_divided_by_the_rows_is_averaged_as_one_number(
    value: str, reduced: str, trained: Trained
) -> None:
    """The mean of all rows is no quotient of that of the sums and the rows of one process, where shares differ."""
    loss = 'loss = torch.nn.functional.mse_loss(model(x), y, reduction="sum")'
    text, findings = trained(loss=loss, step=f"total += {value}", epoch="print(total / len(loader))")
    assert f"total += {reduced}" in text
    assert findings == []


def test_a_loss_that_adds_a_sum_to_a_mean_is_averaged_over_the_script_s_batches(trained: Trained) -> None:
    """Each batch of a process is one of the script's: their average is the figure that one process had."""
    loss = "loss = torch.nn.functional.mse_loss(model(x), y) + 0.1 * (model(x) - y).pow(2).sum()"
    text, findings = trained(loss=loss, step="total += loss.item()", epoch="print(total / len(loader))")
    assert 'total += accelerator.reduce(loss.detach(), reduction="mean").item()' in text
    assert findings == ["backward"]


FIGURES = {
    "numbers": ('{"near": loss.item(), "far": far.item()}', "value", True),
    "tensors": ('{"near": loss, "far": far}', "value.item()", True),
    "in a list": ("[loss.item(), far.item()]", "value", True),
    "a sum beside a mean": ('{"near": loss.item(), "far": far.sum().item()}', "value", False),
    "by a condition": ('{"near": loss.item(), **({"far": 0.0} if (y > 0).any() else {})}', "value", False),
}


@pytest.mark.parametrize(("made", "added", "whole"), FIGURES.values(), ids=FIGURES)
def test_figures_that_are_written_out_and_added_in_a_loop(made: str, added: str, whole: bool, trained: Trained) -> None:
    """All processes go through the same figures, so that each is reduced where it is added; what a condition adds
    may be on one alone, and a sum wants another reduction than a mean."""
    table = made.startswith("{")
    each, place = ("name, value in figures.items()", "totals[name]") if table else ("value in figures", "total")
    far = "(model(x) - y).abs()" if "far.sum()" in made else "(model(x) - y).abs().mean()"
    step = f"far = {far}\nfigures = {made}\nfor {each}:\n    {place} += {added}"
    shown = "print(totals)" if table else "print(total / len(loader))"
    text, findings = trained(top='totals = {"near": 0.0, "far": 0.0}', step=step, epoch=shown)
    assert ('reduction="mean").item()' in text) is whole
    assert findings == ([] if whole else ["metrics_gather"])


FILLED = {
    "filled": ('figures["far"] = far', True),
    "updated": ('figures.update({"far": far})', True),
    "one is taken out": ('figures["far"] = far\nfigures.pop("far")', True),
    "by a condition": ('if (y > 0).any():\n    figures["far"] = far', False),
    "updated by a condition": ("if (y > 0).any():\n    figures.update(far=far)", False),
    "a default by a condition": ('if (y > 0).any():\n    figures.setdefault("far", far)', False),
    "taken out by a condition": ('figures["far"] = far\nif (y > 0).any():\n    figures.pop("far")', False),
    "deleted by a condition": ('figures["far"] = far\nif (y > 0).any():\n    del figures["far"]', False),
    "by a function": ("fill(figures, far)", False),
}


@pytest.mark.parametrize(("filled", "whole"), FILLED.values(), ids=FILLED)
def test_a_table_has_the_same_figures_on_all_processes_or_is_left(filled: str, whole: bool, trained: Trained) -> None:
    """One process would reduce a figure more than another, and wait for it."""
    top = (
        'totals = {"near": 0.0, "far": 0.0}\n\n'
        'def fill(table, value):\n    if value > 1:\n        table["far"] = value\n'
    )
    step = (
        "far = (model(x) - y).abs().mean().item()\nfigures = {}\nfigures['near'] = loss.item()\n"
        f"{filled}\nfor name, value in figures.items():\n    totals[name] += value"
    )
    text, findings = trained(top=top, step=step, epoch="print(totals)")
    assert ('reduction="mean").item()' in text) is whole
    assert findings == ([] if whole else ["metrics_gather"])


def test_an_average_over_several_steps_with_one_batch_is_averaged_over_the_processes_too(trained: Trained) -> None:
    several = (
        "of_batch = 0.0\nfor _ in range(5):\n    optimizer.zero_grad()\n"
        "    gap = torch.nn.functional.mse_loss(model(x), y)\n    gap.backward()\n    optimizer.step()\n"
        "    of_batch += gap.item()\ntotal += of_batch / 5"
    )
    text, findings = trained(step=several, epoch="print(total / len(loader))")
    number = "torch.tensor(of_batch / 5, dtype=torch.float64)"
    assert f'total += accelerator.reduce({number}, reduction="mean").item()\n' in text
    assert findings == []


WHOLE = """\
import numpy as np
import torch

def fit(model, optimizer, x, y, turns, curve):
    for turn in range(turns):
        loss = torch.nn.functional.mse_loss(model(x), y)
        {kept}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

x, y = torch.randn(40, 3), torch.randn(40, 1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
curve = np.zeros(9)
fit(model, optimizer, x, y, 9, curve)
print(curve)
"""


@pytest.mark.parametrize(
    "kept", ["curve[turn] = {}.item()", "curve[turn, 0] = float({})", "value = {}.item()\n        curve[turn] = value"]
)
def test_the_loss_of_each_step_that_is_kept_by_its_number_is_reduced(kept: str) -> None:
    """The curve was that of the first process's rows, beside a print of the loss of all."""
    text = WHOLE.format(kept=kept.format("loss"))
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert kept.format('accelerator.reduce(loss.detach(), reduction="mean")') in file.after.decode()


ENCODED = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoTokenizer

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.text, self.last = AutoModel.from_pretrained("bert-base-uncased"), nn.Linear(768, 2)

    def forward(self, ids, mask):
        return self.last(self.text(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0])

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
loader = DataLoader([("a b", 0), ("c", 1)] * 20, batch_size=4, shuffle=True)
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
hits = seen = 0
for texts, labels in loader:
    encoded = tokenizer(list(texts), return_tensors="pt", padding=True)
    scores = model(encoded["input_ids"], encoded["attention_mask"])
    loss = F.cross_entropy(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hits += (scores.argmax(1) == labels).sum().item()
    seen += len(labels)
print(hits / seen)
"""


def test_both_halves_of_a_quotient_are_of_the_same_rows() -> None:
    """The hits of the repeated rows that fill up the last shard were divided by the number of the others."""
    (file,) = migrate([decode(ENCODED.encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert 'hits += accelerator.reduce((scores.argmax(1) == labels).sum().detach(), reduction="sum")' in text
    assert "seen += accelerator.reduce(torch.tensor(len(labels), device=accelerator.device)" in text
    assert "gather_for_metrics" not in text and [one.id for one in file.diagnoses] == ["cpu-only", "filled-batch"]


@pytest.mark.parametrize(
    "step", ["curve[i] = loss.item()", "curve[i, 0] = loss.detach()", "value = loss.item()\ncurve[i] = value"]
)
def test_so_is_that_of_a_loop_over_a_loader(step: str, trained: Trained) -> None:
    top = "curve = torch.zeros(9, 1)"
    text, findings = trained(top=top, step=f"i = 0\n{step}", epoch="print(curve)")
    assert 'accelerator.reduce(loss.detach(), reduction="mean")' in text and findings == []


@pytest.mark.parametrize("step", ["last['loss'] = loss.item()", "bank[y] = out.detach()", "curve[0] = y[0]"])
def test_what_is_no_loss_of_a_step_and_what_is_replaced_is_kept_as_it_is(step: str, trained: Trained) -> None:
    top = "last, bank, curve = {}, torch.zeros(9, 2), torch.zeros(9)"
    text, _ = trained(top=top, loss="out = model(x)\nloss = out.mean()", step=step, epoch="print(last, bank, curve)")
    assert "reduce" not in text and step.partition(" = ")[2] in text


PARTS = """\
def parts(out, y):
    fit = torch.nn.functional.cross_entropy(out, y)
    return fit, out.pow(2).mean()
"""


@pytest.mark.parametrize("entry", ["0", "1"])
def test_a_figure_out_of_several_is_not_weighed_by_the_rows_of_all(entry: str, trained: Trained) -> None:
    """The rows were counted of all processes, and the loss was that of one."""
    text, findings = trained(
        top=PARTS,
        loss="got = parts(model(x), y)\nloss = got[0]",
        step=f"total += got[{entry}].item() * x.size(0)",
        epoch="print(total / len(data))",
    )
    assert "gather" not in text
    assert f"accelerator.reduce(torch.tensor(got[{entry}].item() * x.size(0), " in text and 'reduction="sum"' in text
    assert findings == ["filled-batch"]


UNIT = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 2)
loader = DataLoader(rows, batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
"""
BY_CONSTANTS = {
    "a number": ("total += loss.item()", "print(total / 1000)", "sum_of_means"),
    "scaled before": ("total += loss.item()", "mean = 100 * total / 1000\nprint(mean)", "sum_of_means"),
    "a variable": ("value = loss.item()\ntotal += value", "scale = 50.0\nprint(total / scale)", "sum_of_means"),
    "by the rows": ("total += loss.item()", "print(total / len(data))", "sum_of_means"),
    "by the rows, a variable": ("value = loss.item()\ntotal += value", "print(total / len(data))", "sum_of_means"),
    "with a weight": ("total += 0.3 * loss.item() / 32 + 2 * float(loss)", "print(total / 50)", "sum_of_means"),
    "in a table": ("total += loss.item()", "scale = {'train': 50.0}\nprint(total / scale['train'])", "sum_of_means"),
    "changed": ("total += loss.item()", "scale = 5\nscale += epoch\nprint(total / scale)", "mean"),
    "in place": ("total += loss.item()", "total /= 50\nprint(total)", "sum_of_means"),
    "and by the batches": ("total += loss.item()", "print(total / 1000 / len(loader))", "mean"),
    "and by the batches later": ("total += loss.item()", "kept = total / 10\nprint(kept / len(loader))", "mean"),
}


@pytest.mark.parametrize(("step", "epoch", "reduction"), BY_CONSTANTS.values(), ids=BY_CONSTANTS)
def test_means_that_are_added_up_in_another_unit_are_those_of_all_processes(
    step: str, epoch: str, reduction: str, trained: Trained
) -> None:
    """A sum of batch means, divided by a number that is written out, needs all the batches."""
    text, findings = trained(step=step, epoch=epoch)
    assert f'accelerator.reduce(loss.detach(), reduction="{reduction}").item()' in text
    assert not findings
    (again,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert not again.diagnoses, "the second run says that what is added up is N times smaller"


SHOWN = ["show(total / (i + 1))", "show(100 * (total / (i + 1)))", "show(total)", "show(total / rows)"]


@pytest.mark.parametrize("end", ["print(total / len(data))", "print(total)", "print(total * 32 / len(loader.dataset))"])
@pytest.mark.parametrize("shown", SHOWN)
def test_a_running_mean_keeps_the_mean_of_all_processes(shown: str, end: str, trained: Trained) -> None:
    """With the batches of all processes, what a bar shows would be N times too large."""
    text, _ = trained(
        top="rows = 0", batch="i, (x, y)", source="enumerate(loader)", step=f"total += loss.item()\n{shown}", epoch=end
    )
    assert 'reduction="mean").item()' in text and shown in text


def test_the_batches_of_all_processes_are_those_of_one_where_these_are_split() -> None:
    text = f"{UNIT}print(total / 1000)\n"
    (file,) = migrate([decode(text.encode(), Path("t.py"))], CATALOGUE, Config(keep_global_batch=True)).files
    assert 'accelerator.reduce(loss.detach(), reduction="mean").item()' in file.after.decode()
    assert not [found for found in file.diagnoses if found.id == "mean-of-batches"]


@pytest.mark.parametrize(("stop", "reduction"), [("50", "mean"), ("2, 50", "mean"), ("2, None", "sum_of_means")])
def test_as_many_batches_of_each_process_as_of_one_are_averaged(stop: str, reduction: str, trained: Trained) -> None:
    text, _ = trained(
        top="from itertools import islice", source=f"islice(loader, {stop})", step="total += loss.item()",
        epoch="print(total / 50)",
    )  # fmt: skip
    assert f'total += accelerator.reduce(loss.detach(), reduction="{reduction}").item()' in text


def test_means_that_are_read_elsewhere_too_are_named_where_a_constant_divides_them(trained: Trained) -> None:
    step = "value = loss.item()\ntotal += value\nkept.append(value)"
    text, findings = trained(built="kept = []", step=step, epoch="print(total / 1000, sum(kept) / len(kept))")
    assert 'reduction="mean"' in text and findings == ["mean-of-batches"]


BESIDE = [
    "total += 0.5 + loss.item()",
    "total += 2 * (weight + loss.item()) / 32",
    "total += loss.item() - weight",
    "value = weight + loss.item()\ntotal += value",
]


@pytest.mark.parametrize("step", BESIDE)
def test_a_term_beside_the_loss_is_added_by_each_process_alone(step: str, trained: Trained) -> None:
    """The losses of all batches beside as many terms as one process has made a figure of its own."""
    text, findings = trained(built="weight = 0.5", step=step, epoch="print(total / 1000)")
    assert 'reduction="sum"' not in text
    assert findings in (["mean-of-batches"], ["metrics_gather"])


def test_another_figure_that_is_read_off_is_not_taken_for_the_loss(trained: Trained) -> None:
    step = "norm = x.norm()\nvalue = norm.item()\ntotal += value"
    text, findings = trained(step=step, epoch="print(total / len(loader))")
    assert "reduce(" not in text
    assert findings == ["metrics_gather"]


@pytest.mark.parametrize(
    ("read", "becomes"),
    [
        ("float(loss)", 'float(accelerator.reduce(loss.detach(), reduction="mean"))'),
        ("abs(loss)", "abs(loss)"),
    ],
)
def test_a_number_is_read_off_by_float_alone(read: str, becomes: str, trained: Trained) -> None:
    text, findings = trained(step=f"value = {read}\ntotal += value", epoch="print(total / len(loader))")
    assert f"value = {becomes}\n" in text
    assert findings == ([] if read != becomes else ["metrics_gather"])


VALUE_OF = """\
def value_of(x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()"""


@pytest.mark.parametrize("step", ["total += value_of(x, y)", "value = value_of(x, y)\ntotal += value"])
def test_a_loss_that_a_function_gives_is_reduced_where_it_returns(step: str, trained: Trained) -> None:
    text, findings = trained(top=VALUE_OF, step=step, epoch="print(total / len(loader))")
    assert '    return accelerator.reduce(loss.detach(), reduction="mean").item()\n' in text
    assert findings == []


PLAIN = """\
def every(convert):
    def through(held):
        return {key: through(one) for key, one in held.items()} if isinstance(held, dict) else convert(held)
    return through


@every
def plain(held):
    return held if isinstance(held, float) else held.item()


means = Means()"""
FROM_METERS = "from meters import Means\n"


@pytest.mark.parametrize(
    ("step", "epoch"),
    [
        ("figures = plain({'loss': loss})\nmeans.update(figures)", "print(means.all())"),
        ("figures = {'loss': loss}\nmeans.update(figures)", "print(means.all())"),
        ("value = plain(loss)\ntotal += value", "print(total / len(loader))"),
    ],
    ids=["a dict of numbers", "a dict of tensors", "a number or a tensor"],
)
def test_only_what_is_certainly_a_tensor_is_detached(step: str, epoch: str, trained: Trained) -> None:
    text, findings = trained(top=FROM_METERS + PLAIN, step=step, epoch=epoch)
    assert "reduce(" not in text and findings == ["metrics_gather"]


def test_a_loss_that_is_a_number_by_then_is_reduced_where_it_is_read_off(trained: Trained) -> None:
    text, findings = trained(step="loss = loss.item()\ntotal += loss", epoch="print(total / len(loader))")
    assert f"loss = {MEAN.format('loss')}\n" in text and "total += loss\n" in text
    assert findings == []


def test_what_a_function_gives_as_a_number_this_time_is_reduced_as_one(trained: Trained) -> None:
    top = "def figure(loss, as_number):\n    if as_number:\n        return loss.item()\n    return loss"
    step = "value = figure(loss, True)\ntotal += value"
    text, findings = trained(top=top, step=step, epoch="print(total / len(loader))")
    assert "reduce(torch.tensor(value, " in text and findings == []


FOLDED = """\
import functools

class Judge(torch.nn.Module):
    def forward(self, out, y):
        gaps = [(out[row] - y[row]).square().mean() for row in range(len(out))]
        gap = functools.reduce(max, gaps)
        return {'all': gap + out.abs().mean(), 'gap': gap}

def add_up(sums, terms):
    for name, term in terms.items():
        sums[name] = sums.get(name, 0.0) + term.item()

judge = Judge()
sums = {}"""
TERMS = "terms = judge(model(x), y)\nloss = terms['all']"


BESIDE = """\
import elsewhere

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, x, y):
        scores = elsewhere.sharpened(self.layer(x))
        return elsewhere.gap(scores, y), scores
"""


@pytest.mark.parametrize(
    "step",
    [
        "total += terms['gap'].item()",
        "gap = terms['gap']\ntotal += float(gap.detach())",
        "add_up(sums, terms)\ntotal += terms['gap']",
    ],
    ids=["an entry", "a variable", "a function"],
)
def test_what_is_read_as_one_number_has_no_rows(step: str, trained: Trained) -> None:
    """Gathered from two processes it was two numbers, of which `item` cannot read one."""
    text, findings = trained(top=FOLDED, loss=TERMS, step=step, epoch="print(total / len(loader), sums)")
    assert "gather" not in text and "reduce(terms" not in text
    assert "metrics_gather" in findings


def test_what_is_read_beside_one_number_may_have_rows(trained: Trained) -> None:
    """One of two that a model gives says nothing of the other."""
    text, findings = trained(
        top=BESIDE,
        built="model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nseen = []",
        loss="gap, scores = model(x, y)\nloss = gap.square()",
        step="total += gap.item()\nseen.append(scores.argmax(1))",
        epoch="print(total / len(loader), torch.cat(seen))",
    )
    assert "    scores = accelerator.gather_for_metrics(scores)\n" in text
    assert findings == ["loss-reduction", "metrics_gather"]


def test_a_number_from_before_the_loop_is_no_loss(trained: Trained) -> None:
    text, findings = trained(built="weight = 0.5", step="total += weight", epoch="print(total / len(loader))")
    assert "reduce(" not in text and findings == []


MEAN = 'accelerator.reduce({}.detach(), reduction="mean").item()'
SUMMED = 'accelerator.reduce({}.detach(), reduction="sum").item()'
NUMBER = 'accelerator.reduce(torch.tensor({}, device=accelerator.device), reduction="{}").item()'
SUM_OF = 'accelerator.reduce(torch.tensor({}{}), reduction="sum").item()'
JUDGE = """\
class Judge(torch.nn.Module):
    def forward(self, out, y):
        every = torch.nn.functional.cross_entropy(out, y, reduction="sum")
        return every, (y > 0).sum(){}, every + 0.1 * out.abs().sum()


judge = Judge()"""
JUDGED = "every, seen, loss = judge(model(x), y)"


@pytest.mark.parametrize(
    ("more", "added"),
    [("", SUMMED.format("seen")), (".item()", NUMBER.format("seen", "sum"))],
    ids=["a tensor", "a number"],
)
def test_what_a_criterion_counts_is_summed_beside_its_loss(more: str, added: str, trained: Trained) -> None:
    """Over the rows of all, both or none: the quotient of one half would be N times too large."""
    read = "seen" if more else "seen.item()"
    text, findings = trained(
        top=JUDGE.format(more), built="total = n = 0", loss=JUDGED, step=f"total += every.item()\nn += {read}",
        epoch="print(total / n)",
    )  # fmt: skip
    assert f"total += {SUMMED.format('every')}\n" in text and f"n += {added}\n" in text
    assert "gather" not in text and findings == ["filled-batch"]


@pytest.mark.parametrize("target", Target)
def test_a_number_is_exact_in_the_tensor_that_it_is_reduced_in(target: Target) -> None:
    """On one process it is the original's to the last bit: a float needs float64, a count stays a whole number. A
    device may have no float64, and Accelerate reduces on the device alone."""
    text, _ = migrated(
        "rows = x.size(0)\nloss = torch.nn.functional.cross_entropy(model(x), y)",
        "total += loss.item() * rows\nhits += rows", "print(total / hits)", target=target,
    )  # fmt: skip
    device = ", device=accelerator.device"
    double = f", dtype=torch.float64{device if target is Target.ACCELERATE else ''}"
    assert f"    total += {SUM_OF.format('loss.item() * rows', double)}\n" in text
    assert f"    hits += {SUM_OF.format('rows', device)}\n" in text


LOOP = """\
import torch
model = torch.nn.Linear(8, 2)
loader = torch.utils.data.DataLoader(data, batch_size=32{options})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = hits = 0
for x, y in loader:
{step}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{epoch}
"""


def migrated(
    loss: str, step: str, epoch: str, *, options: str = "", keep: bool = False, target: Target = Target.TORCHLIFT
) -> tuple[str, list[str]]:
    """The new text, and the messages of all findings."""
    text = LOOP.format(step=indent(f"{loss}\n{step}", "    "), epoch=epoch, options=options)
    config = Config(keep_global_batch=keep, target=target)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, config).files
    return file.after.decode(), [found.message for found in file.diagnoses]


ALL = "right = (out.argmax(1) == y).sum().item()\nloss = torch.nn.functional.cross_entropy(out, y, reduction='sum')"


def test_hits_that_are_counted_before_the_loss_are_summed(trained: Trained) -> None:
    """The loss is computed from the same rows afterwards: these cannot be gathered before the hits are counted."""
    text, findings = trained(
        built="hits = 0", loss=f"out = model(x)\n{ALL}", step="hits += right", epoch="print(hits / len(data))"
    )
    assert f"hits += {NUMBER.format('right', 'sum')}\n" in text and "gather" not in text
    assert findings == ["filled-batch"]  # the rows that pad the last shards are counted


@pytest.mark.parametrize(
    ("step", "epoch", "told"),
    [
        (
            "if right > 3:\n    hits += right",
            "print(hits / len(data))",
            "`hits / len(data)` divides it by the number of all rows, so on N processes it is N times too small",
        ),
        (
            "total += loss.item()\nif right > 3:\n    hits += right",
            "print(total / hits)",
            "`total / hits` is the figure of its own rows, not of all",
        ),
        (
            "total += loss.item()\nif right > 3:\n    hits += right",
            "shown, n = total, hits\nprint(shown / n)",
            "`shown / n` is the figure of its own rows, not of all",
        ),
    ],
    ids=["by all rows", "by each other", "through variables"],
)
def test_a_quotient_of_which_a_half_stays_local_is_named(step: str, epoch: str, told: str) -> None:
    text, messages = migrated(f"out = model(x)\n{ALL}", step, epoch)
    assert "reduce(" not in text
    assert any(told in message for message in messages)


@pytest.mark.parametrize(
    ("step", "shown", "summed"),
    [
        (
            "table.update(hits=table['hits'] + right)\nhits = table['hits']",
            "hits / len(data)",
            'hits = accelerator.reduce(torch.tensor(hits, device=accelerator.device), reduction="sum").item()',
        ),
        (
            "seen.add_((out.argmax(1) == y).sum(), alpha=1)",
            "seen.item() / len(data)",
            'seen = accelerator.reduce(seen, reduction="sum")',
        ),
    ],
    ids=["a number", "a tensor"],
)
def test_the_help_is_code_for_what_the_total_is(step: str, shown: str, summed: str) -> None:
    """`seen.item = accelerator.reduce(torch.tensor(seen.item, ...)` was no code at all."""
    text = LOOP.format(step=indent(f"out = model(x)\n{ALL}\n{step}", "    "), epoch=f"print({shown})", options="")
    text = text.replace("hits = 0\n", "hits = 0\nseen, table = torch.tensor(0), {'hits': 0}\n")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (remedy,) = [found.remedy for found in file.diagnoses if found.id == "own-figure"]
    assert remedy == f"add up the totals of all processes before this line: {summed}"


def test_a_loss_that_is_divided_by_all_rows_is_summed_beside_hits_that_stay(trained: Trained) -> None:
    step = "total += loss.item()\nif right > 3:\n    hits += right"
    text, findings = trained(
        built="hits = 0", loss=f"out = model(x)\n{ALL}", step=step, epoch="print(total / len(data), hits)"
    )
    assert f"total += {SUMMED.format('loss')}\n" in text
    assert findings == ["filled-batch", "metrics_gather"]


@pytest.mark.parametrize("divided", ["right / 32", "score"])
def test_a_count_that_is_divided_by_a_constant_is_not_summed(divided: str, trained: Trained) -> None:
    """It is meant for a mean of 32 rows, and the sum over the processes would be N times that."""
    text, findings = trained(
        built="hits = 0", loss=f"out = model(x)\n{ALL}", step=f"score = right / 32\nhits += {divided}",
        epoch="print(hits / len(loader))",
    )  # fmt: skip
    assert "hits += accelerator" not in text and findings == ["metrics_gather"]


TABLE = """\
best = model(x).argmax(1)
for row in range(len(y)):
    {}"""


@pytest.mark.parametrize(
    "counted",
    [
        "table[y[row], best[row]] += 1",
        "if best[row] == y[row]:\n        hits += 1",
        "guess = best[row]\n    if guess == y[row]:\n        hits += 1",
        "if y[row] == 0:\n        continue\n    table[0, best[row]] += 1",
    ],
    ids=["by index", "on a condition", "by a variable", "rows that are passed over"],
)
def test_what_a_loop_over_the_rows_counts_is_gathered_before_it(counted: str, trained: Trained) -> None:
    step = TABLE.format(counted).replace("model(x)", "scores")
    text, findings = trained(
        built="table = torch.zeros(2, 2)\nhits = 0", loss=SCORED, step=step, epoch="print(table, hits)"
    )
    assert "gather_for_metrics((" in text and text.index("gather_for_metrics") < text.index("for row in")
    assert findings == []


SCORED = "scores = model(x)\nloss = torch.nn.functional.cross_entropy(scores, y)"


@pytest.mark.parametrize(
    "counted",
    [
        "if scores[row].max() > loss:\n        hits += 1",
        "if (best == y).any():\n        hits += 1",
        "hits += loss.item()",
    ],
    ids=["a figure beside a row", "a figure of the batch", "a loss in each turn"],
)
def test_what_a_loop_over_the_rows_compares_with_figures_stays(counted: str, trained: Trained) -> None:
    """Joined rows would be compared with the figure of one process, and the turns of the loop differ."""
    step = TABLE.format(counted).replace("model(x)", "scores")
    text, findings = trained(built="hits = 0", loss=SCORED, step=step, epoch="print(hits)")
    assert "gather" not in text and "reduce(" not in text
    assert "metrics_gather" in findings


COUNTING = """\
def {name}(scores, y):
    {begun}
    best = scores.argmax(1)
    {loop}
    return {given}"""
HITS = "for row in range(len(best)):\n        if best[row] == y[row]:\n            hits += 1"


@pytest.mark.parametrize(
    ("begun", "loop", "given", "step", "emitted"),
    [
        ("hits = 0", HITS, "hits", "found += count(scores, y)", "scores, y = accelerator.gather_for_metrics("),
        (
            "hits = 0",
            "for guess, wanted in zip(best.tolist(), y.tolist()):\n        if guess != wanted:\n            continue\n"
            "        hits += 1",
            "hits", "found += count(scores, y)", "scores, y = accelerator.gather_for_metrics(",
        ),
        (
            "hits, misses = 0, 0", f"{HITS}\n        else:\n            misses += 1", "hits, misses",
            "hits, misses = count(scores, y)\nfound += hits - misses",
            'accelerator.reduce(torch.tensor(hits - misses, device=accelerator.device), reduction="sum").item()',
        ),
    ],
    ids=["by index", "passed over", "two numbers"],
)  # fmt: skip
def test_what_a_function_counts_row_by_row_is_that_of_all(
    begun: str, loop: str, given: str, step: str, emitted: str, trained: Trained
) -> None:
    top = COUNTING.format(name="count", begun=begun, loop=loop, given=given)
    text, findings = trained(
        top=top, built="found = 0", loss=SCORED, step=step, epoch="print(found / len(loader.dataset))"
    )
    assert emitted in text
    assert [found for found in findings if found != "filled-batch"] == []


@pytest.mark.parametrize(
    "loop",
    [
        "for row in best:\n        for k in range(3):\n            hits += 1",
        "for row in best:\n        hits = 0\n        for k in range(3):\n            hits += 1",
        "for k in range(3):\n        hits += 1",
    ],
    ids=["of each row", "anew for each row", "of no row"],
)
def test_what_is_counted_of_no_rows_is_equal_everywhere(loop: str, trained: Trained) -> None:
    top = COUNTING.format(name="count", begun="hits = 0", loop=loop, given="hits")
    text, _ = trained(top=top, built="found = 0", loss=SCORED, step="found += count(scores, y)", epoch="print(found)")
    assert ("gather" in text) is ("hits = 0\n        for k" not in loop and "for row" in loop)


WHILE = "row = 0\n    while row < len(best):\n        if best[row] == y[row]:\n            hits += 1\n        row += 1"


@pytest.mark.parametrize(
    ("divisor", "findings"),
    [("len(loader.dataset)", ["own-figure"]), ("size['all']", ["own-figure"]), ("50", [])],
    ids=["the data", "a table of sizes", "a number"],
)
def test_a_count_of_own_rows_that_all_rows_divide_is_told(divisor: str, findings: list[str], trained: Trained) -> None:
    """It is not that of the main process's rows: on two processes it is half of the truth."""
    top = COUNTING.format(name="count", begun="hits = 0", loop=WHILE, given="hits")
    epoch = f"score = found / {divisor}\nprint(score)"
    built = "size = {'all': len(data)}\nfound = 0"
    _, told = trained(top=top, built=built, loss=SCORED, step="found += count(scores, y)", epoch=epoch)
    assert told == findings


def test_rows_that_are_counted_by_a_figure_of_their_batch_stay(trained: Trained) -> None:
    loop = "for row in range(len(best)):\n        if (best == y).any():\n            hits += 1"
    top = COUNTING.format(name="count", begun="hits = 0", loop=loop, given="hits")
    text, findings = trained(
        top=top, built="found = 0", loss=SCORED, step="found += count(scores, y)", epoch="print(found)"
    )
    assert "gather" not in text and "reduce(" not in text
    assert findings == ["metrics_gather"]


def test_a_loop_over_something_else_is_none_over_the_rows(trained: Trained) -> None:
    step = "for k in range(scores.shape[1]):\n    turns += 1"
    text, findings = trained(built="turns = 0", loss=SCORED, step=step, epoch="print(turns)")
    assert "gather" not in text and findings == []


RIGHT_OF = """\
import numpy


def rates(guess, wanted):
    return {"right": numpy.mean([a == b for a, b in zip(guess, wanted)])}


found = {"right": []}"""
INTO_FOUND = 'found["right"].append(figures["right"])'


def test_a_figure_that_a_table_of_the_step_hands_on_is_reduced(trained: Trained) -> None:
    step = 'figures = {"right": (model(x).argmax(1) == y).float().mean().item()}\n' + INTO_FOUND
    text, findings = trained(top=RIGHT_OF, step=step, epoch='print(sum(found["right"]) / len(found["right"]))')
    assert 'append(accelerator.reduce(torch.tensor(figures["right"]' in text
    assert findings == []


OF_ALL = "[a == b for a, b in zip(guess, wanted)]"
LISTED = """
    rights = []
    for a, b in zip(guess, wanted):
        {around}rights.append(a == b)
    return {{"right": numpy.mean(rights)}}
"""


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        (f"numpy.mean({OF_ALL})", True),
        (f"sum({OF_ALL}) / len(wanted)", True),
        (f"numpy.median({OF_ALL})", False),
        ("numpy.mean([a == b for a, b in zip(guess, wanted) if b > 0])", False),
        (LISTED.format(around=""), True),
        (LISTED.format(around="if b > 0:\n            "), False),
        (LISTED.format(around="if b < 1:\n            continue\n        "), False),
    ],
    ids=["a mean", "a quotient", "a median", "of some", "in a list", "some in a list", "some, the others passed over"],
)
def test_figures_that_a_function_makes_of_the_rows(given: str, whole: bool, trained: Trained) -> None:
    """A mean of them all is reduced; any other is told, also one of those that each process chooses."""
    step = "figures = rates(model(x).argmax(1).tolist(), y.tolist())\n" + INTO_FOUND
    made = RIGHT_OF[RIGHT_OF.index("    return") : RIGHT_OF.index("}") + 1]
    top = RIGHT_OF.replace(made, given if "return" in given else f'    return {{"right": {given}}}')
    text, findings = trained(top=top, step=step, epoch='print(sum(found["right"]) / len(found["right"]))')
    assert ('append(accelerator.reduce(torch.tensor(figures["right"]' in text) is whole
    assert findings == ([] if whole else ["metrics_gather"])


def test_a_mean_is_reduced_beside_figures_that_stay(trained: Trained) -> None:
    """It is no half of a quotient, although a meter divides it by the number of rows."""
    top = "from meters import Meter, accuracy\nlosses, top = Meter(), Meter()"
    step = "losses.update(loss.item(), n)\ntop.update(accuracy(scores, y)[0], n)"
    text, findings = trained(top=top, loss=f"n = y.size(0)\n{SCORED}", step=step, epoch="print(losses.avg, top.avg)")
    mean = 'accelerator.reduce(loss.detach(), reduction="mean").item()'
    assert f"losses.update({mean}, {NUMBER.format('n', 'sum')})\n" in text
    assert findings == ["filled-batch", "metrics_gather"]


SHARE_OF = """\
from meters import Meter
losses, shares = Meter(), Meter()


def share_of(out, y, most=(1,)):
    _, best = out.topk(max(most))
    hits = best.eq(y.view(-1, 1))
    return [hits[:, :k].reshape(-1).float().sum(0) * (100.0 / y.size(0)) for k in most]"""


@pytest.mark.parametrize("counted", ["x.size(0)", "y.size(0)"])
def test_rows_that_are_joined_for_one_meter_are_counted_for_the_other(counted: str, trained: Trained) -> None:
    """Their number is that of all rows where it stands, and is neither reduced once more nor swapped twice."""
    step = f"losses.update(loss.item(), {counted})\nshares.update(first[0], {counted})"
    text, findings = trained(
        top=SHARE_OF, loss="out = model(x)\nloss = criterion(out, y)\nfirst, more = share_of(out.data, y, (1, 2))",
        built="criterion = torch.nn.CrossEntropyLoss()", step=step, epoch="print(losses.avg, shares.avg)",
    )  # fmt: skip
    assert f"losses.update({MEAN.format('loss')}, y.size(0))\n" in text
    assert 'shares.update(accelerator.reduce(first[0].detach(), reduction="mean"), y.size(0))\n' in text
    assert findings == ["filled-batch"]


WEIGHED = "total += loss.item() * len(y)\nhits += len(y)", "print(total / hits)"


@pytest.mark.parametrize(
    ("step", "epoch", "options", "told"),
    [
        (*WEIGHED, {}, True),
        ("total += loss.item()", "print(total / len(loader))", {}, False),
        (*WEIGHED, {"options": ", drop_last=True"}, True),
        (*WEIGHED, {"keep": True}, False),
    ],
    ids=["in the last shards", "not weighed", "whole batches", "exact shards"],
)
def test_a_mean_that_rows_weigh_counts_those_that_fill_up_a_shard(
    step: str, epoch: str, options: dict[str, Any], told: bool
) -> None:
    text, messages = migrated(
        "out = model(x)\nloss = torch.nn.functional.cross_entropy(out, y)", step, epoch, **options
    )
    assert 'accelerator.reduce(loss.detach(), reduction="mean").item()' in text
    assert [("(`loss`) counts them" in one and "padded with repeated rows" in one) for one in messages] == [True] * told


SIZES = """\
import torch
from rows import data, train_size
loader = torch.utils.data.DataLoader(data, batch_size=8{options})
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    total, hits = 0.0, 0
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        total += loss.item() * x.size(0)
        best = out.argmax(dim=1)
        hits += (best == y).sum().item()
    print({shown})
"""


@pytest.mark.parametrize(
    ("shown", "keep", "told"),
    [
        ("total / train_size, hits / train_size", False, ["these sums over the processes count them: `total`, `hits`"]),
        ("total / len(data), 1", False, ["this sum over the processes counts them: `total / len(data)` may"]),
        ("total, 1", False, ["this sum over the processes counts them: `total` may"]),
        ("total / train_size, hits / train_size", True, []),
    ],
    ids=["by a number from elsewhere", "by all rows", "not divided", "exact shards"],
)
def test_a_sum_over_the_processes_counts_the_rows_that_fill_up_a_shard(shown: str, keep: bool, told: list[str]) -> None:
    """Of one that is divided by a number from elsewhere nothing was said."""
    text = SIZES.format(shown=shown, options="")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=keep)).files
    messages = [found.message for found in file.diagnoses]
    assert len(messages) == len(told) and all(text in message for text, message in zip(told, messages, strict=True))


def test_the_rows_of_a_batch_of_one_tensor_are_counted(trained: Trained) -> None:
    text, findings = trained(
        batch="(x,)", loss="loss = model(x).mean()", top="from meters import Meter\nlosses = Meter()",
        step="losses.update(loss.item(), len(x))", epoch="print(losses.avg)",
    )  # fmt: skip
    assert "len(x)" in text and findings == ["filled-batch"]


SHARE = """\
def share(out, y):
    best = out == out.max()
    return float((best == y).sum()) / float(len(y))"""
RATIO = "total += share(out, y)\nn += len(y)"


@pytest.mark.parametrize("more", ["", "hits += (out.argmax(1) == y).sum().item()\n"], ids=["alone", "beside hits"])
def test_a_figure_of_one_batch_is_not_taken_of_joined_batches(more: str) -> None:
    """A sum of them that is divided by the number of rows would be N times too small."""
    step = f"{SHARE}\n{more}{RATIO}".replace("n +=", "rows +=")
    loss = "out = model(x)\nloss = torch.nn.functional.cross_entropy(out, y)"
    text = LOOP.replace("total = ", "rows = total = ").format(
        step=indent(f"{loss}\n{step}", "    "), epoch="print(total / rows, hits)", options=""
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "gather" not in file.after.decode()
    messages = [found.message for found in file.diagnoses if found.id != "filled-batch"]
    assert any("`share(out, y)` is a figure of one whole batch" in one for one in messages)
    assert all("`total / rows` is the figure of its own rows, not of all" in one for one in messages)
    remedies = " ".join(found.remedy for found in file.diagnoses)
    assert "gather_for_metrics" not in remedies and "add both up over the processes" in remedies
    assert "total, rows = accelerator.reduce(torch.tensor([total, rows], " in remedies, "the reader's own variables"


class _Alone:
    """An accelerator of one process, that refuses what the real one refuses."""

    device = "cpu"

    def reduce(self, tensor: torch.Tensor, reduction: str) -> torch.Tensor:
        assert reduction == "sum" or tensor.is_floating_point(), "the mean of whole numbers would be truncated"
        return tensor

    def gather_for_metrics(self, values: list[int], use_gather_object: bool) -> list[int]:
        assert len(values) == 2, "as many as the batch in hand has rows"
        return [*values] * use_gather_object


@pytest.mark.parametrize(
    ("step", "epoch", "after"),
    [
        (RATIO.replace("n +=", "rows +="), "print(total / rows)", {"total": 4, "rows": 2}),
        ("total += share(out, y)", "print(total)", {"total": 4}),
        ("kept.append((out == out.max()).tolist())", "use(kept)", {"kept": [[False, True]]}),
        ("kept.append(share(out, y))", "use(kept)", {"kept": [0.5]}),
        (
            "parts = {'hits': share(out, y)}\nfor k, v in parts.items():\n    sums[k] += v",
            "print(sums['hits'] / len(loader))",
            {"sums": {"hits": 1.5}},
        ),
    ],
    ids=["a quotient", "a number", "a list of rows", "a figure of each batch", "figures of a dict"],
)
def test_what_is_advised_for_totals_can_be_run(step: str, epoch: str, after: dict[str, object]) -> None:
    """A list with one entry a batch is no list of rows: to gather it after the loop raised an error."""
    loss = "out = model(x)\nloss = torch.nn.functional.cross_entropy(out, y)"
    text = LOOP.replace("total = ", "kept = []\nsums = dict(hits=0.0)\nrows = total = ").format(
        step=indent(f"{loss}\n{SHARE}\n{step}", "    "), epoch=epoch, options=""
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    remedies = [found.remedy for found in file.diagnoses if found.id == "metrics_gather"]
    assert remedies
    values: dict[str, object] = {"total": 4, "rows": 2, "kept": [], "sums": {"hits": 1.0}, "k": "hits"}
    step_of = {
        "out": torch.tensor([0.0, 1.0]),
        "y": torch.tensor([0, 1]),
        "share": lambda out, y: 0.5,
        "v": torch.tensor(0.5),
    }
    for remedy in remedies:
        exec(remedy.rpartition(": ")[2], {"accelerator": _Alone(), "torch": torch, **step_of}, values)
    assert after.items() <= values.items()


APART = """\
import torch
from torch.utils.data import DataLoader

def chosen(values, given):
    return [value for value, one in zip(values, given) if one > 0]

model = torch.nn.Linear(3, 2)
loader = DataLoader(data, batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    truth, found = [], []
    for x, y, given in loader:
        truth{truth}
        out = model(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        guess = out.argmax(1)
        found{found}
    print([a == b for a, b in zip(truth, found)])
"""


@pytest.mark.parametrize("adds", [" += {}", ".extend({})"])
def test_two_lists_that_are_compared_have_entries_of_the_same_rows(adds: str) -> None:
    """One was filled before the loss, where nothing is gathered, and the other from the rows of all."""
    text = APART.format(
        truth=adds.format("chosen(y.tolist(), given)"), found=adds.format("chosen(guess.tolist(), given)")
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(loss)" in file.after and b"gather" not in file.after
    told = [found for found in file.diagnoses if found.id == "metrics_gather"]
    assert [found.remedy.rpartition(": ")[2] for found in told] == [
        f"{name} = accelerator.gather_for_metrics({name}, use_gather_object=True)" for name in ("truth", "found")
    ]


ARRAYS = {
    "an array": ("np.zeros(2)", "np.array([share(out, y), share(-out, y)])", np.array([4.0, 2.0])),
    "a tensor": ("torch.zeros(2)", "torch.tensor([share(out, y), share(-out, y)])", torch.tensor([4.0, 2.0])),
}


@pytest.mark.parametrize(("start", "added", "before"), ARRAYS.values(), ids=ARRAYS)
def test_what_is_advised_for_arrays_of_totals_can_be_run(start: str, added: str, before: Any) -> None:
    step = f"{SHARE}\nright = right + {added}\nrows += len(y)"
    loss = "out = model(x)\nloss = torch.nn.functional.cross_entropy(out, y)"
    text = LOOP.replace("total = ", f"import numpy as np\nright = {start}\nrows = total = ").format(
        step=indent(f"{loss}\n{step}", "    "), epoch="print(right / rows)", options=""
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    remedies = {found.remedy for found in file.diagnoses if found.id == "metrics_gather"}
    values: dict[str, Any] = {"right": before, "rows": 2}
    for remedy in remedies:
        exec(remedy.partition("before the division: ")[2], {"accelerator": _Alone(), "torch": torch}, values)
    assert type(values["right"]) is type(before) and (values["right"] == before).all() and values["rows"] == 2
    assert remedies


def test_the_entries_of_an_array_are_no_count_of_rows() -> None:
    loss = "out = model(x)\nloss = torch.nn.functional.cross_entropy(out, y)"
    text = LOOP.replace("total = ", "import numpy as np\nright = np.zeros(2)\ntotal = ").format(
        step=indent(f"{loss}\n{SHARE}\nright += np.array([share(out, y), share(-out, y)])", "    "),
        epoch="print(right.sum() / right.size)", options=""
    )  # fmt: skip
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = (found for found in file.diagnoses if found.id == "metrics_gather")
    assert "right.size" not in found.message and "before the division" not in found.remedy


LISTS = """kept.append({kept})
labels.append(y.cpu())
hits += (out.argmax(1) == y).sum().item()"""


@pytest.mark.parametrize(
    ("kept", "gathered"),
    [
        ("out.argmax(1).cpu()", True),
        ("(out - out.mean(0)).argmax(1).cpu()", False),
        ("(out.argmax(1) == out.argmax(1).mode().values).cpu()", False),
    ],
    ids=["rows", "beside a mean", "beside another figure"],
)
def test_lists_of_one_pass_are_gathered_together_or_not_at_all(kept: str, gathered: bool, trained: Trained) -> None:
    """Entry for entry one belongs to the other; numbers beside them are reduced then."""
    text, findings = trained(
        built="kept, labels, hits = [], [], 0",
        loss="out = model(x)\nloss = torch.nn.functional.cross_entropy(out, y)",
        step=LISTS.format(kept=kept), epoch="print(hits)\nuse(torch.cat(kept), torch.cat(labels))",
    )  # fmt: skip
    assert ("out, y = accelerator.gather_for_metrics((out, y))" in text) is gathered
    assert ("hits += accelerator.reduce(" in text) is not gathered
    assert findings.count("metrics_gather") == (0 if gathered else 2)


def test_a_model_gives_a_row_for_each_row_of_a_normalised_batch(trained: Trained) -> None:
    text, findings = trained(
        built="kept, labels, hits = [], [], 0",
        loss="x = (x - x.mean()) / x.std()\nout = model(x)\nloss = torch.nn.functional.cross_entropy(out, y)",
        step=LISTS.format(kept="out.argmax(1).cpu()"), epoch="print(hits)\nuse(torch.cat(kept), torch.cat(labels))",
    )  # fmt: skip
    assert "out, y = accelerator.gather_for_metrics((out, y))" in text
    assert findings == ["in-batch-pairs"]


def test_figures_of_one_batch_are_told_in_one_finding(trained: Trained) -> None:
    """With the number of rows that both are divided by."""
    _, findings = trained(
        top=SHARE, built="more = n = 0", loss=SCORED.replace("scores", "out"),
        step=f"{RATIO}\nmore += share(-out, y)", epoch="print(total / n, more / n)",
    )  # fmt: skip
    assert findings == ["metrics_gather"]


@pytest.mark.parametrize(("step", "told"), [(RATIO, True), ("total += right(out, y).sum()\nn += len(y)", False)])
def test_what_a_function_elsewhere_makes_of_joined_rows_is_not_known(step: str, told: bool, trained: Trained) -> None:
    text, findings = trained(
        top="from elsewhere import right, share", built="n = 0", loss=SCORED.replace("scores", "out"), step=step,
        epoch="print(total / n)",
    )  # fmt: skip
    assert "out, y = accelerator.gather_for_metrics((out, y))" in text
    assert findings == (["mean-of-batches"] if told else [])


PICK = """\
class Pick(torch.nn.Module):
    def forward(self, out, y):
        gap = out[{by}] - y[{by}]
        return gap.abs(), gap ** 2


pick = Pick()"""


@pytest.mark.parametrize("by", ["y > 0", "(y > 0).nonzero().squeeze(1)", "torch.where(y > 0)[0]"])
def test_rows_that_are_chosen_are_summed(by: str, trained: Trained) -> None:
    """How many there are differs between processes: nothing says which of them are duplicates that fill up a shard."""
    text, findings = trained(
        top=PICK.format(by=by), built="total = n = 0",
        loss="far, square = pick(model(x)[:, 0], y)\nloss = far.mean() + 2 * square.mean()",
        step="total += square.sum().item()\nn += square.numel()", epoch="print(total / n)",
    )  # fmt: skip
    assert f"total += {SUMMED.format('square.sum()')}\n" in text
    assert f"n += {NUMBER.format('square.numel()', 'sum')}\n" in text
    assert "gather" not in text and findings == ["filled-batch"]


def test_chosen_rows_are_gathered_before_the_choice(trained: Trained) -> None:
    step = "wide = y > 0\nbest = out.argmax(1)[wide]\nhits += (best == y[wide]).sum().item()\nn += wide.sum().item()"
    loss = "out = model(x)\nloss = torch.nn.functional.cross_entropy(out, y)"
    text, findings = trained(built="hits = n = 0", loss=loss, step=step, epoch="print(hits / n)")
    assert "out, wide, y = accelerator.gather_for_metrics((out, wide, y))\n        best =" in text
    assert findings == []


def test_a_sum_over_chosen_rows_that_are_trained_on_is_reduced(trained: Trained) -> None:
    """The rows before the choice are on the way to the loss; the mean over what each process chose is no exact term."""
    loss = "out = model(x)[:, 0]\nwide = y > 0\ngap = (out - y)[wide]\nloss = gap.abs().mean()"
    text, findings = trained(built="far = 0", loss=loss, step="far += gap.abs().sum().item()", epoch="print(far)")
    assert f"far += {SUMMED.format('gap.abs().sum()')}\n" in text and "gather" not in text
    assert "metrics_gather" not in findings


def test_terms_of_a_loss_that_are_set_in_branches_are_gathered_after_the_backward_pass(trained: Trained) -> None:
    terms = PICK.format(by=":")
    loss = "if epoch == 0:\n    far, square = pick(model(x)[:, 0], 2 * y)\nelif epoch == 1:\n    continue\nelse:\n"
    loss += "    far, square = pick(model(x)[:, 0], y)\nloss = far.mean() + square.mean()"
    text, findings = trained(
        top=terms, built="total = n = 0", loss=loss, step="total += square.sum().item()\nn += far.numel()",
        epoch="print(total / n)",
    )  # fmt: skip
    gathered = "square, far = accelerator.gather_for_metrics((square, far))\n        total +="
    assert gathered in text and text.index("accelerator.backward(loss)") < text.index(gathered)
    assert findings == []


DIVIDED = """\
class Losses:
    def __init__(self, average):
        self.average = average
    def build(self):
        return self.cross
    def cross(self, out, y):
        criterion = torch.nn.CrossEntropyLoss(reduction="sum")
        count = out.size()[0]
        loss = criterion(out, y)
        if self.average:
            loss /= count
        return loss
criterion = Losses(flag()).build()"""


def test_a_loss_that_its_function_divides_is_a_tensor(trained: Trained) -> None:
    """A number of the batch goes into it, and it stays what it was."""
    text, _ = trained(
        top=DIVIDED,
        loss="loss = criterion(model(x), y)",
        step="total += loss.item()",
        epoch="print(total / len(loader))",
    )
    assert "total += accelerator.reduce(loss.detach()" in text


REUSED = """\
for x, y in loader:
    got = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    got.backward()
    optimizer.step()
    total += got.item()
hits = 0
for x, y in loader:
    got = model(x)
    loss = torch.nn.functional.cross_entropy(got, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hits += (got.argmax(1) == y).sum().item()
print(total / len(loader), hits)"""


def test_a_name_that_holds_a_loss_in_another_loop_holds_rows_here(trained: Trained) -> None:
    """What a name holds is asked where it is read: a mean of scores over the processes is a score of no row."""
    text, _ = trained(end=REUSED)
    assert 'total += accelerator.reduce(got.detach(), reduction="mean").item()\n' in text
    assert "accelerator.gather_for_metrics((got, y))\n    hits += (got.argmax(1) == y).sum().item()\n" in text


def test_a_loss_that_is_scaled_before_its_backward_pass_is_one_before_that_too(trained: Trained) -> None:
    top = "class Judge(torch.nn.Module):\n    def forward(self, x, y):\n        return judged(x, y)"
    step = "share = judge(x, y)\ntotal += share.item()\nshare = share / 4\nshare.backward()"
    text, _ = trained(top=top, built="judge = Judge()", step=step, epoch="print(total)")
    assert 'total += accelerator.reduce(share.detach(), reduction="sum_of_means").item()\n' in text


STAGES = """\
def stages(x):
    found = []
    for _ in range(2):
        x = model(x)
        found.append(x.detach().cpu().numpy())
    return found


"""


@pytest.mark.parametrize(
    "step",
    ["total += abs(kept[-1] - y.cpu().numpy()).sum()", "gap = abs(kept[-1] - y.numpy())\ntotal += gap.sum()"],
    ids=["at once", "by a variable"],
)
def test_what_is_computed_of_rows_in_a_list_is_reduced_and_the_rest_not_gathered(step: str, trained: Trained) -> None:
    """The labels of all processes have other rows than the list of one."""
    text, _ = trained(built=STAGES, step=f"kept = stages(x)\n{step}", epoch="print(total)")
    reduced = "total += accelerator.reduce(torch.tensor("
    assert reduced in text and 'reduction="sum").item()' in text and "gather_for_metrics" not in text
    assert "y.cpu().numpy()" in text


@pytest.mark.parametrize(("of", "reduced"), [("sum", False), ("mean", True)])
def test_what_an_optimizer_returns_of_its_closure_is_added_up_already(of: str, reduced: bool, trained: Trained) -> None:
    """The mean over the processes of what is equal on them is that; a sum would count it N times."""
    closure = f"""\
def again():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y, reduction="{of}")
    loss.backward()
    return loss
loss = optimizer.step(again)"""
    text, _ = trained(loss=closure, step="total += loss.item()", epoch="print(total / len(loader))")
    assert ("total += accelerator.reduce(" in text) is reduced


LEARNER = """\
class Learner:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        {kept}

    def update(self, x, y):
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        {keeps}
        return {given}

"""
LEARNT = """\
import torch
from torch.utils.data import DataLoader
from data import data

{learner}
learner = Learner(torch.nn.Linear(8, 2))
best = 10.0
for epoch in range(3):
    total = 0.0
    loader = DataLoader(data, batch_size=32)
    for x, y in loader:
        {step}
    if total / len(loader) < best:
        best = total / len(loader)
        torch.save(learner.model.state_dict(), "best.pt")
"""


def learnt(step: str, kept: str = "pass", keeps: str = "pass", given: str = "loss.item()") -> tuple[str, list[str]]:
    learner = LEARNER.format(kept=kept, keeps=keeps, given=given)
    text = LEARNT.format(learner=learner, step=step)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file.after.decode(), [found.id for found in file.diagnoses]


@pytest.mark.parametrize(
    "step", ["total += learner.update(x, y)", "loss = learner.update(x, y)\n        total += loss"]
)
def test_a_method_that_trains_collects_nothing_of_what_it_is_given(step: str) -> None:
    """Its name is that of a meter's, and its object holds what it is given; neither counts for what it gives."""
    text, findings = learnt(step)
    assert 'return accelerator.reduce(loss.detach(), reduction="mean").item()' in text and findings == []


def test_what_the_object_of_such_a_method_holds_is_its_own() -> None:
    _, findings = learnt("total += learner.update(x, y)", "self.last = 0.0", "self.last = y[0].item()", "self.last")
    assert "local-decision" in findings


def test_a_loss_of_rows_that_all_processes_have_is_collected_as_it_is() -> None:
    text = dedent("""\
        import torch
        x = torch.arange(0, 10, 0.2).unsqueeze(1)
        y = x * 9 + 5
        known, wanted, others, answers = x[:40], y[:40], x[40:], y[40:]
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        measure = torch.nn.L1Loss()
        losses, tests = [], []
        for epoch in range(10):
            loss = measure(model(known), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            with torch.no_grad():
                test = measure(model(others), answers)
                tests.append(test.item())
        print(losses, tests)
    """)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    after = file.after.decode()
    assert 'losses.append(accelerator.reduce(loss.detach(), reduction="mean").item())' in after
    assert "        tests.append(test.item())\n" in after


METER = """\
class Meter:
    def __init__(self):
        self.total, self.steps = 0.0, 0

    def update(self, value):
        self.total += value
        self.steps += 1

    def __call__(self):
        return self.total / self.steps

meter, curve, lasts = Meter(), [], []"""
ONCE_A_STEP = 'accelerator.reduce(loss.detach(), reduction="mean").item()'


@pytest.mark.parametrize("kept", ["curve.append(meter())", "mean = meter()\ncurve.append(round(mean, 3))"])
def test_what_is_read_off_a_total_that_is_whole_is_not_reduced_again(kept: str, trained: Trained) -> None:
    """All processes have the same number there: another reduction would only cost time."""
    text, findings = trained(top=METER, step=f"meter.update(loss.item())\n{kept}", end="print(meter(), curve)")
    assert f"meter.update({ONCE_A_STEP})" in text and text.count("accelerator.reduce(") == 1
    assert findings == []


@pytest.mark.parametrize(
    "kept", ["curve.append(meter() + loss.item())", "curve.append(meter())\nmeter.update(loss.item())"]
)
def test_what_is_not_whole_by_then_is_reduced(kept: str, trained: Trained) -> None:
    first = "" if kept.endswith("item())\n") or "update" in kept else "meter.update(loss.item())\n"
    text, _ = trained(top=METER, step=first + kept, end="print(meter(), curve)")
    assert text.count("accelerator.reduce(") + text.count("mean_loss.item()") // 2 == 2


ARRAYS = """\
losses = np.array([])
with torch.no_grad():
    for x, y in test_loader:
        losses = np.append(losses, torch.nn.functional.cross_entropy(model(x), y).item())
print(losses.mean())"""


@pytest.mark.parametrize(
    "grown",
    ["np.append(kept, {})", "np.concatenate((kept, [{}]))", "np.hstack([kept, {}])"],
    ids=["append", "concatenate", "hstack"],
)
def test_an_array_that_grows_is_filled_as_a_list_is(grown: str, trained: Trained) -> None:
    """The mean of the epoch was that of one process's rows."""
    text, findings = trained(
        top="import numpy as np",
        built="kept = np.array([])",
        step=f"kept = {grown.format('loss.item()')}",
        epoch="print(kept.mean())",
    )
    mean = 'accelerator.reduce(loss.detach(), reduction="mean").item()'
    assert f"kept = {grown.format(mean)}" in text and findings == []


def test_means_of_joined_batches_in_an_array_are_told(trained: Trained) -> None:
    _, findings = trained(top="import numpy as np", epoch=ARRAYS)
    assert findings == ["mean-of-batches"]


def test_a_figure_that_is_a_tensor_on_the_host_stays_one(trained: Trained) -> None:
    """``torch.stack(means)`` after the epoch takes no numbers."""
    step = "few = [loss.item(), loss.item()]\nmeans.append(torch.mean(torch.tensor(few)))"
    text, _ = trained(built="means = []", step=step, epoch="print(torch.stack(means).mean())")
    assert 'means.append(accelerator.reduce(torch.mean(torch.tensor(few)), reduction="mean"))' in text
