"""Sums of batch means that are divided by the number of samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, Target
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.report.expect import expectations
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def messages() -> Callable[[str], list[tuple[str, str]]]:
    """The ids and texts of the findings of a script that is edited."""

    def run(script: str) -> list[tuple[str, str]]:
        (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
        assert "accelerator.backward(" in file.after.decode()
        return [(found.id, found.message) for found in file.diagnoses]

    return run


@pytest.mark.parametrize(
    ("added", "findings"),
    [
        ("weight + loss.item()", ["mean-of-batches"]),
        ("weight", []),
    ],
)
def test_only_the_mean_of_a_loss_is_reported(added: str, findings: list[str], trained: Trained) -> None:
    text, found = trained(built="weight = 0.5", step=f"total += {added}", epoch="total /= len(data)\nprint(total)")
    assert f"total += {added.replace('loss.item()', REDUCED)}\n" in text
    assert found == findings


@pytest.mark.hazard("U13")
@pytest.mark.parametrize("shown", ["total / len(data)", "total / (len(data) // 32)", "total * 32 / len(data)", "total"])
@pytest.mark.parametrize("added", ["loss.item()", "0.5 * loss.item()", "loss.item() / 32"])
def test_a_sum_of_means_adds_up_the_batches_of_all_processes(added: str, shown: str, trained: Trained) -> None:
    """It was their mean over the processes, N times too small, and a finding said so."""
    text, found = trained(step=f"total += {added}", epoch=f"print({shown})")
    assert 'accelerator.reduce(loss.detach(), reduction="sum_of_means").item()' in text
    assert not found


@pytest.mark.parametrize(
    "step",
    [
        "total += loss.item() / len(loader)",
        "total += loss.item() / len(x)",
        "total += loss.item()\nseen += 1\nbar.set_description(str(total / seen))",
    ],
)
def test_a_sum_of_what_a_process_divides_by_its_own_count_is_none_of_all(step: str, trained: Trained) -> None:
    """A bar shows the average so far: with the sum over the processes it would be N times too large."""
    text, _ = trained(built="seen = 0", step=step, epoch="print(total)")
    assert 'accelerator.reduce(loss.detach(), reduction="mean").item()' in text


@pytest.mark.parametrize("again", ["total = loss.item()", "total, kept = loss.item(), 0"])
def test_what_each_batch_begins_anew_is_no_sum_over_batches(again: str, trained: Trained) -> None:
    _, found = trained(step=f"{again}\ntotal += 0.5 * loss.item()", epoch="print(total / len(data))")
    assert "mean-of-batches" not in found
    text, _ = trained(step=f"if x is None:\n    {again}\ntotal += loss.item()", epoch="print(total / len(data))")
    assert 'reduction="sum_of_means"' in text


REDUCED = 'accelerator.reduce(loss.detach(), reduction="mean").item()'


@pytest.mark.hazard("U13")
@pytest.mark.parametrize(
    ("divisor", "findings"),
    [
        ("(len(data) // 32)", ["mean-of-batches"]),
        ("math.ceil(len(data) / 32)", ["mean-of-batches"]),
        ("i", ["mean-of-batches"]),
        ("(i + 1)", []),
        ("len(loader)", []),
    ],
)
def test_a_mean_over_the_batches_by_another_count(divisor: str, findings: list[str], trained: Trained) -> None:
    _, found = trained(
        built="import math", batch="i, (x, y)", source="enumerate(loader)", step="total += loss.item() + 0",
        epoch=f"print(total / {divisor})",
    )  # fmt: skip
    assert found == findings


SCALED = ("total * 32 / len(data)", "32 * total / len(data)", "total * (32 / len(data))")


@pytest.mark.hazard("U13")
@pytest.mark.parametrize("figure", SCALED)
def test_a_mean_over_the_batches_that_is_scaled_before_it_is_divided(figure: str, trained: Trained) -> None:
    """`total * batch_size / len(data)` is the mean on one process, and N times smaller on N."""
    assert trained(step="total += loss.item() + 0", epoch=f"print({figure})")[1] == ["mean-of-batches"]
    assert trained(step="total += loss.item()", epoch="print(100 * total / len(loader))")[1] == []


COUNTED = """\
parts = {"fit": loader, "test": test_loader}
rows = {name: len(part.dataset) for name, part in parts.items()}
listed = {"fit": len(loader.sampler), "test": 5}
def sized(part):
    return part, {"fit": len(part.dataset)}
