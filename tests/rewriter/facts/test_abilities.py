"""`--target accelerate`: what a wrapped model hides is asked of the model itself, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, Target
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.width = nn.Linear(8, 2), 2

    def forward(self, x):
        return self.body(x) * self.width

    def encode(self, x):
        return self.body(x)

model = Net()
{before}
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy({forward}, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{behind}
"""


def migrated(
    target: Target = Target.ACCELERATE, before: str = "", forward: str = "model(x)", behind: str = ""
) -> FileResult:
    text = SCRIPT.format(before=before, forward=forward, behind=behind)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(target=target)).files
    assert file.blocked or b"accelerator.backward(loss)" in file.after, "the training itself was not migrated"
    return file


READS = {
    "an attribute": ("width = model.width", "width = accelerator.unwrap_model(model).width"),
    "weights of a part": ("w = model.body.weight", "w = accelerator.unwrap_model(model).body.weight"),
    "its class": ("known = isinstance(model, Net)", "known = isinstance(accelerator.unwrap_model(model), Net)"),
    "a method that does not train": ("z = model.encode(x)", "z = accelerator.unwrap_model(model).encode(x)"),
    "weights that are loaded": (
        "model.load_state_dict(best)", "accelerator.unwrap_model(model).load_state_dict(best)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "after"), READS.values(), ids=READS)
def test_what_the_wrapper_hides_is_asked_of_the_model(line: str, after: str) -> None:
    assert f"\n{after}\n" in migrated(behind=line).after.decode()
    assert f"\n{line}\n" in migrated(Target.TORCHLIFT, behind=line).after.decode(), "nothing is wrapped"


@pytest.mark.parametrize("line", ["width = model.width", "model.load_state_dict(best)", "model.encode(first)"])
def test_in_front_of_prepare_nothing_is_wrapped(line: str) -> None:
    assert f"\n{line}\n" in migrated(before=line).after.decode()


@pytest.mark.parametrize("line", ["model.eval()", "n = sum(p.numel() for p in model.parameters())", "model.train()"])
def test_what_every_module_has_the_wrapper_has(line: str) -> None:
    assert f"\n{line}\n" in migrated(behind=line).after.decode()


def test_a_method_that_trains_is_refused() -> None:
    file = migrated(forward="model.encode(x)")
    assert [d.id for d in file.diagnoses if d.severity.value == "blocked"] == ["wrapped-model"]
    assert not file.changed
    assert migrated(Target.TORCHLIFT, forward="model.encode(x)").changed


TRAINER = """\
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, model, optimizer, loader, path):
        self.model, self.optimizer, self.loader = model, optimizer, loader
        if path:
            self.model.load_state_dict(torch.load(path, map_location="cpu"))

    def train(self):
        for x, y in self.loader:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Trainer(model, optimizer, loader, path).train()
"""


def test_a_trainer_that_is_made_behind_prepare_loads_into_the_model() -> None:
    config = Config(target=Target.ACCELERATE)
    after = migrate([decode(TRAINER.encode(), Path("train.py"))], CATALOGUE, config).files[0].after.decode()
    assert "accelerator.unwrap_model(self.model).load_state_dict(" in after


FITS = """\
import torch
from torch.utils.data import DataLoader

class Net(torch.nn.Linear):
    def fit(self, loader, optimizer):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(self(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

net = Net(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net.fit(loader, optimizer)
"""


@pytest.mark.parametrize("target", Target)
def test_a_method_that_runs_the_training_passes_by_a_wrapper(target: Target) -> None:
    (file,) = migrate([decode(FITS.encode(), Path("train.py"))], CATALOGUE, Config(target=target)).files
    assert [d.id for d in file.diagnoses] == (["wrapped-model"] if target is Target.ACCELERATE else [])


KEEPS = """\
import torch
from torch.utils.data import DataLoader

class Scorer:
    def __init__(self, net):
        self.net = net

    def score(self, x, y):
        return torch.nn.functional.cross_entropy(self.net(x), y)

net = torch.nn.Linear(8, 2)
{before}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=32)
{behind}
for x, y in loader:
    optimizer.zero_grad()
    loss = {loss}
    loss.backward()
    optimizer.step()
{end}
"""
DIRECT = "torch.nn.functional.cross_entropy(net(x), y)"


@pytest.mark.parametrize("target", Target)
def test_an_object_that_trains_the_model_as_it_was_before(target: Target) -> None:
    text = KEEPS.format(before="scorer = Scorer(net)", behind="", loss="scorer.score(x, y)", end="")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(target=target)).files
    assert [d.id for d in file.diagnoses] == (["wrapped-model"] if target is Target.ACCELERATE else [])


@pytest.mark.parametrize(
    "parts",
    [
        {"behind": "scorer = Scorer(net)", "loss": "scorer.score(x, y)"},
        {"before": "scorer = Scorer(net)", "behind": "scorer.net = net", "loss": "scorer.score(x, y)"},
        {"before": "scorer = Scorer(net)", "loss": DIRECT, "end": "print(scorer.score(x, y))"},
    ],
    ids=["made after it", "given the model after it", "does not train"],
)
def test_an_object_that_has_the_wrapper_or_does_not_train(parts: dict[str, str]) -> None:
    text = KEEPS.format(**{"before": "", "behind": "", "end": "", **parts})
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(target=Target.ACCELERATE)).files
    assert not file.blocked and "wrapped-model" not in [d.id for d in file.diagnoses]
