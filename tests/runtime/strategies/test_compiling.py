"""Models that are compiled, and stay the objects that they are."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from torchlift.runtime import Accelerator, TorchDynamoPlugin


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x):
        return self.layers(x)


class Named(nn.Sequential):
    """Computes as the class of torch."""


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


MODELS = {
    "own class": Net,
    "container of torch": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
    "named container": lambda: Named(nn.Linear(4, 4)),
    "layer of torch": lambda: nn.Linear(4, 4),
    "blocks": Blocks,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_any_class_is_compiled(name):
    """`compile` of a class of torch.nn does nothing, without a word."""
    torch.manual_seed(0)
    model = MODELS[name]()
    plain = copy.deepcopy(model)
    plugin = TorchDynamoPlugin(backend="eager", use_regional_compilation=name == "blocks")
    accelerator = Accelerator(dynamo_plugin=plugin)
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    before, x = graphs(), torch.randn(3, 4, requires_grad=True)  # as what the second block is given
    assert accelerator.prepare(model) is model
    assert torch.equal(model(x), plain(x)) and len(calls) == 1
    assert graphs() == before + 1
    accelerator.backward(model(x).sum())
    plain(x).sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    assert torch.equal(copy.deepcopy(model)(x), plain(x))


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_the_type_of_numbers_is_part_of_what_is_compiled(precision):
    if precision == "fp8":
        pytest.importorskip("torchao", reason="needs the extra fp8")
    accelerator = Accelerator(mixed_precision=precision, dynamo_backend="eager")
    model = accelerator.prepare(nn.Sequential(*[nn.Linear(16, 16) for _ in range(4)]))
    before = graphs()
    assert model(torch.randn(2, 16)).dtype is torch.float32
    assert graphs() == before + 1
