"""Where prepare stands: behind what looks at a loader as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]


def test_figures_of_the_data_are_taken_before_it_and_what_counts_batches_behind_it(trained: Trained) -> None:
    built = "for x, y in loader:\n    print(x.mean())\nscale = len(loader)"
    text, _ = trained(built=built)
    head, _, tail = text.partition("model, optimizer, loader = accelerator.prepare(")
    assert "    accelerator.print(x.mean())\n" in head
    assert "scale = len(loader)\n" in tail


FOREVER = """\
def forever(batches):
    while True:
        for x, y in batches:
            yield x, y

class Noisy(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x + torch.randn_like(x))

class Averaged(Noisy):
    pass
"""
DRAWN = """\
import torch
from torch.utils.data import DataLoader
from tqdm import trange

{top}
loader = DataLoader(data, batch_size=32)
stream = forever(loader)
net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step, 10) / 10)
{built}
with trange(100) as bar:
    for step in bar:
        x, y = next(stream)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy({model}(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
{end}
"""


Project = Callable[..., tuple[dict[str, str], list[str]]]


def drawn(project: Project, built: str = "", model: str = "net", end: str = "") -> str:
    return project(train=DRAWN.format(top=FOREVER, built=built, model=model, end=end))[0]["train"]


def test_a_generator_is_given_the_prepared_loader(trained_project: Project) -> None:
    """It goes on with the loader that it was given."""
    text = drawn(trained_project)
    assert "loader = accelerator.prepare(loader)\nstream = forever(loader)\n" in text


def test_a_scheduler_in_a_bar_of_so_many_rounds_is_left_alone(trained_project: Project) -> None:
    """The training is as long on N processes, and so is the schedule: a prepared one would be stepped N times."""
    text = drawn(trained_project)
    assert "net, optimizer = accelerator.prepare(\n    net, optimizer\n)\n" in text


def test_of_two_models_that_share_one_the_trained_is_prepared(trained_project: Project) -> None:
    built = "shown = Averaged(net)\ntrained = Noisy(net)"
    for order in (built, "\n".join(reversed(built.splitlines()))):
        text = drawn(trained_project, order, "trained", "with torch.no_grad():\n    print(shown(torch.ones(1, 8)))")
        assert "trained, optimizer = accelerator.prepare(\n    trained, optimizer\n)\n" in text


TWO_KINDS = """\
import torch
from torch.utils.data import DataLoader
from data import data

class Base(torch.nn.Module):
    def optimizer(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Small(Base):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.body(x)

def test():
    model = Small()
    model.load_state_dict(torch.load("model.pt"))
    return model(torch.ones(1, 8))

def train():
    model = Small()
    loader = DataLoader(data, batch_size=32)
    optimizer = model.optimizer()
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

train()
test()
"""


def test_a_model_of_the_same_class_that_only_a_test_makes_is_not_trained(trained_project: Project) -> None:
    after, findings = trained_project(train=TWO_KINDS)
    assert after["train"].count("accelerator.prepare(") == 1 and findings == []


TWO_WAYS = """\
import sys
import torch
from torch.utils.data import DataLoader
from data import data, other

def train(loader, held_out, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    evaluate(held_out, model)

def evaluate(batches, model):
    hits = 0
    for x, y in batches:
        out = model(x)
        hits += (out.argmax(1) == y).sum().item()
    print(hits)

def main():
    loader = DataLoader(data, batch_size=32)
    held_out = DataLoader(other, batch_size=32)
    model = torch.nn.Linear(8, 2)
    if sys.argv[1:] == ["test"]:
        evaluate(held_out, model)
    else:
        train(loader, held_out, model)

main()
"""


def test_a_loader_that_two_ways_evaluate_is_prepared_where_it_is_made(trained_project: Project) -> None:
    """The training prepared it for itself, and the other way evaluated one that is not prepared."""
    text = trained_project(train=TWO_WAYS)[0]["train"]
    assert "    held_out = accelerator.prepare(held_out)\n" in text
    assert text.index("held_out = accelerator.prepare(") < text.index('if sys.argv[1:] == ["test"]')


KEEPER = """\
import torch
from torch.utils.data import DataLoader

class Fit:
    def __init__(self, net, rows, optimizer):
        self.net, self.rows, self.optimizer = net, rows, optimizer

    def turn(self, rows):
        for x, y in rows:
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.net(x), y).backward()
            self.optimizer.step()

def rows_of(data):
    return DataLoader(data, batch_size=32)

net = torch.nn.Linear(8, 2)
{built}
fit.turn(fit.rows)
"""
MADE_IN_THE_CALL = "fit = Fit(net, DataLoader(data, batch_size=32), torch.optim.SGD(net.parameters(), lr=0.1))"
MADE_BY_A_FUNCTION = """\
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
fit = Fit(net, rows_of(data), optimizer)"""


@pytest.mark.parametrize(
    ("built", "prepared"),
    [
        (MADE_IN_THE_CALL, "fit = Fit(net, accelerator.prepare(DataLoader(data, batch_size=32)), accelerator.prepare("),
        (MADE_BY_A_FUNCTION, "fit = Fit(net, accelerator.prepare(rows_of(data)), optimizer)\n"),
    ],
)
def test_a_loader_that_comes_to_an_object_as_an_argument_is_prepared_there(
    trained_project: Project, built: str, prepared: str
) -> None:
    """The script reads it as `fit.rows` alone: a name that it never gives it, and only where it trains."""
    texts, findings = trained_project(train=KEEPER.format(built=built))
    assert prepared in texts["train"]
    assert texts["train"].endswith("\nfit.turn(fit.rows)\n")
    assert findings == []


OWN_SCHEDULE = """\
class Halving:
    def __init__(self, optimizer):
        assert isinstance(optimizer, torch.optim.Optimizer)
        self.optimizer = optimizer

    def step(self):
        {step}
"""
LOADED = 'schedule = Halving(optimizer)\nstate = torch.load("last.pt")\noptimizer.load_state_dict(state)'


def test_an_object_that_only_sets_the_groups_of_an_optimizer_may_be_made_before_prepare(trained: Trained) -> None:
    """The prepared optimizer has the same groups: it is prepared after its state is loaded."""
    halved = 'for group in self.optimizer.param_groups:\n            group["lr"] /= 2'
    text, found = trained(top=OWN_SCHEDULE.format(step=halved), built=LOADED, epoch="schedule.step()")
    assert text.index("optimizer.load_state_dict(state)\n") < text.index("accelerator.prepare(")
    assert found == []


def test_an_object_that_steps_the_optimizer_which_it_keeps_is_made_after_prepare(trained: Trained) -> None:
    text, found = trained(top=OWN_SCHEDULE.format(step="self.optimizer.step()"), built=LOADED, step="schedule.step()")
    assert "accelerator.prepare(" not in text
    assert "prepare" in found


def test_the_reason_names_what_is_prepared_and_not_more() -> None:
    """A loader of the evaluation alone is none of the training."""
    text = """\
import torch
from torch.utils.data import DataLoader

def score(model, rows):
    hits = 0
    with torch.no_grad():
        for x, y in rows:
            hits += (model(x).argmax(1) == y).sum().item()
    return hits

def fit(model, rows):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in rows:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

model = torch.nn.Linear(4, 2)
held = DataLoader(torch.load("held.pt"), batch_size=8)
print("ready")
fit(model, DataLoader(torch.load("rows.pt"), batch_size=8))
print(score(model, held))
"""
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    told = [change.reason for change in file.changes if change.rule == "prepare" and "ready" in change.reason]
    assert sorted(told) == [
        f"the {kinds} ready here, and not used yet" for kinds in ("loader is", "model, optimizer, loader are")
    ]
