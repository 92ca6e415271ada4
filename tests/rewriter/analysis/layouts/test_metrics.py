"""Evaluation loops whose metric is gathered: what the script has counted before is counted anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]
EVALUATION = """\
with torch.no_grad():
    right, seen = 0, 0
    for x, y in test_loader:
        {counted}
        out = model(x)
        right += (out.argmax(1) == y).sum().item()
        seen += n
    print(right / seen)"""


@pytest.mark.parametrize(
    ("counted", "anew"),
    [
        ("n = y.shape[0]", "n = y.shape[0]"),
        ("n = y.size(0)", "n = y.size(0)"),
        ("n = len(y)", "n = len(y)"),
        ("n = x.size(0)", "n = len(out)"),
    ],
)
def test_rows_that_were_counted_before_the_forward_are_counted_anew(counted: str, anew: str, trained: Trained) -> None:
    """The number of rows of one process would divide what all of them have right."""
    text, findings = trained(epoch=EVALUATION.format(counted=counted))
    assert f"out, y = accelerator.gather_for_metrics((out, y))\n            {anew}\n" in text
    assert findings == []


@pytest.mark.parametrize("counted", ["n, _ = x.shape", "n = float(y.size(0))", "n, *_ = x.size()"])
def test_a_count_that_cannot_be_repeated_leaves_the_loop(counted: str, trained: Trained) -> None:
    text, findings = trained(epoch=EVALUATION.format(counted=counted))
    assert "gather" not in text and findings == ["prepare"]


def test_a_count_that_only_the_forward_reads_is_left(trained: Trained) -> None:
    counted = "m = x.size(0)\n        x = x.view(m, -1)\n        n = 1"
    text, _ = trained(epoch=EVALUATION.format(counted=counted))
    assert text.count("m = x.size(0)") == 1


def test_what_is_set_anew_after_the_forward_is_not_gathered(trained: Trained) -> None:
    """The images are not sent around for a variable that holds the answers by then."""
    evaluation = EVALUATION.format(counted="n = len(y)").replace("(out.argmax(1) == y)", "(x == y)")
    text, findings = trained(epoch=evaluation.replace("out = model(x)", "out = model(x)\n        x = out.argmax(1)"))
    assert "out, y = accelerator.gather_for_metrics((out, y))\n" in text
    assert findings == []


LOOKED_UP = """\
held = torch.utils.data.DataLoader(other, batch_size=32)
hits = 0
for words, names in held:
    labels = Table().find(names)
    out = model(words)
    best = out.argmax(1)
    {metric}
print(hits)"""
TABLE = """\
class Table:
    def find(self, names):
        return torch.LongTensor([self.numbers.index(name) for name in names])"""


@pytest.mark.hazard("U12")
@pytest.mark.parametrize(
    ("metric", "whole"),
    [("hits += best.eq(labels).sum().item()", True), ("hits += (best == 1).sum().item()", False)],
    ids=["beside gathered rows", "not read"],
)
def test_rows_that_nobody_knows_are_not_compared_with_gathered_ones(metric: str, whole: bool, trained: Trained) -> None:
    text, findings = trained(top=TABLE, end=LOOKED_UP.format(metric=metric))
    assert ("gather_for_metrics" not in text) is whole
    assert ("prepare" in findings) is whole


EPISODES = """\
episodes = torch.utils.data.DataLoader(other, {batches})
scores = []
for x, y in episodes:
    out = model(x)
    scores.append(torch.nn.functional.cross_entropy(out, y).item())
print(sum(scores) / len(scores))"""


@pytest.mark.parametrize(
    ("batches", "whole"),
    [
        ("batch_sampler=Episodes(other)", True),
        ("1, False, None, Episodes(other)", True),
        ("batch_size=4, batch_sampler=None", False),
    ],
    ids=["by keyword", "by position", "none"],
)
def test_batches_that_a_sampler_makes_are_not_joined(batches: str, whole: bool, trained: Trained) -> None:
    """An episode is a whole: the rows of two of them are no larger episode."""
    top = "class Episodes:\n    def __iter__(self):\n        yield [0, 1]"
    text, findings = trained(top=top, end=EPISODES.format(batches=batches))
    assert ("gather_for_metrics" not in text) is whole
    assert ("prepare" in findings) is whole


FIGURE = """\
held = torch.utils.data.DataLoader(other, batch_size=8)
total = hits = 0
for x, y in held:
    out = model(x)
    {counted}
print(total, hits)"""
PSNR = """\
def psnr(a, b):
    return 10 * torch.log10(1 / ((a - b) ** 2).mean())"""


@pytest.mark.parametrize(
    ("counted", "whole"),
    [
        ("total += psnr(out, y).item()", True),
        ("if out.argmax() == 0:\n        hits += 1", True),
        ("total += ((out - y) ** 2).mean(1).sqrt().sum().item()", False),
        ("hits += (out.argmax(1) == y).sum().item()", False),
    ],
    ids=["a logarithm of a mean", "the best row of the batch", "a root for each row", "the best column of each row"],
)
def test_a_figure_that_rows_make_together_is_not_that_of_joined_batches(
    counted: str, whole: bool, trained: Trained
) -> None:
    """A PSNR of four batches at once is not the mean of theirs, and one best row among four batches is one of four."""
    text, findings = trained(top=PSNR, end=FIGURE.format(counted=counted))
    assert ("gather_for_metrics" not in text) is whole
    assert ("prepare" in findings) is whole


JUDGE = """\
class Judge(torch.nn.Module):
    def forward(self, out, y):
        wrong = (out.argmax(1) != y).sum()
        return torch.nn.functional.cross_entropy(out, y), wrong{more}"""
JUDGED = """\
judge = Judge()
held = torch.utils.data.DataLoader(other, batch_size=8)
loss = wrong = 0
with torch.no_grad():
    for x, y in held:
        {judged}
print(loss, wrong)"""


PAIRED = """\
def figures(x):
    out = torch.cat([model(x), model(-x)])
    first, second = out[:len(x)], out[len(x):]
    return {"margin": (first - second).sum(1), "wins": (first > second).float()}


held = torch.utils.data.DataLoader(other, batch_size=8)
found = {}
with torch.no_grad():
    for x, y in held:
        scores = figures(x)
        for k, v in scores.items():
            found.setdefault(k, []).extend(v.tolist())