class Kept:
    def __init__(self, part):
        self.rows = len(part.dataset)
_, handed = sized(loader)
kept = Kept(loader)
def rate(total, rows):
    return total / (int(rows / 32) + 1)
"""


@pytest.mark.hazard("U13")
@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("total / (int(rows['fit'] / 32) + 1)", "counted by hand"),
        ("total / (len(loader.sampler) // 32)", "counted by hand"),
        ("total / rows[part]", "the number of samples"),
        ("total / len(loader.sampler)", "the number of samples"),
        ("total / listed['fit']", "the number of samples"),
        ("total / listed['test']", "listed['test']"),
        ("total / (int(handed['fit'] / 32) + 1)", "counted by hand"),
        ("total / kept.rows", "the number of samples"),
        ("total / (len(loader) + 1)", ""),
    ],
    ids=[
        *("rows in a dict, halved", "a sampler, halved", "rows in a dict", "a sampler", "one entry of several"),
        *("another entry", "given back in a tuple", "an attribute", "batches"),
    ],
)
def test_the_number_of_rows_is_known_wherever_it_is_kept(
    shown: str, told: str, messages: Callable[[str], list[tuple[str, str]]]
) -> None:
    """The mean of each batch is added up N times less often, and the divisor is the same: N times too small."""
    script = SCRIPT.format(built=COUNTED, step="total += loss.item() + 0", shown=shown)
    found = messages(script)
    assert [id for id, _ in found] == (["mean-of-batches"] if told else [])
    assert all(told in message and "N times smaller" in message for _, message in found)


OF_TENSORS = """\
import math
import torch
from torch.utils.data import DataLoader, TensorDataset
def train(model, rows, labels, size=8):
    count = {count}
    batches = math.ceil(count / size)
    rows = rows.float()
    loader = DataLoader(TensorDataset(rows, labels), batch_size=size, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    total /= batches
    print(total)
train(torch.nn.Linear(3, 2), torch.randn(40, 3), torch.randint(0, 2, (40,)))
"""


@pytest.mark.hazard("U13")
@pytest.mark.parametrize(
    ("count", "summed"),
    [
        ("len(rows)", True),
        ("rows.shape[0]", True),
        ("labels.size(0)", True),
        ("len(labels)", True),
        ("labels.shape[1]", False),
        ("len(model)", False),
    ],
)
def test_what_a_data_set_is_made_of_has_as_many_rows(count: str, summed: bool) -> None:
    """The batches were counted by hand from the tensors of a data set: the shown loss was 1/N of the script's."""
    script = OF_TENSORS.format(count=count)
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ('reduction="sum_of_means"' in file.after.decode()) is summed


def test_a_batch_of_the_same_name_is_not_what_a_data_set_is_made_of() -> None:
    script = OF_TENSORS.format(count="len(x)").replace("    rows = rows.float()\n", "")
    script = script.replace("(rows, labels)", "(x, labels)").replace("(model, rows", "(model, x")
    script = script.replace("total /= batches", "total /= len(x)")
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert 'reduction="mean"' in file.after.decode()


SCRIPT = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
test_loader = DataLoader(test_data, batch_size=100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{built}
for part in ["fit"]:
    total = 0.0
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {step}
    print({shown})
"""


FEWER = "on N processes there are N times fewer batches to add up"
UNDIVIDED = {
    "a number, at each batch": ("total += loss.item() / 32 + 0", "total", "`32` in each"),
    "the rows of the batch": ("total += loss.item() / len(x)", "total", "`len(x)` in each"),
    "those in a variable": ("n = x.shape[0]\n        total += loss.item() / n", "total", "`n` in each"),
    "a number of a table": ("n = {'fit': 32}['fit']\n        total += loss.item() / n + 0", "total", "`n` in each"),
    "the number of batches": ("total += loss.item() / len(loader)", "total", ""),
    "twice as many": ("n = 2\n        n *= len(loader)\n        total += loss.item() / n", "total", ""),
}


@pytest.mark.parametrize(("step", "shown", "told"), UNDIVIDED.values(), ids=UNDIVIDED)
def test_a_sum_over_batches_is_one_whatever_else_divides_it(
    step: str, shown: str, told: str, messages: Callable[[str], list[tuple[str, str]]]
) -> None:
    found = messages(SCRIPT.format(built="", step=step, shown=shown))
    assert [id for id, _ in found] == (["mean-of-batches"] if told else [])
    assert all(f"is divided by {told}" in message for _, message in found)
    assert all(message.endswith(FEWER) for _, message in found)


GIVEN_BACK = """import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def epoch(rows, train):
    total, hits = 0.0, 0
    for x, y in rows:
        n = len(x)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item() / n
    return {given}
{reads}
"""
CALLERS = {
    "shown at once": ("total", "print(epoch(loader, True))", True),
    "kept first": ("total", "one = epoch(loader, True)\nprint(one)", True),
    "in a tuple": ("total, hits", "one, two = epoch(loader, True)\nprint(one)", True),
    "divided there": ("total", "print(epoch(loader, True) / len(loader))", False),
    "divided later": ("total", "one = epoch(loader, True)\none /= len(loader)\nprint(one)", False),
}


@pytest.mark.parametrize(("given", "reads", "told"), CALLERS.values(), ids=CALLERS)
def test_callers_are_asked_what_becomes_of_a_sum_over_batches(given: str, reads: str, told: bool) -> None:
    """One finding that says what is so, and no other that says the shard's figure is meant, or that it is close."""
    script = GIVEN_BACK.format(given=given, reads=reads)
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert 'total += accelerator.reduce(loss.detach(), reduction="mean").item() / n\n' in file.after.decode()
    found = [finding for finding in file.diagnoses if finding.id != "filled-batch"]
    assert [finding.id for finding in found] == (["mean-of-batches"] if told else [])
    assert all(finding.remedy.endswith(": total * accelerator.num_processes") for finding in found)
    assert len(file.diagnoses) == 1
    (file,) = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=True)).files
    (finding,) = file.diagnoses
    assert "the number of rows, and each process has only its shard" in finding.message


