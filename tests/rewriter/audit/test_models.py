"""Models whose gradients the script averages by itself, beside those whose losses alone are averaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.rewriter.findings import Severity

SCRIPT = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        JOIN
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
AVERAGED = {
    "each gradient": "for p in model.parameters():\n    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)",
    "each gradient by name": "for name, p in model.named_parameters():\n    dist.all_reduce(p.grad.data)",
    "a list of them": "grads = [p.grad for p in model.parameters()]\nfor grad in grads:\n    dist.all_reduce(grad)",
    "a tensor of all": "flat = torch.cat([p.grad.view(-1) for p in model.parameters()])\ndist.all_reduce(flat)",
    "by the optimizer's groups": (
        "for group in optimizer.param_groups:\n    for p in group['params']:\n        dist.all_reduce(p)"
    ),
    "in a comprehension": "[dist.all_reduce(p) for p in model.parameters()]",
}
NOT_AVERAGED = {
    "the loss alone": "shown = loss.detach()\ndist.all_reduce(shown)",
    "a count": "rows = torch.tensor(len(x))\ndist.all_reduce(rows)",
}


def joining(lines: str, *, in_function: bool) -> str:
    text = SCRIPT.replace("JOIN", lines.replace("\n", "\n        "))
    if not in_function:
        return text
    head, _, body = text.partition("dist.init")
    return head + "def main():\n    dist.init" + body.replace("\n", "\n    ").rstrip() + "\n\nmain()\n"


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("name", AVERAGED)
def test_a_model_whose_gradients_the_script_averages(
    name: str, in_function: bool, found: Callable[[str], set[str]]
) -> None:
    assert found(joining(AVERAGED[name], in_function=in_function)) == set()


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("name", NOT_AVERAGED)
def test_a_joined_loss_averages_no_gradient(name: str, in_function: bool, found: Callable[[str], set[str]]) -> None:
    assert found(joining(NOT_AVERAGED[name], in_function=in_function)) == {"unwrapped-model"}


RESTORED = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def restore(path, **parts):
    checkpoint = torch.load(path)
    for key, value in parts.items():
        if key in checkpoint:
            value.load_state_dict(checkpoint[key])


def main():
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    restore("last.pt", model=model, optimizer=optimizer)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if dist.get_rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")


main()
"""


def test_a_wrapper_whose_state_a_helper_loads_again(told: Callable[[str], dict[str, Severity]]) -> None:
    assert told(RESTORED) == {"saved-wrapper": Severity.REVIEW}
    assert told(RESTORED.replace("model=model, ", "")) == {"saved-wrapper": Severity.ERROR}
    assert told(RESTORED.replace("model=model, ", "model=model.module, ")) == {"saved-wrapper": Severity.ERROR}


CUT = {
    "replaced": 'name.replace("module.", "")',
    "removed": 'name.removeprefix("module.")',
    "cut": 'name[len("module."):]',
    "by a pattern": 're.sub("module.", "", name)',
}


@pytest.mark.parametrize("name", CUT)
def test_a_program_that_takes_the_prefix_off(name: str, told: Callable[[str], dict[str, Severity]]) -> None:
    reads = f"value.load_state_dict({{{CUT[name]}: w for name, w in checkpoint[key].items()}})"
    before = "    model = DDP(nn.Linear(4, 1))\n"
    text = "import re\n" + RESTORED.replace("value.load_state_dict(checkpoint[key])", reads)
    text = text.replace("model=model, ", "").replace(
        before, f'    plain = nn.Linear(4, 1)\n    restore("first.pt", model=plain)\n{before}'
    )
    assert told(text) == {}
    assert told(text.replace('"module.', '"encoder.')) == {"saved-wrapper": Severity.ERROR}
    other = text.replace('"module.', '"module.encoder.')
    assert told(other) == {"saved-wrapper": Severity.ERROR}, "these are the names of another model"
    whole = text.replace('"model": model.state_dict()', '"model": model.state_dict(), "all": 1').replace(
        'torch.save({"model"', 'torch.save(model, "whole.pt")\n        torch.save({"model"'
    )
    assert told(whole) == {"saved-wrapper": Severity.ERROR}, "a pickled wrapper has the group in it"


AVERAGES = {
    "diffusers": ("from diffusers.training_utils import EMAModel", "EMAModel(model.parameters(), decay=0.9)"),
    "torch_ema": (
        "from torch_ema import ExponentialMovingAverage",
        "ExponentialMovingAverage(model.parameters(), decay=0.9)",
    ),
    "another class": ("from others import Other", "Other(model.parameters())"),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_an_average_of_weights_is_no_optimizer(name: str, found: Callable[[str], set[str]]) -> None:
    imports, made = AVERAGES[name]
    text = (Path(__file__).parent / "fixtures" / "accelerate_state.py").read_text()
    zero = "            optimizer.zero_grad()\n"
    assert zero in text and "    best = 0\n" in text
    text = text.replace("    best = 0\n", f"    best = 0\n    ema = {made}\n")
    text = text.replace(zero, f"            ema.step(model.parameters())\n{zero}")
    assert found(f"{imports}\n{text}") == ({"misprepared"} if name == "another class" else set())


CLASSES = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)