print(found)"""


def test_a_table_of_what_may_be_rows_leaves_the_loop(trained: Trained) -> None:
    """Its loader was prepared, and the figures were those of one process: of preferences, both halves of a batch."""
    text, findings = trained(end=PAIRED)
    assert "gather_for_metrics" not in text and findings == ["prepare"]


JUDGES = {
    "unpacked": (
        "near, off = judge(model(x), y)\n        loss += near.item()\n        wrong += off.item()",
        'near = accelerator.reduce(near.detach(), reduction="mean")\n        '
        'off = accelerator.reduce(off.detach(), reduction="sum")\n',
    ),
    "by place": (
        "both = judge(model(x), y)\n        loss += both[0].item()\n        wrong += both[1]",
        'loss += accelerator.reduce(both[0].detach(), reduction="mean").item()\n        '
        'wrong += accelerator.reduce(both[1].detach(), reduction="sum")\n',
    ),
}


@pytest.mark.parametrize(("judged", "becomes"), JUDGES.values(), ids=JUDGES)
def test_what_a_module_reduces_over_the_rows_is_reduced_and_not_gathered(
    judged: str, becomes: str, trained: Trained
) -> None:
    """The figure of each process would become as many figures as there are processes."""
    kept = Config(keep_global_batch=True)
    text, findings = trained(top=JUDGE.format(more=""), end=JUDGED.format(judged=judged), config=kept)
    assert becomes in text and "gather_for_metrics" not in text
    assert findings == []


@pytest.mark.parametrize("judged", [judged for judged, _ in JUDGES.values()], ids=JUDGES)
def test_a_sum_over_rows_that_a_module_gives_leaves_the_loop(judged: str, trained: Trained) -> None:
    """The rows that fill up a last batch were in the sum, and not in what it is divided by: a perplexity of 48 became
    136, and nothing was said."""
    text, findings = trained(top=JUDGE.format(more=""), end=JUDGED.format(judged=judged))
    assert "accelerator.reduce" not in text and "gather_for_metrics" not in text
    assert findings == ["prepare"]


@pytest.mark.parametrize(
    ("more", "judged"),
    [
        (".item()", "near, off = judge(model(x), y)\n        loss += near.item()\n        wrong += off"),
        ("", "both = judge(model(x), y)\n        for one in both:\n            loss += one.item()"),
    ],
    ids=["a number", "entries that a loop reads"],
)
def test_figures_that_cannot_be_reduced_leave_the_loop(more: str, judged: str, trained: Trained) -> None:
    text, findings = trained(top=JUDGE.format(more=more), end=JUDGED.format(judged=judged))
    assert "accelerator.reduce" not in text and "gather_for_metrics" not in text
    assert findings == ["prepare"]


def test_the_rows_of_a_result_are_gathered_without_its_loss(trained: Trained) -> None:
    """A model that gives its own loss beside its scores, in a tuple of which the places are read."""
    top = """\
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, x, y=None):
        scores = self.layer(x)
        if y is not None:
            return torch.nn.functional.cross_entropy(scores, y), scores
        return scores"""
    end = """\
held = torch.utils.data.DataLoader(other, batch_size=8)
loss = hits = 0
with torch.no_grad():
    for x, y in held:
        result = model(x, y=y)
        loss += result[0].item()
        hits += (result[1].argmax(1) == y).sum().item()
print(loss, hits)"""
    built = "model = Tagger()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text, findings = trained(top=top, built=built, loss="loss = model(x, y)[0]", end=end)
    assert 'loss += accelerator.reduce(result[0].detach(), reduction="mean").item()\n' in text
    assert "hits += (accelerator.gather_for_metrics(result[1]).argmax(1) == y).sum().item()\n" in text
    assert "        y = accelerator.gather_for_metrics(y)\n" in text
    assert findings == ["mean-of-batches"]


OVERLAP = """\
def overlap(guess, wanted):
    both = (guess * wanted).sum().item()
    return 2 * both / (guess.sum().item() + wanted.sum().item())"""
OVERLAPS = """\
with torch.no_grad():
    found = 0.0
    for x, y in test_loader:
        found += FIGURE
    print(found / len(test_loader))"""


@pytest.mark.parametrize(
    "figure",
    ["overlap(model(x).argmax(1).float(), y.float())", "float((model(x).argmax(1) == y).sum()) / (y > 0).sum().item()"],
)
def test_a_quotient_of_the_rows_of_one_batch_leaves_the_loop(figure: str, trained: Trained) -> None:
    epoch = OVERLAPS.replace("FIGURE", figure)
    text, findings = trained(top=OVERLAP, epoch=epoch)
    assert "gather" not in text and findings == ["prepare"]


HEADS = """\
criterion, heads = torch.nn.MSELoss(), False
found = rows = 0
with torch.no_grad():
    for x, y in test_loader:
        if heads:
            given = model(x)
            wrong = 0
            for out in given:
                wrong += criterion(out, y)
            wrong /= len(given)
            {more}
        else:
            out = model(x)
            wrong = criterion(out, y)
        found += wrong.item() * len(x)
        rows += len(x)
print(found / rows)"""
AGAIN = "for _ in range(2):\n                wrong = criterion(model(x), y)"


@pytest.mark.parametrize(
    ("more", "whole"),
    [("pass", True), ("rows += 0 * len(x)", False), (AGAIN, False)],
    ids=["set anew in each branch", "counted in a branch", "run in a loop of a branch"],
)
def test_a_loss_that_each_branch_sets_is_reduced_after_them(more: str, whole: bool, trained: Trained) -> None:
    text, findings = trained(end=HEADS.format(more=more))
    reduced = (
        '        wrong = accelerator.reduce(wrong.detach(), reduction="mean")\n        found += wrong.item() * len(y)'
    )
    assert (reduced in text) is whole
    assert set(findings) == ({"mean-of-batches"} if whole else {"prepare"})


ROW_BY_ROW = """\
from tqdm import tqdm
rates = []
for {target} in {source}:
    x, y = batch
    guesses, wanted = model(x).argmax(1).cpu().numpy(), y.cpu().numpy()
    for k in range(wanted.shape[0]):
        rates.append(float(guesses[k] == wanted[k]))