PHASED = """\
for part in ["fit", "test"]:
    total = 0.0
    for x, y in parts[part]:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        if part == "fit":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item(){weight}
    print(total / {divisor})"""


@pytest.mark.parametrize(
    ("weight", "divisor", "findings"),
    [
        ("", "(rows[part] // 32 + 1)", ["filled-batch"]),
        (" * len(y)", "rows[part]", ["filled-batch"]),
        ("", "len(parts[part])", ["filled-batch"]),
    ],
    ids=["batches counted by hand", "weighed", "batches"],
)
def test_a_figure_of_a_loop_of_phases_is_called_close(
    weight: str, divisor: str, findings: list[str], trained: Trained
) -> None:
    _, found = trained(built=COUNTED, end=PHASED.format(weight=weight, divisor=divisor))
    assert found == findings


def test_a_sum_over_rows_by_the_rows_of_a_sampler_counts_the_repeated_ones(trained: Trained) -> None:
    loss = "loss = torch.nn.functional.cross_entropy(model(x), y, reduction='sum')"
    _, found = trained(loss=loss, step="total += loss.item()", epoch="print(total / len(loader.sampler))")
    assert found == ["filled-batch"]


@pytest.mark.hazard("U13")
@pytest.mark.parametrize(
    ("use", "findings"),
    [
        ("print(total / steps)", ["mean-of-batches"]),
        ("total /= steps\nprint(total)", ["mean-of-batches"]),
        ("print(steps, total / len(held))", []),
    ],
    ids=["divided by it", "in place", "shown"],
)
def test_a_length_from_before_the_loader_is_prepared(use: str, findings: list[str], trained: Trained) -> None:
    last = (
        "held = DataLoader(data, batch_size=8)\nsteps = len(held)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)"
    )
    _, found = trained(built=last, source="held", step="total += loss.item()", epoch=use)
    assert found == findings


