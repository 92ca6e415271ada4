"""Models that save themselves, where nobody sees how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]

CHOSEN = "model = settings['net'](8)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
OWN = """\
class Net(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = torch.nn.Linear(size, 2)
    def forward(self, x):
        return self.fc(x)
    def save(self, path):
        torch.save(self.state_dict(), path)
settings = {"net": Net}"""


@pytest.mark.hazard("U15")
@pytest.mark.parametrize(
    ("top", "end", "findings"),
    [
        ("from other import settings", "model.save('a.pt')", ["once"]),
        ("from other import settings", "model.save_weights('a.pt')", ["once"]),
        ("from other import settings", "saved = model.save", []),
        (OWN, "model.save('a.pt')", []),
    ],
    ids=["a class of elsewhere", "under another name", "not called", "its own class"],
)
def test_a_model_that_saves_itself(top: str, end: str, findings: list[str], trained: Trained) -> None:
    found = trained(top=top, built=CHOSEN, end=end)[1]
    assert [one for one in found if one != "batch-norm"] == findings
    assert ("batch-norm" in found) is (top != OWN), "nobody knows the layers of the other one"


SAVES = """\
import torch
from torch.utils.data import DataLoader
from other import data, settings
{top}
model = settings["net"](8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
model.save("a.pt")
"""


@pytest.mark.parametrize(
    ("top", "told"),
    [
        ("", "nothing that was found in this program defines this save"),
        (OWN.partition("settings =")[0], "it is not seen whether this save is that of `Net`"),
    ],
)
def test_a_class_of_the_program_that_may_be_meant_is_named(top: str, told: str) -> None:
    (file,) = migrate([decode(SAVES.format(top=top).encode(), Path("train.py"))], CATALOGUE, Config()).files
    (found,) = [one for one in file.diagnoses if one.id == "once"]
    assert found.message.startswith(told)


LAYERS = """\
import torch
class Used(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.fc(x)
class Other(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
    def forward(self, x):
        return self.norm(x)
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader
import layers
from layers import Used, Other
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4):
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("model", "findings"),
    [
        ("Used()", []),
        ("Other()", ["batch-norm"]),
        ("[Used, Other][0]()", ["batch-norm"]),
        ("{'b': layers.Other}[name]()", ["batch-norm"]),
        ("layers.__dict__[name]()", ["batch-norm"]),
        ("getattr(layers, name)()", ["batch-norm"]),
        ("Used(); rate = getattr(args, 'rate', 0.1)", []),
        ("Used(); kind = getattr(layers, name); more = kind()", ["batch-norm"]),
    ],
    ids=[
        "never named",
        "built",
        "one of several",
        "in a table",
        "in the module",
        "looked up",
        "an option is looked up",
        "called later",
    ],
)
def test_layers_of_a_class_that_is_never_built(
    model: str, findings: list[str], trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    found = trained_project(train=TRAIN.format(model=model), layers=LAYERS)[1]
    assert [one for one in found if one == "batch-norm"] == findings


RESTS = """\
import torch
from torch.utils.data import DataLoader
class Features(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.scale = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)
    def forward(self, x):
        return self.scale(self.first(x))
def check(features, model):
    features.eval()
    model.eval()
    print(model(features(one)))
def run():
    features = Features()
    {built}
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD({trained}, lr=0.1)
    for epoch in range(2):
        {epoch}
        for x, y in DataLoader(data, batch_size=4):
            torch.nn.functional.cross_entropy(model(features(x)), y).backward()
            optimizer.step()
        check(features, model)
run()
"""


@pytest.mark.parametrize(
    ("built", "trained", "epoch", "told"),
    [
        ("features.eval()", "model.parameters()", "model.train()", False),
        ("features.eval()", "model.parameters()", "features.train()", True),
        ("features.eval()", "model.parameters()", "features.scale.train(epoch > 0)", True),
        ("pass", "model.parameters()", "model.train()", True),
        ("features.eval()", "[*model.parameters(), *features.parameters()]", "model.train()", True),
        ("features.eval()\n    other = Features()", "model.parameters()", "other(one)", True),
    ],
    ids=["at rest", "trains again", "a part of it", "evaluated after an epoch", "trained", "another of its class"],
)
def test_layers_of_a_model_that_is_evaluated_only(built: str, trained: str, epoch: str, told: bool) -> None:
    text = RESTS.format(built=built, trained=trained, epoch=epoch)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ("batch-norm" in [one.id for one in file.diagnoses]) is told


CHOOSES = """\
import functools
import torch
from torch.utils.data import DataLoader
def layer(kind):
    if kind == 'batch':
        return functools.partial(torch.nn.BatchNorm1d, affine=False)
    return torch.nn.LayerNorm
class Smooth(torch.nn.BatchNorm1d):
    pass
class Net(torch.nn.Module):
    def __init__(self, norm=torch.nn.{default}):
        super().__init__()
        self.body = torch.nn.Sequential(norm(8), torch.nn.Linear(8, 2))
    def forward(self, x):
        return self.body(x)
model = {net}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4):
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("default", "net", "told"),
    [
        ("BatchNorm1d", "Net()", ["BatchNorm: each process"]),
        ("LazyBatchNorm1d", "Net()", ["BatchNorm: each process"]),
        ("LayerNorm", "Net()", []),
        ("LayerNorm", "Net(layer('batch'))", ["BatchNorm, where `norm` makes one: each process"]),
        ("LayerNorm", "Net(Smooth)", ["BatchNorm, where `norm` makes one: each process"]),
    ],
    ids=["the default", "a lazy one", "another default", "behind partial", "an own class"],
)
def test_layers_that_a_parameter_chooses(default: str, net: str, told: list[str]) -> None:
    text = CHOOSES.format(default=default, net=net)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [one.message.partition(" normalises")[0] for one in file.diagnoses if one.id == "batch-norm"] == told


CROSS = "torch.nn.functional.cross_entropy(model(x), y)"


@pytest.mark.parametrize(
    ("loss", "findings"),
    [
        (f"{CROSS}.sqrt()", ["weighted-mean"]),
        (f"torch.log({CROSS} + 1)", ["weighted-mean"]),
        (f"{CROSS}.exp()", ["weighted-mean"]),
        (f"{CROSS} * model(x).mean()", ["weighted-mean"]),
        (f"{CROSS} * 0.5", []),
        (f"{CROSS} / x.size(0)", []),
        ("torch.sqrt(model(x).abs() + 1).mean()", []),
    ],
    ids=["a root", "a logarithm", "a power", "a product", "a factor", "the number of rows", "a root of each row"],
)
def test_a_loss_that_is_no_mean_because_a_mean_is_bent(loss: str, findings: list[str], trained: Trained) -> None:
    """Whatever bends it: on N processes the gradient is that of N smaller batches."""
    text, found = trained(loss=f"loss = {loss}")
    assert "accelerator.backward(loss)\n" in text and found == findings
