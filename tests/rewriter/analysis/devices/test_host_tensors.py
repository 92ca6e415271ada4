"""What the script needs on the CPU, and what is on the device once it is prepared."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

PLOTTED = """\
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import DataLoader

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(3):
    for x, y in DataLoader(torch.load("rows.pt"), batch_size=4):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        EACH
    LAST
plt.plot(range(len(losses)), losses)
plt.savefig("loss.png")
"""


@pytest.mark.parametrize(
    ("each", "last", "kept"),
    [
        ("pass", "losses.append(loss.detach())", "    losses.append(loss.detach().cpu())"),
        ("losses.append(loss)", "pass", 'losses.append(accelerator.reduce(loss.detach(), reduction="mean").cpu())'),
        ("pass", "losses.append(loss.item())", "    losses.append(loss.item())"),
        ("pass", "losses.append(loss.cpu().detach())", "    losses.append(loss.cpu().detach())"),
        (
            "pass",
            "gap = nn.functional.mse_loss(model(x).detach().cpu(), y.cpu())\n    losses.append(gap)",
            "    losses.append(gap)\n",
        ),
    ],
    ids=["once an epoch", "of each step", "a number", "moved by the script", "of what it has moved"],
)
def test_losses_that_a_list_keeps_for_a_plot_are_taken_to_the_cpu(each: str, last: str, kept: str) -> None:
    """The script named no device: on a GPU the plot failed at the end of the training, and nothing was said."""
    text = PLOTTED.replace("EACH", each).replace("LAST", last)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert kept in file.after.decode()


ADDED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from rows import rows

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
counts, sums = MADE
for epoch in range(3):
    for x, y in DataLoader(rows, batch_size=4):
        EACH
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
ON_HOST = "torch.zeros(3), torch.zeros(3, 4)"
ON_DEVICE = "torch.zeros(3).to(device), torch.zeros(3, 4).to(device)"
IN_PLACE = {
    "a total": ("counts += torch.bincount(y, minlength=3)", "counts += torch.bincount(y, minlength=3).cpu()"),
    "by a method": ("sums.add_(x)", "sums.add_(x.cpu())"),
    "at places": ("sums[y] += x", "sums[y.cpu()] += x.cpu()"),
}


@pytest.mark.hazard("U20")
@pytest.mark.parametrize(("each", "after"), IN_PLACE.values(), ids=IN_PLACE)
def test_what_is_added_to_a_tensor_of_the_cpu_is_taken_there(each: str, after: str) -> None:
    """On a GPU the batch was on the device, and nothing was said."""
    text = ADDED.replace("EACH", each)
    (file,) = migrate([decode(text.replace("MADE", ON_HOST).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert after in file.after.decode()
    (file,) = migrate([decode(text.replace("MADE", ON_DEVICE).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert each in file.after.decode()


COLLECTED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def extract(model, loader, device):
    features, labels = [], []
    with torch.no_grad():
        for x, y in loader:
            features.append(model(x.to(device)){host})
            labels.append(y)
    return {given}


def match(features, labels):
    ranks = torch.arange(len(labels)) + 1
    return ((labels[:, None] == labels[None]).sum(1) / ranks).mean().item()


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows, tests = torch.load("rows.pt"), torch.load("tests.pt")
for x, y in DataLoader(rows, batch_size=4):
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(match(*extract(model, DataLoader(tests, batch_size=4), device)))
"""


@pytest.mark.parametrize(
    ("host", "given", "kept"),
    [
        (".cpu()", "torch.cat(features), torch.cat(labels)", "labels.append(y.cpu())\n"),
        (".cpu()", "features, labels", "labels.append(y.cpu())\n"),
        ("", "torch.cat(features), torch.cat(labels)", "labels.append(y)\n"),
        (".cpu()", "torch.cat(features)", "labels.append(y)\n"),
    ],
    ids=["joined", "lists", "nothing taken to the CPU", "not returned"],
)
def test_labels_that_are_collected_beside_features_of_the_cpu(host: str, given: str, kept: str) -> None:
    """On a GPU the labels that a prepared loader yields met the script's CPU tensors after the evaluation."""
    text = COLLECTED.format(host=host, given=given)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert kept in file.after.decode()


