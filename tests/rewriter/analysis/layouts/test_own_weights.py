"""Weights and gradients that are changed by hand, by a value that each process has of its own shard."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]
Project = Callable[..., tuple[dict[str, str], list[str]]]

REDUCED = 'accelerator.reduce(loss.detach(), reduction="mean").item()'


@pytest.mark.parametrize(
    "step",
    [
        "for p in model.parameters():\n    p.data.mul_(1 - 0.01 * {loss})",
        "for p in model.parameters():\n    p.data = p.data * (1 - 0.01 * {loss})",
        "for name, p in model.named_parameters():\n    p.grad.mul_({loss})",
        "with torch.no_grad():\n    model.bias.add_({loss})",
        "for g in optimizer.param_groups:\n    for p in g['params']:\n        p.data.add_(p.grad, alpha={loss})",
    ],
)
def test_by_the_loss_of_all(trained: Trained, step: str) -> None:
    """A process whose loss is higher would have other weights, without a word."""
    text, findings = trained(step=step.format(loss="loss.item()"))
    assert findings == [] and step.format(loss=REDUCED).splitlines()[-2].strip() in text and REDUCED in text


@pytest.mark.parametrize(
    ("step", "joined"),
    [
        (
            "with torch.no_grad():\n    model.bias.add_(x.mean())",
            'model.bias.add_(accelerator.reduce(x.mean().detach(), reduction="mean"))',
        ),
        (
            "hits = (model(x).argmax(1) == y).sum()\nfor p in model.parameters():\n    p.data.clamp_(max=hits)",
            'hits = accelerator.reduce((model(x).argmax(1) == y).sum().detach(), reduction="sum")',
        ),
    ],
)
def test_by_a_figure_of_the_rows_of_all(trained: Trained, step: str, joined: str) -> None:
    """It was refused, though only the figure of all rows is needed."""
    text, findings = trained(step=step)
    assert findings == [] and joined in text


def test_gradients_that_are_limited_by_a_loss(trained: Trained) -> None:
    text, findings = trained(step="torch.nn.utils.clip_grad_norm_(model.parameters(), loss.item())")
    assert f"clip_grad_norm_(model.parameters(), {REDUCED})" in text and findings == []


def test_gradients_that_are_computed_apart(trained: Trained) -> None:
    step = "for p, g in zip(model.parameters(), torch.autograd.grad(loss, model.parameters())):\n    p.grad = g"
    text, findings = trained(step=step)
    assert 'p.grad = accelerator.reduce(g.detach(), reduction="mean")' in text and findings == []


@pytest.mark.parametrize(
    "step",
    [
        "with torch.no_grad():\n    model.bias.add_(x.max())",
        "model.weight.data[y] = x",
        "hits = (model(x).argmax(1) == y).max()\nfor p in model.parameters():\n    p.data.clamp_(max=hits)",
        "kept = model.state_dict()\nkept['bias'] = kept['bias'] * loss.item()\nmodel.load_state_dict(kept)",
    ],
)
def test_by_rows_that_are_not_joined(trained: Trained, step: str) -> None:
    text, findings = trained(step=step)
    assert findings == ["one-share"] and "import Accelerator" not in text


@pytest.mark.parametrize(
    "step",
    [
        "for p in model.parameters():\n    p.data.clamp_(-1, 1)",
        "for p in model.parameters():\n    p.grad.data.add_(p.data, alpha=1e-4)",
        "with torch.no_grad():\n    model.weight.div_(model.weight.norm())",
        "x.data.add_(loss.item())\nfor p in model.parameters():\n    p.data = p.data.clamp(-1, 1)",
        "model.load_state_dict(torch.load('start.pt'))",
        "x.grad = loss\nfor p in model.parameters():\n    p.grad = p.grad / 2",
    ],
)
def test_by_what_is_the_same_everywhere(trained: Trained, step: str) -> None:
    assert trained(step=step)[1] == []


CODES = """\
import torch
from torch.utils.data import DataLoader
from data import data

