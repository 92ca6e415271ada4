"""One model that several optimizers train, and models that one function makes for several phases of a training."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Project = Callable[..., tuple[dict[str, str], list[str]]]

TOP = """\
import torch
import torch.nn.functional as F
from itertools import cycle
from torch import nn
from torch.utils.data import DataLoader

from rows import rows


def build(width):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))


"""
STEPS = """\
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        {optimizer}.zero_grad()
        loss.backward()
        {optimizer}.step()
"""
TUNE = "def tune(model, loader):\n    opt = torch.optim.SGD(model.parameters(), lr=0.01)\n" + STEPS.format(
    optimizer="opt"
)
MAIN = """

def main():
    loader = DataLoader(rows(), batch_size=8, shuffle=True)
{body}

main()
"""
MADE = "    model = build(16)\n"
BUILT = "    optimizer = torch.optim.Adam(model.parameters())\n" + STEPS.format(optimizer="optimizer")
ROWS = "def rows():\n    return [(0, 1)]\n"
BOTH = "    model, {name}{loader} = accelerator.prepare(\n        model, {name}{loader}\n    )\n"


def test_a_model_is_prepared_with_the_optimizer_that_trains_it_first(trained_project: Project) -> None:
    texts, _ = trained_project(
        train=TOP + TUNE + MAIN.format(body=MADE + BUILT + "    tune(model, loader)\n"), rows=ROWS
    )
    assert BOTH.format(name="optimizer", loader=", loader") in texts["train"]
    assert "    opt = accelerator.prepare(opt)\n" in texts["train"]


def test_a_model_is_prepared_in_the_function_that_trains_it_first(trained_project: Project) -> None:
    texts, _ = trained_project(
        train=TOP + TUNE + MAIN.format(body=MADE + "    tune(model, loader)\n" + BUILT), rows=ROWS
    )
    assert BOTH.format(name="opt", loader="") in texts["train"]
    assert "    optimizer = accelerator.prepare(optimizer)\n" in texts["train"]


def test_a_model_is_prepared_before_a_function_that_steps_its_first_optimizer(trained_project: Project) -> None:
    epoch = "\n\ndef epoch(model, loader, optimizer):\n" + STEPS.format(optimizer="optimizer")
    body = MADE + "    optimizer = torch.optim.Adam(model.parameters())\n    epoch(model, loader, optimizer)\n"
    body += "    tune(model, loader)\n"
    texts, _ = trained_project(train=TOP + TUNE + epoch + MAIN.format(body=body), rows=ROWS)
    assert BOTH.format(name="optimizer", loader=", loader") in texts["train"]
    assert "    opt = accelerator.prepare(opt)\n" in texts["train"]


TEACHER = "def teach(loader):\n" + MADE + BUILT + "    return model\n"
STUDENT = """\
    teacher = teach(loader)
    model = build(8)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam({given})
    for x, y in loader:
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        loss = F.cross_entropy(model(x), soft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("given", ["model.parameters()", "params"])
def test_two_models_of_one_function_are_prepared_where_each_is_made(given: str, trained_project: Project) -> None:
    """A teacher and its student: for the analysis they are one thing, made by one line."""
    texts, _ = trained_project(train=TOP + TEACHER + MAIN.format(body=STUDENT.format(given=given)), rows=ROWS)
    taught, main = texts["train"].split("def main():")
    assert BOTH.format(name="optimizer", loader="") in taught
    assert BOTH.format(name="optimizer", loader="") in main


RESTORES = """\
def restore(path, model, optimizer=None):
    model.load_state_dict(torch.load(path))
    return model, optimizer


def train(model, loader):
    optimizer = torch.optim.Adam(model.parameters())
{steps}
    torch.save(model.state_dict(), "w.pt")
    model, optimizer = restore("w.pt", model, optimizer)


def distil(teacher, model, loader):
    opt = torch.optim.Adam(model.parameters())
    for x, _ in loader:
        with torch.no_grad():
            wanted = teacher(x)
        loss = F.mse_loss(model(x), wanted)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model, opt = restore("w.pt", model, opt)


"""


@pytest.mark.parametrize("first", ["build(16)", "nn.Linear(8, 3)"])
def test_a_student_is_prepared_with_its_optimizer(first: str, trained_project: Project) -> None:
    """It was taken for the model that a call before had been given back, or that the same function had made."""
    body = f"    train({first}, loader)\n    teacher, _ = restore('w.pt', {first})\n    student = build(8)\n"
    body += "    distil(teacher, student, loader)\n"
    text = TOP + RESTORES.format(steps=STEPS.format(optimizer="optimizer")) + MAIN.format(body=body)
    texts, _ = trained_project(train=text, rows=ROWS)
    assert BOTH.format(name="optimizer", loader="") in texts["train"]
    assert BOTH.format(name="opt", loader="") in texts["train"]
    assert texts["train"].count("accelerator.prepare(") == 3  # and the loader


KEEPS = """\
class Trainer:
    def __init__(self, model, loader):
        self.model = model
        {feed}
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def run(self):
        for step in range(9):
            x, y = next(self.feed)
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


Trainer(build(16), None).run()
"""


@pytest.mark.parametrize("opened", ["cycle", "iter"])
def test_an_attribute_that_holds_an_iterator_is_given_the_prepared_loader(
    opened: str, trained_project: Project
) -> None:
    """`prepare(self.feed)` would be given what has no length and no batches to replace."""
    feed = f"self.feed = {opened}(DataLoader(rows(), batch_size=8))"
    texts, _ = trained_project(train=TOP + KEEPS.format(feed=feed), rows=ROWS)
    assert f"self.feed = {opened}(self.accelerator.prepare(DataLoader(rows(), batch_size=8)))\n" in texts["train"]
    named = f"self.loader = DataLoader(rows(), batch_size=8)\n        self.feed = {opened}(self.loader)"
    texts, _ = trained_project(train=TOP + KEEPS.format(feed=named), rows=ROWS)
    assert "self.loader = self.accelerator.prepare(DataLoader(rows(), batch_size=8))\n" in texts["train"]


GLOBALS = """\
def define():
    global first, second
    first = build(16)
    second = build(8)


if __name__ == "__main__":
    loader = DataLoader(rows(), batch_size=8, shuffle=True)
    define()
    ours = torch.optim.Adam(first.parameters())
    theirs = torch.optim.Adam(second.parameters())
    for x, y in loader:
        for model, optimizer in ((first, ours), (second, theirs)):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def test_models_that_a_function_makes_as_globals_are_prepared_there_alone(trained_project: Project) -> None:
    """A second `prepare` stood above their definitions, and above `from __future__`."""
    texts, _ = trained_project(train=f"from __future__ import annotations\n{TOP}{GLOBALS}", rows=ROWS)
    assert texts["train"].startswith("from __future__")
    assert texts["train"].count("first, second = accelerator.prepare(") == 1
    assert texts["train"].count("prepare(") == 2
