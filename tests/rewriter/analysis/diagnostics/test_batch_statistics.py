"""Rows that are compared with a figure of their whole batch, or with each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]
LOSS = "out = model(x)\nother = model(2 * x)\nloss = {}"


@pytest.mark.parametrize(
    "loss",
    [
        "torch.nn.functional.mse_loss(out - other.mean(0, keepdim=True), y)",
        "torch.nn.functional.mse_loss(out - torch.mean(other), y)",
        "torch.nn.functional.relu(1 + (out - other.mean(dim=0))).mean()",
        "torch.nn.functional.mse_loss((out - other) / out.std(), y)",
        "torch.nn.functional.mse_loss((out - other) / (out.var(0) + 1e-5).sqrt(), y)",
        "torch.nn.functional.mse_loss(torch.sub(out, other.mean(0)), y)",
        "torch.nn.functional.mse_loss(out, other.quantile(0.5, 0))",
        "torch.nn.functional.mse_loss(out - other.mean((0, 1)).detach(), y)",
        "relative(out, other)",
        "torch.nn.functional.mse_loss(out - centre, y)",
    ],
)
def test_a_figure_of_the_batch_beside_its_rows_is_told(loss: str, trained: Trained) -> None:
    top = "def relative(one, two):\n    return torch.nn.functional.relu(one - two.mean()).mean()\n"
    found = trained(top=top, loss=LOSS.format(loss).replace("loss =", "centre = 0.5 * other.mean(0)\nloss ="))[1]
    assert found == ["in-batch-pairs"]


@pytest.mark.parametrize(
    "loss",
    [
        "out.mean() - other.mean()",
        "torch.nn.functional.mse_loss(out - other.mean(1, keepdim=True), y)",
        "torch.nn.functional.mse_loss(out, y) - 0.1 * other.mean()",
        "torch.nn.functional.mse_loss(out - other, y)",
        "torch.nn.functional.mse_loss(out - out.max(), y)",
        "(other * torch.nn.functional.mse_loss(out, y)).sum(1).mean()",
        "torch.nn.functional.mse_loss(out / out.norm(dim=1, keepdim=True), y)",
        "(out - other).pow(2).mean() / 2",
    ],
)
def test_figures_among_themselves_are_means(loss: str, trained: Trained) -> None:
    assert "in-batch-pairs" not in trained(loss=LOSS.format(loss))[1]


CONTRAST = """\
import torch.nn.functional as F

def nt_xent(one, two):
    both = torch.cat([one, two], dim=0)
    near = torch.exp(torch.mm(both, both.t().contiguous()))
    others = (torch.ones_like(near) - torch.eye(2 * one.size(0))).bool()
    near = near.masked_select(others).view(2 * one.size(0), -1)
    own = torch.exp((one * two).sum(dim=-1))
    return (-torch.log(torch.cat([own, own]) / near.sum(dim=-1))).mean()

class Contrast(torch.nn.Module):
    def forward(self, one, two):
        one, two = F.normalize(one, dim=1), F.normalize(two, dim=1)
        return F.cross_entropy(torch.matmul(one, two.transpose(0, 1)) / 0.1, torch.arange(one.shape[0]))

def same_class(one, labels):
    labels = labels.contiguous().view(-1, 1)
    same = torch.eq(labels, labels.T).float()
    return -(same * F.log_softmax(one, 1)[:, :1]).mean()