class Codes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)
        self.register_buffer("size", torch.zeros(16))
        self.register_buffer("mean", torch.zeros(16, 8))

    def forward(self, z):
        chosen = torch.cdist(z, self.table.weight).argmin(1)
        taken = torch.nn.functional.one_hot(chosen, 16).float()
        self.size.data.mul_(0.9).add_(taken.sum(0), alpha=0.1)
        self.mean.data.mul_(0.9).add_(taken.t() @ z.detach(), alpha=0.1)
        self.table.weight.data.copy_(self.mean / self.size.unsqueeze(1))
        return self.table(chosen)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.codes = Codes()

    def forward(self, x):
        return self.inner(x) + self.codes(self.inner(x)).detach()

net = Net()
optimizer = torch.optim.Adam(net.parameters())
for x, _ in DataLoader(data, batch_size=32):
    loss = (net(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_codes_that_follow_the_rows_of_one_process(trained_project: Project) -> None:
    """What is added in a chain of methods is in the buffer."""
    text, findings = trained_project(train=CODES)
    assert findings == ["one-share"] and "import Accelerator" not in text["train"]


HOOK = """\
def scale(module, inputs, output):
    {change}
model.register_forward_hook(scale)
"""
KEPT_HOOK = """\
seen = {}
def look(module, inputs, output):
    seen["mean"] = output.detach().amax(0)
model.register_forward_hook(look)
"""


@pytest.mark.parametrize(
    ("built", "step"),
    [
        (HOOK.format(change="module.weight.data = module.weight.data / output.detach().std()"), ""),
        (HOOK.format(change="module.bias.data.sub_(inputs[0].amax())"), ""),
        (KEPT_HOOK, "model.bias.data -= seen['mean']"),
        ("", "torch.nn.init.constant_(model.bias, x.max().item())"),
        ("", "optimizer.param_groups[0]['params'][0].data.add_(x.amax())"),
        ("", "model.bias = torch.nn.Parameter(x.amax(0))"),
    ],
)
def test_by_a_hook_or_in_another_spelling(trained: Trained, built: str, step: str) -> None:
    """What a model calls in its forward pass is given the rows of one process; weights have other names."""
    text, findings = trained(built=built, step=step)
    assert "one-share" in findings and "import Accelerator" not in text


METHOD = """\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 2)
        self.inner.register_forward_hook(self.centred)

    def centred(self, module, inputs, output):
        module.bias.data -= 0.1 * output.detach().amax(0)

    def forward(self, x):
        return self.inner(x)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_by_a_method_that_is_a_hook(trained: Trained) -> None:
    assert trained(built=METHOD)[1] == ["one-share"]


def test_a_hook_that_keeps_features(trained: Trained) -> None:
    """They are rows of the batch, as what the model gives."""
    hook = "kept = {}\ndef keep(module, inputs, output):\n    kept['out'] = output\nmodel.register_forward_hook(keep)"
    text, findings = trained(built=hook, step="more = kept['out'].mean()\nprint(more.item())")
    assert "accelerator.backward(loss)" in text and findings == []


def test_an_initial_weight_is_the_same_everywhere(trained: Trained) -> None:
    built = "torch.nn.init.constant_(model.bias, 0.1)\nmodel.bias = torch.nn.Parameter(torch.zeros(2))"
    assert "one-share" not in trained(built=built)[1]


MADE = """\
class Scale(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(dim))
        self.turn = torch.nn.Linear(dim, dim)
        torch.nn.init.constant_(self.turn.bias, dim)

    def forward(self, x):
        return self.turn(x) * self.scale

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 2)
        self.scale = Scale(2)

    def forward(self, x):
        out = self.inner(x)
        return self.scale(out) + Scale(int(out.abs().max()))(out).detach()

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_what_a_constructor_begins_with_is_no_change(trained: Trained) -> None:
    """A library of layers was refused: one of its constructors is reached from the forward pass."""
    assert "one-share" not in trained(built=MADE)[1]