class Both(nn.Module):
    def __init__(self, first, weight=0.5):
        super().__init__()
        self.first = first
        self.second = nn.L1Loss()
        self.noise = nn.Dropout(0.1)
        self.weight = weight

    def forward(self, out, y):
        return self.first(self.noise(out), y) + self.weight * self.second(out, y)


class Taught(nn.Module):
    def __init__(self, teacher):
        super().__init__()
        self.teacher = teacher
        self.loss = Both(nn.MSELoss())

    def forward(self, x, out, y):
        with torch.no_grad():
            wanted = self.teacher(x)
        return self.loss(out, y) + self.loss(out, wanted)


class Runs(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def build(kind):
    if kind == "net":
        return Net()
    return Both(nn.MSELoss())


"""
WITHOUT_PARAMETERS = {
    "a sum of losses": ('ddp = DDP(build("net"))\nloss_of = build("both")', "loss_of(ddp(x), y)"),
    "a loss with a model": ("net = Net()\nddp = DDP(net)\nloss_of = Taught(net)", "loss_of(x, ddp(x), y)"),
    "what runs the wrapper": ("ddp = DDP(Net())\nwhole = Runs(ddp)", "nn.functional.mse_loss(whole(x), y)"),
}
WITH_PARAMETERS = {
    "a loss with a scale": ("scale", 'ddp = DDP(build("net"))\nloss_of = build("both")', "loss_of(ddp(x), y)"),
    "a loss with a layer": ("layer", 'ddp = DDP(build("net"))\nloss_of = build("both")', "loss_of(ddp(x), y)"),
    "what runs the plain model": (
        "", "net = Net()\nddp = DDP(net)\nwhole = Runs(net)", "nn.functional.mse_loss(whole(x), y)"
    ),
    "the model itself": ("", "net = Net()\nddp = DDP(net)", "nn.functional.mse_loss(net(x), y)"),
}  # fmt: skip
MORE = {
    "": "self.noise = nn.Dropout(0.1)",
    "scale": "self.noise = nn.Dropout(0.1)\n        self.scale = nn.Parameter(torch.ones(1))",
    "layer": "self.noise = nn.Sequential(nn.ReLU(), nn.Linear(1, 1))",
}


def composed(makes: str, loss: str, more: str = "") -> str:
    text = SCRIPT.replace("        JOIN\n", "").replace("nn.functional.mse_loss(model(x), y)", loss)
    text = text.replace("model.parameters()", "ddp.parameters()").replace("model = nn.Linear(4, 1)", makes)
    classes = CLASSES.replace(MORE[""], MORE[more])
    text = text.replace("dist.init", f"{classes}dist.init", 1)
    return "from torch.nn.parallel import DistributedDataParallel as DDP\n" + text


@pytest.mark.parametrize("name", WITHOUT_PARAMETERS)
def test_a_module_without_parameters_is_no_model(name: str, found: Callable[[str], set[str]]) -> None:
    assert found(composed(*WITHOUT_PARAMETERS[name])) == set()


@pytest.mark.parametrize("name", WITH_PARAMETERS)
def test_a_module_with_parameters_passes_by_the_wrapper(name: str, found: Callable[[str], set[str]]) -> None:
    more, makes, loss = WITH_PARAMETERS[name]
    assert found(composed(makes, loss, more)) == {"unwrapped-model"}


LAST = """\
        if epoch == 2:
            ddp = ddp.module
            torch.save(ddp.state_dict(), f"{dist.get_rank()}.pt")
            LEAVES
"""
STEP = """\
def step(x):
    return ddp(x)
"""


@pytest.mark.parametrize("leaves", ["break", "return", "continue", "print(epoch)"])
@pytest.mark.parametrize("called", ["ddp(x)", "step(x)"])
def test_a_wrapper_that_is_taken_off_at_last(leaves: str, called: str, found: Callable[[str], set[str]]) -> None:
    """After it, the training does not go on."""
    text = composed("ddp = DDP(Net())" + (f"\n{STEP}" if called == "step(x)" else ""), f"({called} - y).mean()")
    text += LAST.replace("LEAVES", leaves)
    head, _, body = text.partition("dist.init")
    text = head + "def main():\n    dist.init" + body.replace("\n", "\n    ").rstrip() + "\n\n\nmain()\n"
    assert found(text) == (set() if leaves in ("break", "return") else {"unwrapped-model"})
