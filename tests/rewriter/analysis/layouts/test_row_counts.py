"""Where rows are only counted, the labels are gathered and not the inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]

TWINS = """\
class Twins(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, one, two):
        return self.layer(one), self.layer(two)


class Gap(torch.nn.Module):
    def forward(self, one, two, same):
        return (same * (one - two).square().sum(1)).mean()


twins, gap = Twins(), Gap()"""
ZEROS = "left = accelerator.gather_for_metrics(left.new_zeros(len(left)))\n"
COUNTS = "summed += loss.item() * left.size(0)\nrows += len(left)"


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        ("one, two = twins(left, right)\nloss = gap(one, two, same)", "same"),
        ("one, two = twins(left, right)\nloss = torch.nn.functional.cosine_embedding_loss(one, two, same)", "same"),
        ("one, two = twins(left, right)\nloss = gap(one, two, left.new_zeros(len(left)))", ""),
        ("one, two = twins(left, same)\nloss = (one - two).square().mean()", ""),
        ("one, two = twins(left, same)\nloss = gap(one, two, same)", ""),
    ],
    ids=["own criterion", "one of torch's", "labels made by the loop", "no labels", "the model has them"],
)
def test_what_several_inputs_are_counted_by(loss: str, name: str, trained: Trained) -> None:
    built = "optimizer = torch.optim.SGD(twins.parameters(), lr=0.1)\nsummed, rows = 0.0, 0"
    text, findings = trained(
        top=TWINS, built=built, batch="left, right, same", loss=loss, step=COUNTS, epoch="print(summed / rows)"
    )
    gathered = f"{name} = accelerator.gather_for_metrics({name})\n" if name else ZEROS
    assert gathered in text and text.count("gather_for_metrics") == 1
    assert f"rows += len({name or 'left'})\n" in text
    assert findings == ["filled-batch"]


@pytest.mark.parametrize("flat", ["same = same.view(-1)", "same = torch.flatten(same)"])
def test_labels_that_were_flattened_may_have_other_rows(flat: str, trained: Trained) -> None:
    """The labels of a language model: one for each word, and a text has several."""
    text, _ = trained(
        top=TWINS,
        built="optimizer = torch.optim.SGD(twins.parameters(), lr=0.1)\nsummed, rows = 0.0, 0",
        batch="left, right, same",
        loss=f"{flat}\none, two = twins(left, right)\nloss = torch.nn.functional.mse_loss(one, same)",
        step=COUNTS,
        epoch="print(summed / rows)",
    )
    assert ZEROS in text and text.count("gather_for_metrics") == 1


@pytest.mark.parametrize(
    "parts",
    [
        {"step": f"{COUNTS}\nlast = left.mean()"},
        {"step": COUNTS, "epoch": "print(summed / rows)\ntorch.save(left, 'last.pt')"},
    ],
    ids=["in the same turn", "after the loop"],
)
def test_inputs_that_are_read_again_are_gathered(parts: dict[str, str], trained: Trained) -> None:
    text, _ = trained(
        top=TWINS,
        built="optimizer = torch.optim.SGD(twins.parameters(), lr=0.1)\nsummed, rows = 0.0, 0",
        batch="left, right",
        loss="one, two = twins(left, right)\nloss = (one - two).square().mean()",
        **{"epoch": "print(summed / rows)", **parts},
    )
    assert "left = accelerator.gather_for_metrics(left)\n" in text


PADDED = """\
def pad(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


net = torch.nn.Linear(3, 3)
texts = DataLoader(data, batch_size=8, shuffle=True, collate_fn=pad)"""


def test_rows_of_any_length_can_be_counted(trained: Trained) -> None:
    """Texts as long as the longest of one process's batch cannot be gathered; their number can."""
    text, findings = trained(
        top=PADDED,
        built="optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nsummed, rows = 0.0, 0",
        batch="left",
        source="texts",
        loss="loss = (net(left) - left).square().mean()",
        step=COUNTS,
        epoch="print(summed / rows)",
    )
    assert ZEROS in text and findings == ["filled-batch"]


EVALUATED = """\
hits = rows = 0
with torch.no_grad():
    for x, y in test_loader:
        hits += (model(x).argmax(1) == y).sum().item()
        {count}
print(hits / rows)"""


@pytest.mark.parametrize("count", ["rows += len(x)", "rows += x.size(0)", "rows += x.shape[0]"])
def test_what_the_model_alone_is_given_is_counted_by_what_is_gathered_anyway(count: str, trained: Trained) -> None:
    """torch itself collates: each part of the batch has as many rows."""
    text, findings = trained(end=EVALUATED.format(count=count))
    assert "y = accelerator.gather_for_metrics(y)\n        hits += (accelerator.gather_for_metrics(model(x))" in text
    assert count.replace("x", "y", 1) in text
    assert text.count("gather_for_metrics") == 2 and findings == []


COLLATE = """\
def collate(rows):
    return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])"""


@pytest.mark.parametrize("count", ["rows += len(x)", "rows += x.size(0)", "rows += x.shape[0]"])
def test_what_the_model_alone_is_given_is_counted_where_a_part_may_have_more(count: str, trained: Trained) -> None:
    """What a function of the script collates may have more rows in one part than in others."""
    loader = "test_loader = DataLoader(test_data, batch_size=8, collate_fn=collate)\n"
    text, _ = trained(top=COLLATE, end=loader + EVALUATED.format(count=count))
    assert count.replace("x", "accelerator.gather_for_metrics(x.new_zeros(len(x)))", 1) in text


def test_other_reads_of_what_the_model_is_given_keep_the_evaluation_whole(trained: Trained) -> None:
    text, findings = trained(end=EVALUATED.format(count="rows += len(x)\n        hits += x.max().item()"))
    assert "gather_for_metrics" not in text and findings == ["prepare"]


CHOSEN = """\
import torch
from torch.utils.data import DataLoader

class Meter:
    def __init__(self):
        self.sum = self.count = self.avg = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count

loader = DataLoader(data, batch_size=8)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hits = Meter()
for x, y in loader:
    x, y = x[y != 2], y[y != 2]
    out = model(x)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(out, y).backward()
    optimizer.step()
    hits.update((out.argmax(1) == y).sum().item() / x.size(0), x.size(0))
print(hits.avg)
"""


def test_an_average_over_chosen_rows_is_not_uneven_at_the_end_alone() -> None:
    """--keep-global-batch gives the exact figure of all rows, and not of those that are chosen."""
    (file,) = migrate([decode(CHOSEN.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [d for d in file.diagnoses if d.id in ("filled-batch", "mean-of-batches")]
    assert "of the rows that are chosen, one process has more than another" in found.message
    assert "--keep-global-batch" not in found.remedy