print(sum(rates) / len(rates))"""


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("batch", "test_loader"),
        ("i, batch", "enumerate(test_loader)"),
        ("i, batch", "tqdm(enumerate(test_loader, 0), total=9)"),
    ],
    ids=["alone", "counted", "counted in a bar"],
)
def test_a_value_for_each_row_is_none_of_the_batch(target: str, source: str, trained: Trained) -> None:
    text, findings = trained(end=ROW_BY_ROW.format(target=target, source=source))
    assert "gather_for_metrics(" in text and findings == []


RATIOS = """\
held = torch.utils.data.DataLoader(other, batch_size=8)
rates = []
total = rows = 0
with torch.no_grad():
    for x, y in held:
        out = model(x)
        hits = (out.argmax(1) == y).sum()
        {collected}
print(sum(rates) / max(len(rates), 1), total / max(rows, 1))"""


@pytest.mark.parametrize(
    ("collected", "findings"),
    [
        ("rates.append(hits.item() / float(y.size()[0]))", ["mean-of-batches"]),
        ("rate = hits.item() / len(y)\n        rates.append(100 * rate)", ["mean-of-batches"]),
        ("some = y[y == 1].size(0)\n        total += hits.item() / some\n        rows += 1", ["mean-of-batches"]),
        ("rate = hits.item() / len(y)\n        total += rate * len(y)\n        rows += len(y)", []),
        ("total += hits.item()\n        rows += len(y)", []),
        ("rates.append((out / out.sum(1, keepdim=True)).mean().item())", ["mean-of-batches"]),
        ("rates.append((out / out.sum(1, keepdim=True)).sum().item())", ["mean-of-batches"]),
        ("rates.append(hits.item() / 8)", ["mean-of-batches"]),
    ],
    ids=[
        *("of the rows", "by a variable", "of the rows of a class", "weighted by the rows"),
        *("both halves", "a mean of what is divided row by row", "a sum of it", "by a constant"),
    ],
)
def test_a_mean_of_the_batches_ratios_is_named(collected: str, findings: list[str], trained: Trained) -> None:
    """Joined batches are fewer, and a smaller last one weighs differently among them."""
    text, found = trained(end=RATIOS.format(collected=collected))
    assert "gather_for_metrics(" in text and found == findings


@pytest.mark.parametrize(
    ("rate", "shown", "told"),
    [
        ("hits.item() / len(y)", "rates / len(held)", ("note", "average")),
        ("100 * hits.item() / y.size(0)", "rates / len(held)", ("note", "average")),
        ("(y == out.argmax(1)).sum().item() / len(out)", "rates / len(held)", ("note", "average")),
        ("hits.item() / y[y == 1].size(0)", "rates / len(held)", ("review", "no-sum")),
    ],
    ids=["of the rows", "in percent", "by what was given", "of some rows"],
)
def test_a_rate_of_the_rows_is_a_mean_over_them(rate: str, shown: str, told: tuple[str, str]) -> None:
    """As of a loss, an average of such means is close; it was one more thing to review."""
    text = ROW_RATES.format(rate=rate, shown=shown)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [one for one in file.diagnoses if one.id == "mean-of-batches"]
    assert (found.severity.value, found.case) == told


PER_ROW = """\
def scores(rows, targets, each):
    found = []
    for row, target in zip(rows, targets):
        hits, misses = 0, len(row)
        for one in row:
            if one > target:
                hits += 1
                misses -= 1
        found.append(hits / (hits + misses))
    return {given}"""


@pytest.mark.parametrize(
    ("given", "findings"), [("np.asarray(found)", []), ("other.by_class(rows, targets)", ["mean-of-batches"])]
)
def test_an_entry_of_a_list_that_has_one_for_each_row_is_of_a_row(
    given: str, findings: list[str], trained: Trained
) -> None:
    """What else a function gives of a batch may be a figure of each class."""
    end = (
        "kept = []\nwith torch.no_grad():\n    for x, y in test_loader:\n        out = model(x)\n"
        "        for score in scores(out.cpu(), y, True):\n            kept.append(score)\nprint(np.mean(kept))"
    )
    text, found = trained(top="import numpy as np\nimport other\n" + PER_ROW.format(given=given), end=end)
    assert "gather_for_metrics(" in text and found == findings


@pytest.mark.parametrize(
    ("collected", "told"),
    [
        ("total += judge.score(out, y) * len(y)", ("note", "no mean over the rows")),
        ("total += judge.score(out, y)", ("review", "no sum over the rows")),
    ],
)
def test_what_is_weighed_with_the_number_of_rows_is_told_as_a_mean(collected: str, told: tuple[str, str]) -> None:
    """The script takes it for a mean over the rows: that is the same of joined batches."""
    end = f"import judge\ntotal = 0.0\nfor x, y in held:\n    out = net(x)\n    {collected}\nprint(total / 100)\n"
    text = ROW_RATES.partition("rates = 0")[0] + end
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [one for one in file.diagnoses if one.id == "mean-of-batches"]
    assert found.severity.value == told[0] and told[1] in found.message


ROW_RATES = """\
import torch
from torch.utils.data import DataLoader
loader = DataLoader(data, batch_size=4, shuffle=True)
held = DataLoader(other, batch_size=4)
net = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
rates = 0
with torch.no_grad():
    for x, y in held:
        out = net(x)
        hits = (out.argmax(1) == y).sum()
        rates += {rate}
print({shown})
"""


@pytest.mark.parametrize(
    "collected", ["unread += hits.item() / len(y)", "unread = unread + hits.item() / len(y)", "unread += 1 / len(y)"]
)
def test_a_figure_that_nothing_reads_is_not_named(collected: str, trained: Trained) -> None:
    """Left over from another loop, it is neither shown nor returned."""
    text, found = trained(
        end=RATIOS.format(collected=f"total += hits.item()\n        rows += len(y)\n        {collected}").replace(
            "total =", "unread = total ="
        )
    )
    assert "gather_for_metrics(" in text and found == []


METER = """\
import numpy as np
import statistics
from sklearn.metrics import f1_score
from elsewhere import judged
class Meter:
    def __init__(self):
        self.total = self.rows = 0
    def update(self, value, rows=1):
        self.total += value * rows
        self.rows += rows
def precision(out, y):
    rows = y.size(0)
    hits = out.topk(1, 1)[1].t().eq(y.view(1, -1).expand_as(y.view(1, -1)))
    return hits[:1].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / rows)