ON_ACCELERATE = Config(target=Target.ACCELERATE)

EVALUATED = """\
held = torch.utils.data.DataLoader(other, batch_size=32, drop_last={drop})
model.eval()
hits = 0
with torch.no_grad():
    for x, y in held:
        hits += (model(x).argmax(1) == y).sum().item()
print(hits)"""


@pytest.mark.hazard("U14")
@pytest.mark.parametrize(
    ("drop", "findings"), [("True", ["dropped-batches"]), ("drop", ["dropped-batches"]), ("False", [])]
)
def test_an_evaluation_that_leaves_out_batches(drop: str, findings: list[str], trained: Trained) -> None:
    """Accelerate leaves out a last turn that is not full; the runtime fills it up."""
    script = {"built": "drop = False if data else True\ndrop = True", "end": EVALUATED.format(drop=drop)}
    assert trained(**script, config=ON_ACCELERATE)[1] == findings
    assert trained(**script)[1] == []


MEANS = """\
def penalty(x, y):
    return torch.nn.functional.mse_loss(model(x), y)
held = torch.utils.data.DataLoader(other, batch_size=32, drop_last={drop})
kept = []
with torch.no_grad():
    for x, y in held:
        gap = penalty(x, y)
        kept.append(gap)
print(torch.mean(torch.stack(kept)))"""


@pytest.mark.parametrize("drop", [False, True])
def test_no_word_of_a_smaller_last_batch_where_the_loader_leaves_it_out(
    drop: bool, messages: Callable[[str], list[tuple[str, str]]]
) -> None:
    steps = GIVEN_BACK.format(given="total", reads="epoch(loader, True)")
    found = [text for id, text in messages(steps + MEANS.format(drop=drop)) if id == "mean-of-batches"]
    assert ["smaller last batch" in text for text in found] == [not drop]
    assert all("repeated rows that fill up the last one" in text for text in found)


CHOSEN = """\
def feed(rows, part):
    {chosen}
    return torch.utils.data.DataLoader(rows, batch_size=32, drop_last=fill)
held = feed(other, {part})
model.eval()
kept = []
with torch.no_grad():
    for x, y in held:
        kept.append(torch.nn.functional.cross_entropy(model(x), y).item())
print(sum(kept) / len(kept))"""

EITHER = "fill = True\n    if part == 'held':\n        fill = False"


@pytest.mark.hazard("U14")
@pytest.mark.parametrize(
    ("chosen", "part", "findings"),
    [
        ("fill = True", "'held'", ["dropped-batches", "mean-of-batches"]),
        ("fill = False\n    fill = part == 'held'\n    fill = False", "'held'", ["mean-of-batches"]),
        (EITHER, "'held'", ["dropped-batches", "mean-of-batches"]),
        ("fill = part", "False", ["mean-of-batches"]),
        ("fill = not part", "False", ["dropped-batches", "mean-of-batches"]),
        ("fill = True if part == 'train' else False", "'held'", ["mean-of-batches"]),
        ("fill = bool(part)", "'held'", ["dropped-batches", "mean-of-batches"]),
    ],
    ids=["one value", "set again", "in a branch", "given", "given, and turned", "one of two", "not known"],
)
def test_a_loader_whose_last_batch_is_decided_by_a_variable(
    chosen: str, part: str, findings: list[str], trained: Trained
) -> None:
    found = trained(end=CHOSEN.format(chosen=chosen, part=part), config=ON_ACCELERATE)[1]
    assert found == findings