BESIDE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def agree(a, b):
    return (a == b).sum().item()


def evaluate(model, loader, device):
    n, kept, labels, table = 0, [], [], torch.zeros(3, 3)
    distance = nn.L1Loss(reduction="sum")
    with torch.no_grad():
        for x, y in loader:
            guess = model(x.to(device)).argmax(1).cpu()
            {body}
    return n


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows, tests = torch.load("rows.pt"), torch.load("tests.pt")
for x, y in DataLoader(rows, batch_size=4):
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(evaluate(model, DataLoader(tests, batch_size=4), device))
"""


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("n += (y * 3 + guess).sum().item()", "(y.cpu() * 3 + guess)"),
        ("n += ((guess == 1) & (y == 1)).sum().item()", "((guess == 1) & (y.cpu() == 1))"),
        ("n += float((guess.float() - (y - 1.0) / 2).abs().sum())", "- (y.cpu() - 1.0) / 2)"),
        ("n += guess[y == 1].sum().item()", "guess[y.cpu() == 1]"),
        ("wanted = y != 1\n            n += guess[wanted].sum().item()", "guess[wanted.cpu()]"),
        ("n += torch.where(y > 0, guess, 0).sum().item()", "torch.where(y.cpu() > 0, guess, 0)"),
        ("n += torch.stack([guess, y]).sum().item()", "torch.stack([guess, y.cpu()])"),
        ("n += agree(guess, y)", "agree(guess, y.cpu())"),
        ("n += agree(a=guess, b=y.float())", "agree(a=guess, b=y.float().cpu())"),
        ("n += distance(guess, y).item()", "distance(guess, y.cpu())"),
        ("for p, t in zip(guess, y):\n                n += int(p == t)", "zip(guess, y.cpu())"),
        ("kept.append((guess, y))\n    n = sum(agree(p, t) for p, t in kept)", "kept.append((guess, y.cpu()))"),
        ("kept += [guess]; labels += [y]\n    n = agree(torch.cat(kept), torch.cat(labels))", "labels += [y.cpu()]"),
        (
            "kept.append(guess * 2.0); labels.append(y * 2.0)\n    n = agree(kept[0], labels[0])",
            "labels.append(y.cpu() * 2.0)",
        ),
        ("kept.extend(guess); labels.extend(y)\n    n = agree(kept[0], labels[0])", "labels.extend(y.cpu())"),
        ("n += guess.eq(y.view_as(guess)).sum().item()", "guess.eq(y.view_as(guess).cpu())"),
    ],
)
def test_what_is_computed_from_labels_and_what_the_script_took_to_the_cpu(body: str, after: str) -> None:
    """On a GPU the labels came on the device, and met what the script has on the CPU: the evaluation stopped there."""
    text = BESIDE.format(body=body)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert after in file.after.decode()
    assert file.after.decode().count("y.cpu()") <= 1


@pytest.mark.parametrize(
    "body",
    [
        "print(guess, y)\n            n += len(y)",
        "n += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()",
        "kept.append(guess); n += len(y)",
    ],
)
def test_labels_that_meet_nothing_of_the_cpu_stay_on_the_device(body: str) -> None:
    text = BESIDE.format(body=body)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "y.cpu()" not in file.after.decode()


@pytest.mark.parametrize(
    "body",
    [
        "n += sum(len(name) for _, name in zip(guess, names))",
        "show(guess, names)",
        "kept.append(guess); labels.append(names)",
        "kept.append({'guess': guess, 'name': names})",
    ],
)
def test_names_of_files_beside_what_the_script_took_to_the_cpu_are_no_tensors(body: str) -> None:
    """`.cpu()` was asked of a list of texts."""
    text = BESIDE.format(body=f"{body}\n    return kept, labels").replace("for x, y in", "for x, y, names in")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ".cpu()" in file.after.decode() and "names.cpu()" not in file.after.decode()
