"""Random numbers that change weights or gradients by hand are other ones on each process, after prepare."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Project = Callable[..., tuple[dict[str, str], list[str]]]

SCRIPT = """\
import copy
import torch
from torch.utils.data import DataLoader
from data import data

def noise(p, std):
    return torch.randn(p.shape, device=p.device) * std

model = torch.nn.Linear(8, 2)
twin = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
own = torch.Generator().manual_seed(0)
for x, y in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    {seed}
    for p, q in zip(model.parameters(), twin.parameters()):
        {changed}
    optimizer.step()
"""


def found(project: Project, changed: str, seed: str = "pass") -> list[str]:
    return project(train=SCRIPT.format(changed=changed, seed=seed))[1]


@pytest.mark.parametrize(
    "changed",
    [
        "p.data += 0.1 * torch.randn_like(p)",
        "p.data = p.data + torch.rand(p.shape, device=p.device)",
        "p.data.add_(torch.randn_like(p), alpha=0.1)",
        "p.grad += 0.1 * torch.randn_like(p.grad)",
        "p.grad.data.mul_(torch.bernoulli(torch.full_like(p, 0.9)))",
        "step = torch.normal(0.0, 0.1, size=p.shape, device=p.device); p.data.add_(step)",
        "p.data.add_(noise(p, 0.1))",
    ],
)
def test_what_is_drawn_changes_the_weights_of_each_process_differently(changed: str, trained_project: Project) -> None:
    assert found(trained_project, changed) == ["late-draw"]


@pytest.mark.parametrize(
    "changed",
    [
        "p.data.clamp_(-1, 1)",
        "q.data.mul_(0.9).add_(p.data, alpha=0.1)",
        "p.data.add_(torch.randn(p.shape, generator=own, device=p.device))",
        "print(p + torch.randn_like(p))",
        "q.data.add_(torch.randn_like(q))",
    ],
    ids=["constants", "a moving average", "a generator that is the same", "nothing is changed", "an unprepared model"],
)
def test_weights_that_stay_equal(changed: str, trained_project: Project) -> None:
    assert found(trained_project, changed) == []


def test_a_seed_right_before_makes_the_numbers_equal(trained_project: Project) -> None:
    changed = "torch.manual_seed(0); p.data.add_(torch.randn_like(p))"
    assert found(trained_project, changed.replace("; ", "\n        ")) == []


OPTIMIZER = """\
import torch
from torch.utils.data import DataLoader
from data import data

class Langevin(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                {step}

model = torch.nn.Linear(8, 2)
optimizer = Langevin(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("step", "late"),
    [
        ("p.data.add_(torch.randn_like(p), alpha=0.1)", ["late-draw"]),
        ("p.data.add_(p.grad, alpha=-group['lr'])", []),
    ],
)
def test_an_optimizer_of_the_script_that_steps_at_random(step: str, late: list[str], trained_project: Project) -> None:
    assert trained_project(train=OPTIMIZER.format(step=step))[1] == late