BOTH_MADE_BY_ONE = """\
def feed(rows, learn{default}):
    {chosen}
    return torch.utils.data.DataLoader(rows, batch_size=32, drop_last=fill)
first = feed(data, True)
for x, y in first:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
held = feed(other{given})
hits = 0
with torch.no_grad():
    for x, y in held:
        hits += (model(x).argmax(1) == y).sum().item()
print(hits)"""


@pytest.mark.hazard("U14")
@pytest.mark.parametrize(
    ("default", "given", "chosen", "findings"),
    [
        ("", ", False", "if learn:\n        fill = True\n    else:\n        fill = False", []),
        ("", ", learn=False", "fill = False\n    if learn:\n        fill = True", []),
        ("=False", "", "fill = learn", []),
        ("=True", "", "fill = learn", ["dropped-batches"]),
        ("", ", sys.argv[1]", "fill = learn", ["dropped-batches"]),
    ],
    ids=["a branch for each", "a branch", "handed on", "left at its default", "not known"],
)
def test_a_loader_is_what_its_own_call_of_a_function_says(
    default: str, given: str, chosen: str, findings: list[str], trained: Trained
) -> None:
    """The training's loader, by the same function, leaves out batches; that of the evaluation may not."""
    end = BOTH_MADE_BY_ONE.format(default=default, given=given, chosen=chosen)
    assert trained(top="import sys", end=end, config=ON_ACCELERATE)[1] == findings


@pytest.mark.hazard("U14")
@pytest.mark.parametrize(
    ("options", "findings"),
    [("{'drop_last': True}", ["dropped-batches", "mean-of-batches"]), ("dict(num_workers=2)", ["mean-of-batches"])],
)
def test_a_loader_whose_options_are_spread(options: str, findings: list[str], trained: Trained) -> None:
    end = CHOSEN.replace("drop_last=fill", "**fill").format(chosen=f"fill = {options}", part="1")
    assert trained(end=end, config=ON_ACCELERATE)[1] == findings


def test_a_count_that_is_taken_again_is_the_one_that_is_seen(trained: Trained) -> None:
    built = "count = len(data)\nprint(count)\ncount = 1"
    shown = "count = len(loader)\nprint(total / count)"
    assert trained(built=built, step="total += loss.item()", epoch=shown)[1] == []


def test_a_training_that_leaves_out_batches_is_what_the_script_asks_for(trained: Trained) -> None:
    built = "loader = torch.utils.data.DataLoader(data, batch_size=32, drop_last=True)"
    assert trained(built=built, step="total += loss.item()", epoch="print(total / len(loader))")[1] == []


def test_a_sum_of_means_that_nothing_divides_is_told(trained: Trained) -> None:
    shows = ("print(total)", "print('{:.3f}'.format(total))", "print(f'{total}')", "print('%.3f, %d' % (total, epoch))")
    for shown in (*shows, "history.append((epoch, float(total)))", "print('loss', round(total, 2))"):
        assert trained(step="total += loss.item() + 0", epoch=shown)[1] == ["mean-of-batches"]
    assert trained(step="total += loss.item() / len(loader)", epoch="print(total)")[1] == []
    assert trained(step="total += loss.item()", epoch="mean = total / len(loader)\nprint(total, mean)")[1] == []


PSNR = """\
held = torch.utils.data.DataLoader(other, batch_size=32)
total = 0
with torch.no_grad():
    for x, y in held:
        out = model(x)
        error = torch.nn.functional.mse_loss(out, y)
        {figure}
print(total / len(held))"""


@pytest.mark.hazard("E3")
@pytest.mark.parametrize(
    ("figure", "findings"),
    [
        ("psnr = 10 * math.log10(1 / error.item())\n        total += psnr", ["prepare"]),
        ("total += error.sqrt().item()", ["prepare"]),
        ("total += error.item()", ["mean-of-batches"]),
    ],
    ids=["PSNR", "RMSE", "the error itself"],
)
def test_a_figure_that_is_not_additive(figure: str, findings: list[str], trained: Trained) -> None:
    """Every process evaluates the whole set."""
    assert trained(built="import math", end=PSNR.format(figure=figure))[1] == findings