"""
TRAINED = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
COLLECTED = """\
held = torch.utils.data.DataLoader(other, batch_size=8{options})
first, kept, table, meter = 0.0, [], {{"loss": [], 0: np.zeros((2, 2))}}, Meter()
with torch.no_grad():
    for x, y in held:
        out = model(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        {collected}
print(first, kept, np.mean(kept), table, meter.total / meter.rows)"""


@pytest.mark.parametrize(
    ("collected", "told"),
    [
        ("kept.append(loss.item())", "`kept` collects a mean"),
        ("kept.append(loss)", "`kept` collects a mean"),
        ("first = first + loss.item()", "`first` collects a mean"),
        ("table['loss'].append(loss.item())", "`table['loss']` collects a mean"),
        ("for k, v in {'loss': loss.item()}.items():\n            table[k].append(v)", "`table` collects a mean"),
        ("meter.update(loss.item())", "`meter` collects a mean"),
        ("meter.update(precision(out, y).item())", "`meter` collects a mean"),
        ("meter.update(loss.item())\n        kept.append(loss.item())", "`meter`, `kept` collect means"),
        (
            "for c in np.unique(y.cpu()):\n            right = out[y == c].argmax(1).eq(c).sum()\n            "
            "table[0][c, 0] += right.item() / float(x[y == c].size(0))",
            "`table[0]` collects `right.item() / float(x[y == c].size(0))` of each batch",
        ),
        ("first += judged(out, y)", "`first` collects `judged(out, y)` of each batch"),
        ("kept.append(judged(out, y))", "`kept` collects `judged(out, y)` of each batch"),
        ("first += f1_score(y.cpu(), out.argmax(1).cpu())", "`first` collects `f1_score("),
        ("meter.update(judged(out, y), len(y))", "`meter` weighs `judged(out, y)` with the number"),
        ("meter.update(loss.item(), y.size(0))", ""),
        ("meter.update(precision(out, y).item(), rows=x.size(0))", ""),
        ("first += loss.item() * len(y)", ""),
        ("first += out.argmax(1).eq(y.view_as(out.argmax(1))).sum().item()", ""),
        ("top = out.topk(1, dim=1)[1]\n        first += (top == y.view(*top.shape)).sum().item()", ""),
        ("top = out.topk(1, dim=1)[1]\n        first += (top == y.reshape(top.size())).sum().item()", ""),
        ("top = out.topk(2, dim=1)[1]\n        first += (top == y[:, None].expand(*top.shape)).sum().item()", ""),
        ("first += judged(out, y).sum().item()", ""),
        ("kept.extend(judged(out).tolist())", ""),
        ("table['loss'].append(judged(out))", ""),
        ("kept += judged(out)", ""),
        ("for row, wanted in zip(out, y):\n            kept.append((row[wanted] - row[0]).item())", ""),
        ("part = 0.0\n        part += loss.item()\n        print(part)", ""),
    ],
)
def test_what_is_no_sum_of_rows_and_is_collected_over_joined_batches_is_named(collected: str, told: str) -> None:
    """One that is weighed by the number of rows is the same of joined batches."""
    text = METER + TRAINED + COLLECTED.format(collected=collected, options="")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"gather_for_metrics(" in file.after
    found = [one for one in file.diagnoses if one.id == "mean-of-batches"]
    assert len(found) == bool(told) and all(told in one.message for one in found)


@pytest.mark.parametrize("options", ["", ", drop_last=True"])
def test_a_mean_over_batches_of_one_process_weighs_the_joined_ones_alike(options: str, trained: Trained) -> None:
    """Of a last turn that not all processes have a batch of, the joined one is smaller."""
    end = COLLECTED.format(collected="kept.append(loss.item())", options=options)
    assert trained(top=METER, end=end)[1] == ["mean-of-batches"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("loss(model(x), y).item()", ["mean-of-batches"]),
        ("'loss', 2 * loss(model(x), y).item()", ["mean-of-batches"]),
        ("len(y), loss(model(x), y).item()", []),  # its caller can weigh it
        ("loss(model(x), y).item() * len(y)", []),
        ("(model(x).argmax(1) == y).sum().item()", []),
        ("model(x).argmax(1), y", []),
    ],
)
def test_what_a_generator_gives_of_each_batch_is_collected_by_its_caller(
    given: str, found: list[str], trained: Trained
) -> None:
    top = f"""\
loss = torch.nn.CrossEntropyLoss()
@torch.no_grad()
def figures(loader):
    model.eval()
    for x, y in loader:
        yield {given}"""
    end = "held = torch.utils.data.DataLoader(other, batch_size=8)\nprint(list(figures(held)))"
    assert trained(top=top, end=end)[1] == found


OVERLAPPING = """\
def overlap(out, y):
    guessed, wanted = [], []
    for place, one in enumerate(out.argmax(1).tolist()):
        if one > 0:
            guessed.append(place)
    for place, one in enumerate(y.tolist()):
        if one > 0:
            wanted.append(place)
    both = GIVEN
    try:
        return 2 * both / (len(guessed) + len(wanted))
    except ZeroDivisionError:
        return 0.0"""


@pytest.mark.parametrize("both", ["len(set(guessed) & set(wanted))", "sum(place in wanted for place in guessed)"])
def test_a_quotient_of_what_lists_and_sets_count_leaves_the_loop(both: str, trained: Trained) -> None:
    epoch = OVERLAPS.replace("FIGURE", "overlap(model(x), y)")
    text, findings = trained(top=OVERLAPPING.replace("GIVEN", both), epoch=epoch)
    assert "gather" not in text and findings == ["prepare"]


def test_rows_that_are_counted_by_the_first_of_all_sizes_are_those_of_the_labels(trained: Trained) -> None:
    """The images are not sent around to be counted."""
    evaluation = EVALUATION.replace("seen += n", "seen += x.size()[0]").replace("        {counted}\n", "")
    text, findings = trained(
        epoch=evaluation.replace("right += (", "right += criterion(out, y) * 0 + ("), top=CRITERION
    )
    assert "seen += y.size()[0]\n" in text and "x, y = accelerator" not in text
    assert findings == ["mean-of-batches"]


CRITERION = "criterion = torch.nn.CrossEntropyLoss()"


READER = """\
from transformers import AutoModel
from texts import encoded


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = AutoModel.from_pretrained("some-model")
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, ids, y=None, short=None):
        given = self.inner(ids)
        scores = self.layer(given[0])
        loss = None
        if y is not None:
            loss = torch.nn.CrossEntropyLoss()(scores.view(-1, 2), y.view(-1))
        rest = (scores,) + given[2:]
        return ((loss,) + rest) if loss is not None else rest"""


def test_a_result_with_a_loss_somewhere_in_it_is_not_gathered(trained: Trained) -> None:
    """The inputs come from code that nobody knows, the scores from a model that others have made."""
    end = """\