contrast, cosine = Contrast(), torch.nn.CosineSimilarity(dim=2)
memory = torch.nn.GRU(2, 2, batch_first=True)
"""
MEET = [
    "nt_xent(out, other)",
    "contrast(out, other)",
    "same_class(out, y)",
    "F.cross_entropy(torch.cat([out, other])[:size] @ torch.cat([out, other])[size:].T, y)",
    "F.cross_entropy(torch.mm(out, out.t()), y)",
    "F.cross_entropy(torch.matmul(out, other.T), y)",
    "F.cross_entropy(out.mm(other.t()) / 0.1, y)",
    "F.cross_entropy(out @ other.permute(1, 0), y)",
    "F.cross_entropy(out @ torch.transpose(other, 0, 1), y)",
    "F.cross_entropy(out @ x.mT, y)",
    "F.cross_entropy(torch.einsum('nd,md->nm', out, other), y)",
    "torch.triu(out @ out.T, diagonal=1).mean()",
    "torch.cdist(out, other).mean()",
    "F.pdist(out).mean()",
    "F.cosine_similarity(out.unsqueeze(1), other.unsqueeze(0), dim=2).mean()",
    "cosine(out.unsqueeze(1), other.unsqueeze(0)).mean()",
    "(out.unsqueeze(1) - other.unsqueeze(0)).pow(2).mean()",
    "(out[:, None] - out[None]).pow(2).mean()",
    "(out.unsqueeze(0).expand(len(out), -1, -1) - out.unsqueeze(1)).abs().mean()",
]


@pytest.mark.parametrize("loss", MEET)
def test_rows_that_meet_all_rows_are_told(loss: str, trained: Trained) -> None:
    assert "in-batch-pairs" in trained(top=CONTRAST, loss=f"size = len(x)\n{LOSS.format(loss)}")[1]


@pytest.mark.parametrize(
    "loss",
    [
        "F.cross_entropy(out @ model.weight, y)",
        "(out * other).sum(1).mean()",
        "(out.unsqueeze(2) @ other.unsqueeze(1)).pow(2).mean()",
        "torch.bmm(out.view(-1, 2, 1), other.view(-1, 2, 1).transpose(1, 2)).mean()",
        "torch.softmax(x.view(-1, 2, 4) @ x.view(-1, 2, 4).transpose(-2, -1), -1).mean() + out.mean()",
        "torch.nn.CosineSimilarity(dim=1)(out, other).mean()",
        "F.cosine_similarity(out, other).mean()",
        "torch.bmm(out.unsqueeze(1), other.unsqueeze(0).permute(0, 1, 2)).mean()",
        "memory(out.unsqueeze(1), other.unsqueeze(0))[0].mean()",
        "torch.cdist(out.view(-1, 2, 1), other.view(-1, 2, 1)).mean()",
    ],
)
def test_rows_that_meet_their_own_are_not(loss: str, trained: Trained) -> None:
    assert "in-batch-pairs" not in trained(top=CONTRAST, loss=LOSS.format(loss))[1]


def test_a_product_with_a_matrix_of_its_own_is_not(trained: Trained) -> None:
    loss = LOSS.format("torch.nn.functional.cross_entropy(torch.mm(out, centres.t()), y)")
    assert "in-batch-pairs" not in trained(built="centres = torch.nn.Linear(2, 2).weight", loss=loss)[1]


EVALUATES = """\
total = 0.0
for x, y in test_loader:
    {}
    total += torch.nn.functional.cross_entropy(model(x), y).item()
print(total / len(test_loader))"""


def test_a_batch_that_is_normalised_for_the_evaluation_is_no_loss(trained: Trained) -> None:
    """The evaluation stays whole: a last batch that is filled up has another mean."""
    evaluation = EVALUATES.format("x = (x - x.mean()) / x.std()").replace("\n", "\n    ")
    text, found = trained(epoch=f"with torch.no_grad():\n    {evaluation}".replace("\n    print", "\nprint"))
    assert "in-batch-pairs" not in found and "test_loader = accelerator" not in text
    _, found = trained(loss="x = x - x.mean()\nloss = torch.nn.functional.cross_entropy(model(x), y)")
    assert found == ["in-batch-pairs"]


EITHER = """\
def measured(one, labels, soft=False):
    if soft:
        wrong = -torch.log_softmax(one, 1).sum(1)
        wrong = wrong.masked_select(labels[:, 0].ne(0)).mean()
    else:
        wrong = torch.nn.functional.mse_loss(one, labels)
    return wrong

def relative(one, two, pull=True):
    if pull:
        far = one - two.mean()
        return torch.nn.functional.relu(far).mean()
    return torch.nn.functional.mse_loss(one, two)
"""


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        ("measured(out, y)", []),
        ("measured(out, y, soft=True)", ["weighted-mean"]),
        ("relative(out, other, pull=False)", []),
        ("relative(out, other)", ["in-batch-pairs"]),
    ],
)
def test_a_branch_that_the_training_leaves_out_is_none_of_its_loss(
    loss: str, found: list[str], trained: Trained
) -> None:
    """It was read as if the name held what the other branch gives it."""
    assert trained(top=EITHER, loss=LOSS.format(loss))[1] == found


RELATIVE = """\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=8)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    out = net(x)
    loss = (out - out.mean(0)).relu().mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("split", "severity"), [(False, "note"), (True, "review")])
def test_a_figure_of_a_batch_of_the_scripts_size_is_that_of_as_many_rows(split: bool, severity: str) -> None:
    """Nothing is to be done there: only a process with a part of the script's batch has another figure."""
    config = Config(keep_global_batch=split)
    (file,) = migrate([decode(RELATIVE.encode(), Path("train.py"))], CATALOGUE, config).files
    assert [found.severity.value for found in file.diagnoses if found.id == "in-batch-pairs"] == [severity]