DICE = """\
class Dice(torch.nn.Module):
    def forward(self, guess, wanted):
        both = torch.sum(guess * wanted)
        return 1 - 2 * both / (torch.sum(guess) + torch.sum(wanted))
class Count(torch.nn.Module):
    def forward(self, guess, wanted):
        return (guess - wanted).pow(2).sum()"""


@pytest.mark.hazard("U13")
@pytest.mark.parametrize(("criterion", "told"), [("Dice", True), ("Count", False)])
def test_a_mean_of_batches_whatever_the_criterion(criterion: str, told: bool, trained: Trained) -> None:
    _, found = trained(
        top=DICE, built=f"criterion = {criterion}()", loss="loss = criterion(model(x), y)",
        step="total += loss.item() + 0", epoch="print(total / len(data))",
    )  # fmt: skip
    assert ("mean-of-batches" in found) is told


PHASES = """\
def run(loader, phase):
    total = 0.0
    for x, y in loader:
        out = model(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        if phase == "train":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    print(total / len(loader))
first = DataLoader(data, batch_size=8, shuffle=True, drop_last={first})
other = DataLoader(held, batch_size=8, drop_last={other})
run(first, "train")
run(other, "val")"""


@pytest.mark.hazard("U14")
@pytest.mark.parametrize(
    ("first", "other", "told"), [("True", "True", True), ("True", "False", False), ("False", "False", False)]
)
def test_a_loop_of_phases_that_leaves_out_batches(first: str, other: str, told: bool, trained: Trained) -> None:
    _, found = trained(end=PHASES.format(first=first, other=other), config=ON_ACCELERATE)
    assert ("dropped-batches" in found) is told and "filled-batch" in found


def test_sums_of_both_phases_that_a_list_collects(trained: Trained) -> None:
    """Both halves of the quotient are made whole; the rows that fill up the last shard are in both."""
    phases = PHASES.replace("total = 0.0", "total, rows = [], []").replace("print(total / len(loader))", "print(RATE)")
    phases = phases.replace("(out, y)", '(out, y, reduction="sum")').replace("RATE", "sum(total) / sum(rows)")
    phases = phases.replace("total += loss.item()", "total.append(loss.item())\n        rows.append(len(y))")
    text, found = trained(end=phases.format(first=False, other=False))
    assert 'total.append(accelerator.reduce(loss.detach(), reduction="sum").item())' in text
    assert found == ["filled-batch"]


DRAWN = """\
def endless(source):
    while True:
        for x, y in source:
            yield x, y
turn = endless(DataLoader(data, batch_size=8, drop_last=True))
for step in range(9):
    x, y = next(turn)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()"""


@pytest.mark.hazard("U14")
def test_a_generator_that_hands_out_batches_is_no_evaluation(trained: Trained) -> None:
    assert "dropped-batches" not in trained(end=DRAWN, config=ON_ACCELERATE)[1]


@pytest.mark.parametrize(("bar", "findings"), [("tqdm(range(9))", []), ("Shown(9)", ["once", "local-decision"])])
def test_a_bar_that_shows_a_loss_counts_for_itself(bar: str, findings: list[str], trained: Trained) -> None:
    end = (
        f"bar = {bar}\nsource = iter(loader)\nfor step in bar:\n    x, y = next(source)\n"
        "    loss = torch.nn.functional.cross_entropy(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
        "    bar.set_postfix(loss=loss.item())\n    if step % 5 == 0:\n        torch.save(model.state_dict(), 'a.pt')"
    )
    assert trained(top="from tqdm import tqdm\nfrom shown import Shown", end=end)[1] == findings