held = torch.utils.data.DataLoader(other, batch_size=8)
loss = hits = 0
with torch.no_grad():
    for texts, y in held:
        result = model(encoded(texts), y=y)
        loss += result[0].item()
        hits += (result[1].argmax(1) == y).sum().item()
print(loss, hits)"""
    built = "model = Reader()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text, findings = trained(top=READER, built=built, loss="loss = model(encoded(x), y=y)[0]", end=end)
    assert "gather_for_metrics" not in text and "accelerator.reduce" not in text
    assert "prepare" in findings


ENTRIES = """\
import torch
from torch.utils.data import DataLoader

class Coder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        gap = self.inner(x) - x
        return {"score": gap.abs().mean(1), "loss": GIVEN}

loader, held = DataLoader(rows, batch_size=8), DataLoader(others, batch_size=8)
model = Coder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    seen = 0.0
    for x in loader:
        optimizer.zero_grad()
        given = model(x)
        loss = given["loss"].mean()
        loss.backward()
        optimizer.step()
        ADDED
    print(seen)
    total, best = 0.0, 0.0
    for x in held:
        outs = model(x)
        total += outs["loss"].mean().item()
        best += outs["score"].mean().item()
    print(total / len(held), best / len(held))
"""


def _entries(given: str, added: str = "pass", read: str = ".mean()") -> str:
    text = ENTRIES.replace("GIVEN", given).replace("ADDED", added).replace('outs["loss"].mean()', f'outs["loss"]{read}')
    return migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files[0].after.decode()


def test_an_entry_of_rows_is_gathered_whatever_its_name() -> None:
    """The mean over the processes of a loss for each row mixes rows that have nothing to do with one another."""
    text = _entries("gap.square().mean(1)")
    assert 'total += accelerator.gather_for_metrics(outs["loss"]).mean().item()\n' in text
    assert 'best += accelerator.gather_for_metrics(outs["score"]).mean().item()\n' in text


def test_an_entry_that_is_one_number_is_reduced() -> None:
    text = _entries("gap.square().mean()")
    assert 'total += accelerator.reduce(outs["loss"].detach(), reduction="mean").mean().item()\n' in text


def test_an_entry_of_rows_is_not_reduced_as_a_loss_of_the_training() -> None:
    text = _entries("gap.square().mean(1)", 'seen += given["loss"].mean().item()')
    assert "accelerator.backward(" in text and 'reduce(given["loss"]' not in text
    assert "given = accelerator.gather_for_metrics(given)\n" in text


def test_an_entry_that_is_read_as_one_number_is_not_gathered() -> None:
    """What it is over the rows is not known, and gathered it is a number of each process, of which `item` reads one."""
    worst = "functools.reduce(max, [row.square().mean() for row in gap])"
    text = _entries(worst, read="")
    assert "gather_for_metrics" not in text and "accelerator.reduce(outs" not in text
    assert "for x in held:\n        x = send_to_device(x, accelerator.device)\n" in text


@pytest.mark.parametrize("called", ["judge", "judge.forward", "judge.rate"])
def test_what_a_criterion_gives_is_no_forward_pass(called: str, trained: Trained) -> None:
    """What was counted before it was counted after the forward pass, and is whole."""
    top = (
        "class Judge(torch.nn.CrossEntropyLoss):\n    def rate(self, out, y):\n        return (out - y).abs().mean()\n"
    )
    evaluation = f"""\
with torch.no_grad():
    right, worst = 0, 0.0
    for x, y in test_loader:
        out = model(x)
        right += (out.argmax(1) == y).sum().item()
        gap = {called}(out, y)
        worst += gap.item()
    print(right, worst / len(test_loader))"""
    text, findings = trained(top=f"{top}\njudge = Judge()", epoch=evaluation)
    assert "    out, y = accelerator.gather_for_metrics((out, y))\n" in text
    assert "prepare" not in findings


OWN_LOSS = """\
class Weighted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.squash = torch.nn.Sigmoid()

    def forward(self, out, y):
        near = torch.gather(torch.log_softmax(out, dim=1), 1, y.view(-1, 1))
        return -{reduced}

measure = Weighted()"""
WITH_OWN_LOSS = """\
with torch.no_grad():
    right, far = 0, 0.0
    for x, y in test_loader:
        out = model(x)
        far += measure(out, y).item()
        right += (out.argmax(1) == y).sum().item()
    print(right, far / len(test_loader))"""


@pytest.mark.parametrize("reduced", ["near.mean()", "self.squash(near).sum()"])
def test_a_loss_class_of_the_script_is_no_forward_pass(reduced: str, trained: Trained) -> None:
    """It has no weights, and makes one number of the rows: the model's own output is gathered before it."""
    text, findings = trained(top=OWN_LOSS.format(reduced=reduced), epoch=WITH_OWN_LOSS)
    assert "out = model(x)\n            out, y = accelerator.gather_for_metrics((out, y))\n" in text
    assert "prepare" not in findings


def test_a_module_with_weights_that_gives_one_number_is_a_forward_pass(trained: Trained) -> None:
    top = OWN_LOSS.format(reduced="near.mean()").replace("torch.nn.Sigmoid()", "torch.nn.Linear(2, 2)")
    text, findings = trained(top=top, epoch=WITH_OWN_LOSS)
    assert "gather_for_metrics" not in text and "prepare" in findings


CHOSEN_ROWS = """\
with torch.no_grad():
    right, seen = 0, 0
    for x, y in test_loader:
        wide = {test}
        {before}
        out = model(x){after}
        {behind}
        right += (out.argmax(1) == y).sum().item()
        seen += len(y)
    print(right / seen)"""


