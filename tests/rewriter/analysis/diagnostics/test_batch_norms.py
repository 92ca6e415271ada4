"""Layers that normalise with the statistics of a batch, of models whose layers the program does not show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

TRAINED = """\
import sys
import timm
import torch
import transformers
from efficientnet_pytorch import EfficientNet
from torch.utils.data import DataLoader
from torchvision import models
from nets import Net, build
class Tagger(torch.nn.Module):
    def __init__(self, stem):
        super().__init__()
        self.stem, self.head = stem, torch.nn.Linear(1000, 10)
    def forward(self, x):
        return self.head(self.stem(x))
name = "resnet18"
net = {built}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(pictures, batch_size=8, shuffle=True):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
"""
CLOSED = "builds layers that cannot be seen here"


@pytest.mark.hazard("M10")
@pytest.mark.parametrize(
    ("built", "told"),
    [
        ("EfficientNet.from_name('efficientnet-b0')", f"`EfficientNet.from_name` {CLOSED}"),
        ("Net()", f"`Net` {CLOSED}"),
        ("build('small')", f"`build` {CLOSED}"),
        ("timm.create_model(sys.argv[1])", f"`timm.create_model` {CLOSED}"),
        ("torch.hub.load('some/nets', 'net')", f"`torch.hub.load` {CLOSED}"),
        ("getattr(models, sys.argv[1])()", f"`getattr(models, sys.argv[1])` {CLOSED}"),
        ("timm.create_model(name, num_classes=10)", "BatchNorm of `timm.create_model`: "),
        ("models.get_model('vgg16_bn')", "BatchNorm of `models.get_model`: "),
        ("models.resnet18(weights=None)", "BatchNorm of `models.resnet18`: "),
        ("Tagger(models.densenet121())", "BatchNorm of `models.densenet121`: "),
        ("Tagger(timm.create_model(sys.argv[1]))", f"`timm.create_model` {CLOSED}"),
        ("models.vgg16()", ""),
        ("torch.nn.EmbeddingBag(50, 10, sparse=True)", ""),
        ("eval(sys.argv[1])()", ""),
        ("torch.nn.Linear(8, 10); teacher = models.resnet18(); other = Net()", ""),
        ("timm.create_model(model_name='vit_tiny_patch16_224')", ""),
        ("transformers.AutoModelForImageClassification.from_pretrained('a')", ""),
        ("Tagger(torch.nn.Flatten())", ""),
    ],
)
def test_layers_that_the_program_does_not_show(
    built: str, told: str, usual_edits: Callable[[FileResult], None]
) -> None:
    """It was said of layers of the program alone, and a model of a package was under "No action needed"."""
    (file,) = migrate([decode(TRAINED.format(built=built).encode(), Path("train.py"))], CATALOGUE, Config()).files
    usual_edits(file)
    found = [one.message for one in file.diagnoses if one.id == "batch-norm"]
    assert len(found) == bool(told) and all(one.startswith(told) for one in found)


FROZEN = """\
import sys
import torch
from torch.utils.data import DataLoader
from rows import pictures
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.head(self.norm(x))
    def freeze(self):
        for layer in self.modules():
            if isinstance(layer, torch.nn.BatchNorm1d):
                layer.eval()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    {modes}
    for x, y in DataLoader(pictures, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
"""


@pytest.mark.hazard("M10")
@pytest.mark.parametrize(
    ("modes", "told"),
    [
        ("net.train()\n    net.freeze()", False),
        ("net.freeze()\n    net.train()", True),
        ("net.train()\n    if sys.argv[1:]:\n        net.freeze()", True),
        ("net.train()", True),
    ],
)
def test_layers_that_are_put_to_rest_in_each_epoch_use_no_batch(modes: str, told: bool) -> None:
    text = FROZEN.replace("{modes}", modes)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ("batch-norm" in [found.id for found in file.diagnoses]) is told


LAYERS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
def layers(width, norm=False):
    found = [nn.Linear(8, width)]
    if norm:
        found.append(nn.BatchNorm1d(width))
    return nn.Sequential(*found)
net = layers({given})
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(pictures, batch_size=8, shuffle=True):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("given", "told"), [("3", False), ("3, norm=True", True), ("3, norm=asked()", True)])
def test_layers_that_no_call_asks_for_are_not_told(given: str, told: bool) -> None:
    (file,) = migrate([decode(LAYERS.format(given=given).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ("batch-norm" in [found.id for found in file.diagnoses]) is told
    assert ("statistics" in [trait.kind for trait in file.traits]) is told