@pytest.mark.parametrize(
    ("options", "step", "divisor", "config", "told"),
    [
        ("", "total += loss.item()", "len(loader)", Config(), True),
        ("", "total += loss.item()", "len(loader)", Config(keep_global_batch=True), False),
        (", drop_last=True", "total += loss.item()", "len(loader)", Config(), True),
        (", drop_last=True", "total += loss.item()", "len(loader)", ON_ACCELERATE, False),
        ("", "total += loss.item()", "len(data)", Config(), True),
        ("", "total += loss.item() * len(y)", "len(data)", Config(), False),
        ("", "total += (model(x).argmax(1) == y).sum().item()", "len(data)", Config(), False),
    ],
    ids=[
        "an average",
        "cut batches",
        "full batches",
        "full turns alone",
        "a sum of means",
        "weighed: a finding",
        "a count of rows",
    ],
)
def test_an_average_over_batches_that_are_filled_up_is_named(
    options: str, step: str, divisor: str, config: Config, told: bool
) -> None:
    script = SCRIPT.format(built="", step=step, shown=f"total / {divisor}")
    script = script.replace("batch_size=32", f"batch_size=32{options}")
    result = migrate([decode(script.encode(), Path("train.py"))], CATALOGUE, config)
    said = [text for text in expectations(result) if "total" in text and "filled up with repeated rows" in text]
    assert bool(said) is told


@pytest.mark.parametrize(
    ("parts", "told"),
    [("4", False), ("args.parts", False), ("parts", False), ("len(loader)", True), ("whole", True)],
)
def test_a_sum_over_batches_that_are_drawn_by_a_number(
    parts: str, told: bool, messages: Callable[[str], list[tuple[str, str]]]
) -> None:
    """So many are drawn on any number of processes, where the length of the loader is not in the number."""
    found = messages(f"""\
import argparse
import torch
from torch.utils.data import DataLoader
args = argparse.ArgumentParser().parse_args()
parts = 8
loader = DataLoader(data, batch_size=4)
whole = len(loader)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(loader)
for step in range(20):
    total = 0.0
    optimizer.zero_grad()
    for _ in range({parts}):
        try:
            x = next(batches)
        except StopIteration:
            batches = iter(loader)
            x = next(batches)
        loss = model(x).pow(2).mean() / 4
        total += loss.item() + 0
        loss.backward()
    optimizer.step()
    print(step, total)
""")
    assert any("divided by nothing" in text for _, text in found) is told


LIMITED = """\
summed = 0.0
with torch.no_grad():
    for i, (x, y) in enumerate(test_loader):
        {limit}
        summed += torch.nn.functional.cross_entropy(model(x), y).item()
print(summed / 5)"""


@pytest.mark.parametrize(("limit", "smaller"), [("if i == 5: break", False), ("x = x.float()", True)])
def test_an_evaluation_of_so_many_batches_divides_by_their_number(
    limit: str, smaller: bool, messages: Callable[[str], list[tuple[str, str]]]
) -> None:
    top = (
        "import torch\nfrom torch.utils.data import DataLoader\nmodel = torch.nn.Linear(8, 2)\n"
        "loader, test_loader = DataLoader(data, batch_size=32), DataLoader(held, batch_size=32)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x, y in loader:\n"
        "    optimizer.zero_grad()\n    torch.nn.functional.cross_entropy(model(x), y).backward()\n"
        "    optimizer.step()\n"
    )
    found = messages(f"{top}{LIMITED.format(limit=limit)}\n")
    told = [message for id, message in found if id == "mean-of-batches"]
    left = [message for id, message in found if id == "prepare"]
    assert len(told) == (not smaller) and "N times smaller" not in "".join(told)
    assert len(left) == smaller  # every process evaluates all batches


BOTH = """\
import sys
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from rows import data

def loss_of(out, y):
    if {test}:
        return F.mse_loss(out, y, reduction="sum")
    return F.mse_loss(out, y)

loader = DataLoader(data, 8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0
for x, y in loader:
    loss = loss_of(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item() + 0
print(total / len(data))
"""


@pytest.mark.parametrize(("test", "path"), [('"sum" in sys.argv', True), ("False", False)])
def test_a_mean_on_one_path_is_called_so(
    test: str, path: bool, messages: Callable[[str], list[tuple[str, str]]]
) -> None:
    (text,) = [said for name, said in messages(BOTH.format(test=test)) if name == "mean-of-batches"]
    assert ("on one path of the program, and is divided by" in text) == path