@pytest.mark.parametrize("test", ["y > 0", "(y > 0).nonzero()[:, 0]", "torch.where(y > 0)[0]", "~(y == 0)"])
@pytest.mark.parametrize(
    "places",
    [
        {"before": "x, y = x[wide], y[wide]"},
        {"after": "[wide]", "behind": "y = y[wide]"},
        {"after": "[wide, :]", "behind": "y = y[wide]"},
    ],
    ids=["before the forward pass", "of its result", "of its result, with columns"],
)
def test_chosen_rows_are_not_gathered_as_those_of_a_batch(test: str, places: dict[str, str], trained: Trained) -> None:
    """How many there are differs between processes: nothing says which of them are duplicates that fill up a shard."""
    parts = {"before": "pass", "after": "", "behind": "pass", **places}
    text, findings = trained(epoch=CHOSEN_ROWS.format(test=test, **parts))
    assert "gather" not in text and findings == ["prepare"]


@pytest.mark.parametrize("after", ["", ".float()"])
def test_rows_that_are_chosen_after_the_forward_pass_are_gathered_before(after: str, trained: Trained) -> None:
    behind = "out, y = out[wide], y[wide]"
    text, findings = trained(epoch=CHOSEN_ROWS.format(test="y > 0", before="pass", after=after, behind=behind))
    assert "out, y, wide = accelerator.gather_for_metrics((out, y, wide))\n" in text
    assert findings == []


TURNED = """\
class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.read = torch.nn.GRU(8, 16, batch_first=True)
        self.end = torch.nn.Linear(16, 2)

    def forward(self, x):
        return self.end(self.read(x)[0])


class Turner(torch.nn.Module):
    def forward(self, x):
        return x.transpose(0, 1)


reader, turner, linear = Reader(), Turner(), torch.nn.Linear(8, 2)"""
SEQUENCES = """\
held = torch.utils.data.DataLoader(other, batch_size=8)
miss = 0
for x, y in held:
    {forward}
    miss += torch.nn.functional.mse_loss(out{rows}, y, reduction="sum").item()
print(miss)"""


@pytest.mark.parametrize(
    ("forward", "rows"),
    [
        ("out = reader(x.unsqueeze(0))", ".squeeze()"),
        ("out = linear(torch.unsqueeze(x, dim=0))", "[0]"),
        ("out = turner(x)", ".transpose(0, 1)"),
        ("out = model(x).permute(1, 0)", ".permute(1, 0)"),
    ],
    ids=["a batch is one sequence", "a layer of torch", "the model turns it", "turned after the model"],
)
def test_rows_in_another_dimension_are_not_gathered_along_the_first(forward: str, rows: str, trained: Trained) -> None:
    """They would get as many first dimensions as there are processes, and the labels so many more rows."""
    text, findings = trained(built=TURNED, end=SEQUENCES.format(forward=forward, rows=rows))
    assert "gather_for_metrics" not in text and findings == ["prepare"]


@pytest.mark.parametrize(
    ("forward", "rows"),
    [
        ("out = model(x.unsqueeze(1))", ".squeeze(1)"),
        ("out = turner(x.transpose(0, 1))", ""),
        ("out = model(x)", "[:, 0]"),
    ],
    ids=["rows stay the first", "the model turns them back", "a column"],
)
def test_rows_along_the_first_dimension_are_gathered(forward: str, rows: str, trained: Trained) -> None:
    text, findings = trained(built=TURNED, end=SEQUENCES.format(forward=forward, rows=rows))
    assert "out, y = accelerator.gather_for_metrics((out, y))\n" in text and findings == []


REUSED = """\
held = torch.utils.data.DataLoader(other, batch_size=8)
miss = hits = 0
for x, y in held:
    got = model(x)
    miss += torch.nn.functional.cross_entropy(got, y, reduction="sum").item()
    hits += (got.argmax(1) == y).sum().item()
for x, y in {other}:
    got = model(x)
    got = {anew}
    hits += got.item()
print(miss, hits)"""


@pytest.mark.parametrize(
    ("other", "anew"),
    [("other", "got.argmax()"), ("held", "(got.argmax(1) == y).sum()")],
    ids=["over rows", "over batches"],
)
def test_a_number_that_another_loop_keeps_under_the_same_name_changes_nothing(
    other: str, anew: str, trained: Trained
) -> None:
    """The mean of the scores of different rows is not the scores of any."""
    text, _ = trained(end=REUSED.format(other=other, anew=anew))
    assert "got = model(x)\n    got, y = accelerator.gather_for_metrics((got, y))\n    miss +=" in text
    assert "accelerator.reduce" not in text


STAGES = """\
def stages(x):
    found = []
    for _ in range(2):
        x = model(x)
        found.append({kept})
    return found


"""
STAGED = """\
held = torch.utils.data.DataLoader(other, batch_size=8)
gap = 0
for x, y in held:
    steps = stages(x)
    {read}
print(gap)"""


@pytest.mark.parametrize(
    ("kept", "read"),
    [
        ("x.cpu().numpy()", "gap += np.abs(steps[-1] - y.cpu().numpy()).sum()"),
        ("x.cpu().numpy()", "gap += steps[-1].sum()"),
        ("x", "gap += (steps[-1] - y).abs().sum().item()"),
        ("x", "last = steps[1]\n    gap += (last - y).abs().sum().item()"),
    ],
    ids=["arrays beside a tensor", "arrays alone", "tensors beside a tensor", "by a variable"],
)
def test_rows_that_a_function_gives_in_a_list_leave_the_loop(kept: str, read: str, trained: Trained) -> None:
    """One operand would have the rows of all processes and the other those of one; or no operand had those of all."""
    text, findings = trained(
        top="import numpy as np", built=STAGES.format(kept=kept), end=STAGED.format(read=read)
    )  # fmt: skip
    assert "accelerator.gather" not in text and "accelerator.reduce" not in text
    assert findings == ["prepare"]


def test_a_list_that_only_the_forward_pass_reads_is_gathered_nowhere(trained: Trained) -> None:
    read = "out = model(steps[0])\n    gap += (out - y).abs().sum().item()"
    text, findings = trained(built=STAGES.format(kept="x"), end=STAGED.format(read=read))
    assert "out, y = accelerator.gather_for_metrics((out, y))\n" in text and findings == []


