"""What no variable holds: it is prepared in the expression that builds it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

TrainedProject = Callable[..., tuple[dict[str, str], list[str]]]

TOP = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import data

loader = DataLoader(data, batch_size=8, shuffle=True)

"""
FITTED = """\
def fit(net, batches, chosen):
    for x, y in batches:
        loss = nn.functional.cross_entropy(net(x), y)
        chosen.zero_grad()
        loss.backward()
        chosen.step()


class Bench:
    def fit(self, net, batches, chosen):
        fit(net, batches, chosen)


net = nn.Linear(8, 2)
{call}
"""
CALLS = {
    "of a function": "fit(net, loader, {})",
    "by its name": "fit(net, chosen={}, batches=loader)",
    "of a method that does not keep it": "Bench().fit(net, loader, {})",
}
MADE = "torch.optim.SGD(net.parameters(), lr=0.1)"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_optimizer_in_the_arguments_of_a_call(call: str, trained_project: TrainedProject) -> None:
    after, findings = trained_project(train=TOP + FITTED.format(call=call.format(MADE)))
    prepared, used = f"accelerator.prepare({MADE})", after["train"].index("net, loader = accelerator.prepare(")
    assert prepared in after["train"] and used < after["train"].index(prepared)
    assert findings == []


def test_one_that_a_function_gives_back_has_a_name(trained_project: TrainedProject) -> None:
    call = f"optimizer = same({MADE})\nfit(net, loader, optimizer)"
    after, findings = trained_project(train=TOP + "def same(one):\n    return one\n\n\n" + FITTED.format(call=call))
    assert "net, optimizer, loader = accelerator.prepare(" in after["train"] and findings == []


SEVERAL = """\
{nets}
{optimizers}
for x, y in loader:
    for net, optimizer in zip(nets, optimizers):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
NETS = {
    "a list": "nets = [{n}, {n}]",
    "a comprehension": "nets = [{n} for _ in range(3)]",
    "a tuple": "nets = ({n}, {n})",
}


@pytest.mark.parametrize("nets", NETS.values(), ids=NETS)
def test_models_and_optimizers_in_containers(nets: str, trained_project: TrainedProject) -> None:
    optimizers = f"optimizers = [{MADE} for net in nets]"
    text = TOP + SEVERAL.format(nets=nets.format(n="nn.Linear(8, 2)"), optimizers=optimizers)
    after, findings = trained_project(train=text)
    assert nets.format(n="accelerator.prepare(nn.Linear(8, 2))") in after["train"]
    assert f"optimizers = [accelerator.prepare({MADE}) for net in nets]" in after["train"]
    assert findings == []


def test_optimizers_of_models_that_have_names(trained_project: TrainedProject) -> None:
    nets = "one, two = nn.Linear(8, 2), nn.Linear(8, 2)\nnets = [one, two]"
    made = [f"torch.optim.{kind}({net}.parameters())" for kind, net in (("SGD", "one"), ("Adam", "two"))]
    after, findings = trained_project(
        train=TOP + SEVERAL.format(nets=nets, optimizers=f"optimizers = [{', '.join(made)}]")
    )
    assert f"optimizers = [{', '.join(f'accelerator.prepare({one})' for one in made)}]" in after["train"]
    assert after["train"].index("one, two, loader = accelerator.prepare(") < after["train"].index("optimizers = [")
    assert findings == []


ENTRIES = """\
class Stages:
    def __init__(self):
        self.nets, weights = {{}}, []
        for name, size in (("first", 8), ("last", 2)):
            self.nets[name] = nn.Linear(8, size){move}
            weights += list(self.nets[name].parameters())
        self.optimizer = torch.optim.SGD(weights, lr=0.1)

    def fit(self):
        for x, y in loader:
            loss = nn.functional.cross_entropy(self.nets["last"](self.nets["first"](x)), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


Stages().fit()
"""


@pytest.mark.parametrize("move", ["", ".to('cuda')", ".cuda().train()"])
def test_models_that_are_entries_of_a_table(move: str, trained_project: TrainedProject) -> None:
    after, findings = trained_project(train=TOP + ENTRIES.format(move=move))
    assert "self.nets[name] = accelerator.prepare(nn.Linear(8, size))" in after["train"]
    assert "self.optimizer = accelerator.prepare(self.optimizer)" in after["train"] and findings == []


def test_one_of_a_list_that_is_looked_up_there(trained_project: TrainedProject) -> None:
    call = f"optimizer = [{MADE}][0]\nfit(net, loader, optimizer)"
    after, findings = trained_project(train=TOP + FITTED.format(call=call))
    assert "net, optimizer, loader = accelerator.prepare(" in after["train"] and findings == []


SHARP = """\
class Sharp(torch.optim.Optimizer):
    def __init__(self, weights, kind, **options):
        super().__init__(weights, options)
        self.inner = kind(self.param_groups, **options)

    @torch.no_grad()
    def climb(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["step"] = p.grad * 0.05
                p.add_(self.state[p]["step"])
        self.zero_grad()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["step"])
        self.inner.step()
        self.zero_grad()


net = nn.Linear(8, 2)
optimizer = Sharp(net.parameters(), torch.optim.SGD, lr=0.1)
for x, y in loader:
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.climb()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.{last}()
"""


@pytest.mark.parametrize("last", ["step", "descend"])
def test_an_optimizer_that_makes_another_is_prepared_alone(last: str, trained_project: TrainedProject) -> None:
    text = SHARP.replace("def step(", f"def {last}(").format(last=last)
    after, findings = trained_project(train=TOP + text)
    assert "net, optimizer, loader = accelerator.prepare(" in after["train"] and findings == []
    assert "self.inner = kind(self.param_groups, **options)" in after["train"]


OWN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import data


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 2)
        self.chosen = torch.optim.SGD(self.parameters(), lr=0.1)

    def forward(self, x):
        return self.body(x)


def init(layer):
    if isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight)


def fit(one, two, loader, device):
    for x, y in loader:
        for net in (one, two):
            loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
            net.chosen.zero_grad()
            loss.backward()
        one.chosen.step()
        two.chosen.step()


class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.tail = nn.Linear(8, 2)
        self.chosen = torch.optim.Adam(self.parameters())

    def forward(self, x):
        return self.tail(x)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(data, batch_size=8)
    one = Net().to(device)
    one.apply(init)
    two = Other().to(device)
    two.apply(init)
    fit(one, two, loader, device)


main()
"""


def test_a_model_that_builds_its_optimizer_is_prepared_where_it_is_made(trained_project: TrainedProject) -> None:
    """It was prepared in its constructor: weights that were drawn anew after that differed, and it was refused."""
    after, findings = trained_project(train=OWN)
    assert findings == []
    assert "prepare(self" not in after["train"] and "def __init__(self):" in after["train"]
    names = "one, two, one.chosen, two.chosen, loader"
    assert f"    two.apply(init)\n    {names} = accelerator.prepare(" in after["train"]
