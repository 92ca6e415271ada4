"""What a training loop has of all processes: other attributes of the object that keeps it are of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

TRAINER = """\
import torch


class Trainer:
    def __init__(self):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.inputs = torch.randn(37, 6)
        self.model = torch.nn.Linear(6, 1).to(self.device)
        self.criterion = torch.nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.history = []

    def difference(self, x):
        return self.criterion(self.model(x), x[:, :1])

    def mean(self):
        return sum(self.history) / len(self.history)

    @property
    def latest(self):
        return self.history[-1]

    def epoch(self):
        order = torch.randperm(37)
        for start in range(0, 37, 8):
            x = self.inputs[order[start : start + 8]].to(self.device)
            loss = {loss}
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.history.append(loss.item())
            figure = {figure}
        print("last", figure)


trainer = Trainer()
for epoch in range(3):
    trainer.epoch()
print(trainer.history[-1])
"""


@pytest.mark.hazard("E6")
@pytest.mark.parametrize(
    ("loss", "figure", "names"),
    [
        ("self.criterion(self.model(x), x[:, :1])", "loss.item()", ["figure"]),
        ("self.difference(x)", "loss.item()", ["figure"]),
        ("self.difference(x)", "self.history[-1]", []),
        ("self.difference(x)", "self.mean()", []),
        ("self.difference(x)", "self.latest", []),
    ],
    ids=["an attribute", "a method", "what is kept", "a method that reads what is kept", "a property that reads it"],
)
def test_a_loss_is_of_one_process_where_its_object_keeps_those_of_all(loss: str, figure: str, names: list[str]) -> None:
    text = TRAINER.format(loss=loss, figure=figure)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "self.history.append(self.accelerator.reduce(" in file.after.decode()
    assert [trait.name for trait in file.traits if trait.kind == "figure"] == names


BESIDE = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(6, 3)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(37, 6), torch.randint(3, (37,))
valid = DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=8)
for epoch in range(3):
    smooth, total = None, 0.0
    order = torch.randperm(37)
    for start in range(0, 37, 8):
        x, y = inputs[order[start : start + 8]], targets[order[start : start + 8]]
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()
        total += loss.item() * x.size(0)
    print("smoothed", smooth)
    print("train", total / 37)
    with torch.no_grad():
        for x, y in valid:
            loss = criterion(model(x), y)
            total += loss.item()
    print("all", total)
"""


def test_what_an_evaluation_puts_into_the_same_names_later_makes_no_figure_whole() -> None:
    (file,) = migrate([decode(BESIDE.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "gather_for_metrics(" in file.after.decode()
    assert "smooth" in [trait.name for trait in file.traits if trait.kind == "figure"]


JUDGING = """\
import torch

class Overlap(torch.autograd.Function):
    def forward(self, found, wanted):
        self.save_for_backward(found, wanted)
        return torch.dot(found.view(-1), wanted.view(-1)) / torch.sum(found)

def overlap(found, wanted):
    total = torch.zeros(1)
    for i, pair in enumerate(zip(found, wanted)):
        total = total + Overlap().forward(pair[0], pair[1])
    return total / (i + 1)

def judge(net, loader):
    total = 0
    for batch in loader:
        images, masks = batch["image"], batch["mask"]
        with torch.no_grad():
            found = net(images)
        if net.classes > 1:
            total += torch.nn.functional.cross_entropy(found, masks).item()
        else:
            total += overlap((found > 0).float(), masks).item()
    return total / len(loader)

"""
SCORED = """\
import torch
from torch.utils.data import DataLoader
from judging import judge

class Net(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes, self.layer = classes, torch.nn.Conv2d(3, classes, 1)

    def forward(self, images):
        return self.layer(images)

net = Net(classes=1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
rows = DataLoader(Rows(), batch_size=4, shuffle=True)
others = DataLoader(Rows(), batch_size=1)
for step, batch in enumerate(rows):
    loss = torch.nn.functional.mse_loss(net(batch["image"]), batch["mask"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        score = judge(net, others)
        scheduler.step(score)
        print("score", score, loss.item())
"""


def test_what_an_evaluation_of_another_file_counts_is_no_figure_of_a_step() -> None:
    sources = [decode(SCORED.encode(), Path("train.py")), decode(JUDGING.encode(), Path("judging.py"))]
    file = migrate(sources, CATALOGUE, Config()).files[0]
    assert [trait.name for trait in file.traits if trait.kind == "figure"] == ["loss"]