SHOWN = {
    "added up": ("kept.append(loss.item())", "print(sum(kept))", False),
    "added up by NumPy": ("kept.append(loss.item())", "print(np.sum(kept))", False),
    "divided by their number": ("kept.append(loss.item())", "print(sum(kept) / len(kept))", True),
    "divided later": ("kept.append(loss.item())", "total = sum(kept)\nprint(total / len(kept))", True),
    "divided by a constant": ("total += loss.item()", "print(total / 500)", False),
    "divided by the batches": ("total += loss.item()", "print(total / len(held))", True),
}


@pytest.mark.parametrize(("collected", "shown", "average"), SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("split", [False, True])
def test_means_of_batches_that_are_added_up_are_as_many_as_the_batches(
    collected: str, shown: str, average: bool, split: bool
) -> None:
    """Gathered batches are fewer: the sum was N times too small, as a finding said. With split batches they are not."""
    loop = COLLECTED.format(collected=collected, options="").rpartition("\n")[0]
    text = f"{METER}{TRAINED}total = 0\n{loop}\n{shown}\n"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(keep_global_batch=split)).files
    after, told = file.after.decode(), [(one.id, one.severity.value) for one in file.diagnoses]
    assert ("gather_for_metrics(" in after) == (average or split)
    assert told == ([] if split else [("mean-of-batches", "note")] if average else [("prepare", "note")])


def test_a_loader_of_the_training_is_prepared_whatever_is_added_up(trained: Trained) -> None:
    """Left whole, its evaluation would see a shard: the finding says what its sum is."""
    evaluation = (
        "with torch.no_grad():\n    for x, y in loader:\n        total += criterion(model(x), y).item()\nprint(total)"
    )
    text, findings = trained(top="criterion = torch.nn.CrossEntropyLoss()", epoch=evaluation)
    assert "gather_for_metrics(" in text and findings == ["mean-of-batches"]


def test_rows_that_map_has_moved_are_rows(trained: Trained) -> None:
    """A count of them is a count, and no figure that nobody knows."""
    counted = "x, y = map(lambda one: one.float(), [x, y])\n        n = len(y)"
    text, findings = trained(epoch=EVALUATION.format(counted=counted))
    assert "out, y = accelerator.gather_for_metrics((out, y))\n            n = len(y)\n" in text and findings == []


NOISED = """\
import torch
from torch.utils.data import DataLoader

class Coder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.nn.functional.mse_loss(self.inner(x), x)

loader, held = DataLoader(rows, batch_size=8), DataLoader(others, batch_size=8)
model = Coder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, _ in loader:
    optimizer.zero_grad()
    loss = model(x)
    loss.backward()
    optimizer.step()
total = count = 0
for x, _ in held:
    gap = model(x)
    total += gap.item()WEIGHT
    count += len(x)
print(total / COUNT)
"""


@pytest.mark.parametrize(
    ("weight", "count", "remedy"),
    [(" * len(x)", "count", 'reduction="none"'), ("", "len(held)", "times its number of rows")],
    ids=["rows", "batches"],
)
def test_a_mean_that_is_weighed_is_not_told_to_be(weight: str, count: str, remedy: str) -> None:
    source = decode(NOISED.replace("WEIGHT", weight).replace("COUNT", count).encode(), Path("train.py"))
    found = [d for d in migrate([source], CATALOGUE, Config()).files[0].diagnoses if d.id == "mean-of-batches"]
    assert [remedy in one.remedy for one in found] == [True]


COLLECTED_APART = """\
import numpy as np
import matplotlib.pyplot as plt
def answer(x):
    return model(x){host}
def draw(part):
    found = {empty}
    for x, y in part:
        found = {joined}
    plt.plot(found[1:])
    plt.savefig("found.png")
model.eval()
draw({part})"""


@pytest.mark.parametrize(
    ("host", "empty", "joined"),
    [
        (".detach().cpu().numpy()", "np.empty((1, 2))", "np.concatenate((found, answer(x)), axis=0)"),
        (".detach()", "torch.empty(1, 2)", "torch.cat((found, answer(x)))"),
    ],
    ids=["arrays", "tensors"],
)
@pytest.mark.parametrize("part", ["test_loader", "loader"])
def test_what_a_function_gives_is_collected_in_the_statement_that_calls_it(
    host: str, empty: str, joined: str, part: str, trained: Trained
) -> None:
    """A plot of one process's rows: nothing is read after the forward pass, but what grows in it is read in the end."""
    text, findings = trained(end=COLLECTED_APART.format(host=host, empty=empty, joined=joined, part=part))
    assert "gather" not in text and findings == ["prepare"]
    assert ("draw(whole_loader)" in text) is (part == "loader")  # the other one is not prepared
    assert "accelerator.prepare(\n    model, optimizer, loader\n)" in text


TERMS = """\
import torch
from torch.utils.data import DataLoader
class Run:
    def __init__(self, weight):
        self.weight, self.model = weight, torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def loss(self, x, y):
        loss = torch.zeros(1, device=x.device)
        if self.weight > 0:
            loss = loss + self.weight * torch.nn.functional.mse_loss(self.model(x), y)
        return loss
    def train(self):
        for x, y in loader:
            self.optimizer.zero_grad()
            self.loss(x, y).backward()
            self.optimizer.step()
    def validate(self):
        losses = []
        for x, y in held:
            loss = self.loss(x, y)
            losses.append(loss)
            print(f"{loss:.2f}")
        print(torch.stack(losses).mean())
loader, held = DataLoader(rows, batch_size=8), DataLoader(others, batch_size=8)
run = Run(1.0)
run.train()
run.validate()
"""


def test_a_loss_whose_terms_an_option_decides_is_a_mean() -> None:
    """It begins as zeros, and was gathered as if it had a row for each sample."""
    (file,) = migrate([decode(TERMS.encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert 'loss = accelerator.reduce(loss.detach(), reduction="mean")' in text and "gather" not in text
    assert "loss-reduction" not in [found.id for found in file.diagnoses]


COLUMNS = """\
import torch
from solvers import solve
from torch.utils.data import DataLoader

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.start = torch.nn.Linear(6, 3)

    def forward(self, x):
        return solve(self.start(x))

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(train, batch_size=8, shuffle=True):
    loss = torch.nn.functional.mse_loss(model(x), y{turned})
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    error, seen = 0.0, 0
    for x, y in DataLoader(test, batch_size=8):
        out = model(x)
        off = out - y{turned}
        error += off.pow(2).sum().item()
        seen += off.numel()
    print(error / seen)
"""


def test_what_meets_turned_rows_has_its_own_along_another_dimension() -> None:
    """Nothing is known of `solve`: that its rows come first was taken for granted, and is not so."""

    def text(turned: str) -> str:
        source = decode(COLUMNS.format(turned=turned).encode(), Path("train.py"))
        return migrate([source], CATALOGUE, Config()).files[0].after.decode()

    assert "out, y = accelerator.gather_for_metrics((out, y))" in text("")
    assert "accelerator.backward(loss)" in text(".transpose(0, 1)") and "gather" not in text(".transpose(0, 1)")


UNSEEN_FIGURE = """\
def judge(model, held):
    lost, hits = 0.0, 0
    with torch.no_grad():
        for x, y in held:
            out = model(x)
            lost += torch.nn.functional.cross_entropy(out, y).item()
            hits += (out.argmax(1) == y).sum().item()
    {shown}
    return hits
print(judge(model, held))"""


@pytest.mark.parametrize(("shown", "count"), [("print(lost / len(held))", 1), ("lost /= len(held)", 0), ("pass", 0)])
def test_of_a_figure_that_nobody_sees_nothing_is_said(shown: str, count: int) -> None:
    end = UNSEEN_FIGURE.format(shown=shown) + "\n"
    text = f"{TRAINED}held = DataLoader(rows, batch_size=8)\n{end}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"gather_for_metrics(" in file.after
    assert [d.id for d in file.diagnoses].count("mean-of-batches") == count


PAIRS = """\
import numpy as np
import torch
from torch.utils.data import DataLoader
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 2).to(device)
loader, test_loader = DataLoader(data, batch_size=32), DataLoader(pairs, batch_size=100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def describe(rows):
    found = []
    with torch.no_grad():
        for start in range(0, len(rows), 50):
            found.append(model(rows[start : start + 50].to(device)).cpu().numpy())
    return np.concatenate(found)

def check():
    first, second = [], []
    for a, b in test_loader:
        first.append(describe(a))
        second.append(describe(b))
    return first, second

for x, y in loader:
    x, y = x.to(device), y.to(device)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(check())
"""


def test_a_statement_that_runs_the_model_is_not_said_to_come_before_that() -> None:
    (file,) = migrate([decode(PAIRS.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(loss)" in file.after
    (cause,) = [found.cause for found in file.diagnoses if found.id == "prepare" and found.cause is not None]
    assert cause.label == "it collects what one forward pass gives before another"


PARTS = """\
from parts import made
class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = made["small"](8)
    def run(self, x):
        return torch.cat([self.part(x[i : i + 1]) for i in range(len(x))], dim=0)
whole = Whole()
"""
RATIO = """\
held = torch.utils.data.DataLoader(other, batch_size=8)
total = seen = 0
with torch.no_grad():
    for x, y in held:
        out = whole.run(x)
        inside = (out * y).sum({dim})
        ratio = (2 * inside + 1e-5) / ((out + y).sum({dim}) + 1e-5)
        total += ratio{added}.item()
        seen += len(y)
print(total / seen)"""


@pytest.mark.parametrize(
    ("dim", "added", "told"),
    [("dim=(2, 3)", ".sum()", []), ("", "", ["mean-of-batches"]), ("dim=(2, 3)", ".mean()", ["mean-of-batches"])],
    ids=["of each row, added up", "of the batch", "their mean"],
)
def test_ratios_of_rows_that_are_added_up_are_no_average(
    dim: str, added: str, told: list[str], trained: Trained
) -> None:
    """What a model of another package gives is not known; a sum is the last that is done to its rows."""
    built = "optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)"
    text, findings = trained(
        top=PARTS, built=built, loss="loss = torch.nn.functional.mse_loss(whole.run(x), y)",
        end=RATIO.format(dim=dim, added=added),
    )  # fmt: skip
    assert "gather_for_metrics" in text
    assert [found for found in findings if found == "mean-of-batches"] == told


SCORES = """\
from sklearn.metrics import accuracy_score
held = torch.utils.data.DataLoader(other, batch_size=8)
scores, sum_of = [], 0.0
with torch.no_grad():
    for x, y in held:
        scores.append(accuracy_score(y.cpu().numpy(), model(x).argmax(1).cpu().numpy()))
{read}
print(sum_of / len(scores))"""


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ("for score in scores:\n    sum_of += score", True),
        ("for i in range(len(scores)):\n    sum_of = sum_of + scores[i]", True),
        ("for i in range(len(scores)):\n    sum_of = scores[i] + sum_of", True),
        ("for score in scores:\n    print(score)", False),
        ("best = scores[0] + 1", False),
    ],
)
def test_scores_that_are_added_one_by_one_are_averaged(read: str, told: bool, trained: Trained) -> None:
    """As `sum(scores)`: it was migrated without a word."""
    _, findings = trained(end=SCORES.format(read=read))
    assert ("mean-of-batches" in findings) is told


CLONED = """\
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(4, 2)

    def forward(self, seen):
        return {given}


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters())
for seen, done in DataLoader(rows, batch_size=8):
    loss = nn.functional.mse_loss(policy(seen).mean, done)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
errors = []
with torch.no_grad():
    for seen, done in DataLoader(others, {batches}):
        guess = policy(seen)
        errors.append({error})
print(torch.cat(errors).mean().item())
"""
NORMAL = "Normal(self.mean(seen), 1.0)"


@pytest.mark.parametrize(
    ("given", "batches", "error", "gathered"),
    [
        (NORMAL, "batch_size=8", "-guess.log_prob(done)", False),
        (NORMAL, "batch_size=8", "kl_divergence(guess, Normal(done, 1.0))", False),
        ("self.mean(seen)", "batch_size=8", "(guess - done).pow(2)", True),
        ("self.mean(seen)", "batch_sampler=BatchSampler(SequentialSampler(others), 8, False)", "guess - done", True),
    ],
    ids=["its log-likelihood", "its divergence", "a tensor", "torch's own sampler of batches"],
)
def test_a_distribution_that_a_model_gives(given: str, batches: str, error: str, gathered: bool) -> None:
    """It was gathered as if it were a tensor, and the script stopped at its first evaluation."""
    text = CLONED.format(given=given, batches=batches, error=error)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ("gather_for_metrics" in file.after.decode()) is gathered
