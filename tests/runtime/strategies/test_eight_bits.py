"""Linear layers that multiply in eight bits: fp8 and int8 by torchao."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from torchlift.runtime import Accelerator
from torchlift.runtime.errors import (
    DeviceError,
    MissingPackageError,
    MixedUseError,
    NotAvailableYet,
    UnknownWordError,
    WrongKindError,
)
from torchlift.runtime.strategies import eight_bits
from torchlift.runtime.strategies.eight_bits import filter_first_and_last_linear_layers
from torchlift.runtime.types import FP8BackendType
from torchlift.runtime.utils import (
    AORecipeKwargs,
    FP8RecipeKwargs,
    MSAMPRecipeKwargs,
    TERecipeKwargs,
    convert_model_to_fp8_ao,
    has_ao_layers,
)

pytest.importorskip("torchao", reason="needs the extra fp8")
INT8 = "int8"
there = pytest.mark.skipif(
    torch.cuda.is_available(), reason="where torchao finds a GPU, it multiplies int8 there alone"
)
KINDS = ["fp8", pytest.param(INT8, marks=there)]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")


def net(sizes=(32, 64, 64, 64, 4)):
    torch.manual_seed(0)
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    return nn.Sequential(*[one for layer in layers for one in (layer, nn.ReLU())][:-1])


def train(model, optimizer, backward, forward):
    torch.manual_seed(1)
    x, y = torch.randn(64, 32), torch.randint(4, (64,))
    losses = []
    for start in range(0, 64, 8):
        loss = nn.functional.cross_entropy(forward(model, x[start : start + 8]), y[start : start + 8])
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def take_part_in_autocast(layer):
    """As torchao's other way, weights of a type of its own, does on a GPU. Its layer does not, and fails there."""
    from torchao.prototype.quantized_training.int8_mixed_precision import _Int8MixedPrecisionTrainingLinearFunction

    def forward(x):
        product = _Int8MixedPrecisionTrainingLinearFunction.apply(x.bfloat16(), layer.weight, None, layer.config)
        return product + layer.bias.bfloat16()

    layer.forward = forward


def raw(kind, chosen):
    model = net()
    if kind == "fp8":
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = Float8LinearConfig(pad_inner_dim=True, emulate=True)
        convert_to_float8_training(model, module_filter_fn=lambda _, name: name in chosen, config=config)
    else:
        from torchao.prototype.quantized_training import Int8MixedPrecisionTrainingConfig
        from torchao.quantization import quantize_

        config = Int8MixedPrecisionTrainingConfig(module_swap=True)
        quantize_(model, config, filter_fn=lambda _, name: name in chosen)
        for name in chosen:
            take_part_in_autocast(model.get_submodule(name))

    def forward(model, x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return train(model, optimizer, torch.Tensor.backward, forward), model.state_dict()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chosen", [None, ("0", "4")], ids=["all but the first and the last", "those that are chosen"])
def test_training_is_that_of_raw_torchao(kind, chosen):
    handlers = [] if chosen is None else [AORecipeKwargs(module_filter_func=lambda _, name: name in chosen)]
    accelerator = Accelerator(mixed_precision=kind, kwargs_handlers=handlers)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    assert accelerator.mixed_precision == kind and accelerator.fp8_backend == FP8BackendType.AO
    losses = train(model, optimizer, accelerator.backward, lambda model, x: model(x))
    expected, weights = raw(kind, chosen or ("2", "4"))
    assert losses == expected
    state = model.state_dict()
    assert list(state) == list(weights) == list(net().state_dict())
    assert all(torch.equal(state[name], one) for name, one in weights.items())


@pytest.mark.parametrize("kind", KINDS)
def test_layers_stay_the_objects_that_they_are(kind):
    model = net()
    held, weight, calls = model[2], model[2].weight, []
    held.register_forward_hook(lambda *_: calls.append(1))
    accelerator = Accelerator(mixed_precision=kind)
    assert accelerator.prepare(model) is model
    assert model[2] is held and held.weight is weight and isinstance(held, nn.Linear) and type(held) is not nn.Linear
    assert [type(model[place]) is nn.Linear for place in (0, 2, 4, 6)] == [True, False, False, True]
    model(torch.randn(8, 32)).sum().backward()
    assert calls == [1] and weight.grad.dtype is torch.float32
    other = copy.deepcopy(model)
    with accelerator.autocast():
        assert torch.equal(other(torch.ones(8, 32)).float(), model(torch.ones(8, 32)).float())
    accelerator.free_memory()
    assert type(held) is nn.Linear and vars(held).keys() == vars(nn.Linear(1, 1)).keys()


class Named(nn.Linear):
    """Computes as any linear layer; what it says of itself is its own."""

    def name(self):
        return "mine"


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def test_a_layer_that_computes_in_its_own_way_is_left_and_named(caplog):
    model = nn.Sequential(nn.Linear(16, 16), Named(16, 16), Doubled(16, 16), nn.Linear(16, 16))
    parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))
    model.insert(3, parametrized)
    Accelerator(mixed_precision="fp8").prepare(model)
    assert "2, 3 of Sequential computes in a way of its own, and not in fp8" in caplog.text
    assert isinstance(model[1], Named) and model[1].name() == "mine" and "Float8" in type(model[1]).__name__
    assert type(model[2]) is Doubled and has_ao_layers(model)


def test_a_model_of_one_layer_may_be_converted_by_choice():
    model = nn.Linear(16, 16)
    recipe = AORecipeKwargs(module_filter_func=lambda *_: True)
    Accelerator(mixed_precision="fp8", kwargs_handlers=[recipe]).prepare(model)
    assert has_ao_layers(model) and model(torch.ones(2, 16)).dtype is torch.float32


@pytest.mark.parametrize("sizes", [(32, 64, 4), (32, 10, 12, 4)], ids=["only first and last", "no multiples of 16"])
def test_a_model_of_which_nothing_is_converted_is_named(sizes, caplog):
    model = net(sizes)
    Accelerator(mixed_precision="fp8").prepare(model)
    assert not has_ao_layers(model)
    assert 'mixed_precision="fp8": no layer of Sequential computes in it' in caplog.text


def test_emulation_is_said_once_and_can_be_asked_for(caplog):
    from torchao.float8 import Float8LinearConfig

    eight_bits._say_emulated.cache_clear()
    accelerator = Accelerator(mixed_precision="fp8")
    accelerator.prepare(net(), net((16, 16, 16, 16)))
    assert caplog.text.count("cpu has no products in fp8: they are emulated") == 1
    caplog.clear()
    eight_bits._say_emulated.cache_clear()
    recipe = AORecipeKwargs(config=Float8LinearConfig(emulate=True))
    Accelerator(mixed_precision="fp8", kwargs_handlers=[recipe]).prepare(net())
    assert "emulated" not in caplog.text


def test_an_all_gather_in_fp8_is_said_not_to_be_made(caplog):
    AORecipeKwargs(enable_fsdp_float8_all_gather=True)
    assert "sharded weights travel in bf16, in twice" in caplog.text


def test_the_functions_that_accelerate_has():
    model = net()
    convert_model_to_fp8_ao(model)
    assert [type(model[place]) is nn.Linear for place in (0, 2, 4, 6)] == [True, False, False, True]
    other = net()
    convert_model_to_fp8_ao(other, module_filter_func=filter_first_and_last_linear_layers)
    assert [type(one) for one in other] == [type(one) for one in model]
    assert not has_ao_layers(net())


def missing(monkeypatch):
    monkeypatch.setattr("torchlift.runtime.available.is_available", lambda _: False)


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (
            lambda: AORecipeKwargs() and Accelerator(kwargs_handlers=[AORecipeKwargs()]),
            MixedUseError,
            "needs mixed_prec",
        ),
        (
            lambda: TERecipeKwargs(fp8_format="HYBRID"),
            NotAvailableYet,
            r"Transformer Engine .* AORecipeKwargs\(\), ",
        ),
        (lambda: FP8RecipeKwargs(backend="TE"), NotAvailableYet, "Transformer Engine"),
        (lambda: MSAMPRecipeKwargs(opt_level="O2"), NotAvailableYet, r"MS-AMP .* pip install \"torchlift\[fp8\]\""),
        (lambda: AORecipeKwargs(config=object(), pad_inner_dim=True), MixedUseError, "pad_inner_dim beside it"),
    ],
    ids=["no precision", "te", "older name", "msamp", "config and more"],
)
def test_bad_input(act, error, words):
    with pytest.raises(error, match=words):
        act()


@pytest.mark.parametrize(("kind", "config"), [("fp8", INT8), (INT8, "fp8")])
def test_a_config_of_the_other_kind(kind, config):
    from torchao.float8 import Float8LinearConfig
    from torchao.prototype.quantized_training import Int8MixedPrecisionTrainingConfig

    recipe = AORecipeKwargs(config=Float8LinearConfig() if config == "fp8" else Int8MixedPrecisionTrainingConfig())
    accelerator = Accelerator(mixed_precision=kind, kwargs_handlers=[recipe])
    with pytest.raises(WrongKindError, match=f'for mixed_precision="{kind}"'):
        accelerator.prepare(net())


def test_without_torchao_it_is_said_what_to_install(monkeypatch):
    missing(monkeypatch)
    for act in (lambda: Accelerator(mixed_precision="fp8"), AORecipeKwargs, lambda: has_ao_layers(net())):
        with pytest.raises(MissingPackageError, match=r"'torchao', which is not installed. Run: pip install .*\[fp8\]"):
            act()


@pytest.mark.parametrize(
    ("word", "error", "words"),
    [
        ("te", NotAvailableYet, "Transformer Engine"),
        ("MSAMP", NotAvailableYet, "MS-AMP"),
        ("x", UnknownWordError, "AO"),
    ],
)
def test_the_environment_names_a_package(monkeypatch, word, error, words):
    monkeypatch.setenv("ACCELERATE_FP8_BACKEND", word)
    with pytest.raises(error, match=words):
        Accelerator(mixed_precision="fp8")
    monkeypatch.setenv("ACCELERATE_FP8_BACKEND", "ao")
    monkeypatch.setenv("ACCELERATE_FP8_PAD_INNER_DIM", "0")
    assert Accelerator(mixed_precision="fp8")._settings.recipe.pad_inner_dim is False


@there
@pytest.mark.parametrize("bias", [True, False])
def test_an_int8_layer_takes_part_in_autocast(bias):
    """A product in bf16 with a bias of fp32 was fp32; its gradient did not fit the weights, and failed on a GPU."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16, bias=bias), nn.Linear(16, 16))
    model = Accelerator(mixed_precision=INT8).prepare(model)
    types = []
    model[1].register_forward_hook(lambda _, __, out: types.append(out.dtype))
    model[1].register_full_backward_hook(lambda _, inside, outside: types.extend([inside[0].dtype, outside[0].dtype]))
    model(torch.randn(2, 3, 16)).sum().backward()
    assert types == [torch.bfloat16] * 3
    assert {one.grad.dtype for one in model[1].parameters()} == {torch.float32}
    with torch.autocast("cpu", enabled=False):
        assert model[1](torch.randn(2, 16)).dtype is torch.float32


def test_where_torchao_has_no_int8_for_the_cpu_it_is_said(monkeypatch):
    def missing(*_):
        raise NotImplementedError("Could not run 'torchao::scaled_int8_mm' with arguments from the 'CPU' backend.")

    eight_bits._int8_on_the_cpu.cache_clear()
    monkeypatch.setattr("torchao.prototype.quantized_training.int8_mixed_precision.scaled_int8_mm", missing)
    with pytest.raises(DeviceError, match="where torchao finds a GPU, it multiplies int8 there alone"):
        Accelerator(mixed_precision=INT8).prepare(net())
    eight_bits._int8_on_the_cpu.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["whole", "sharded"])
def test_on_two_processes_it_is_raw_torchao_too(job, tmp_path, kind, weights):
    assert job("eight_bits.py", 2, kind, weights, tmp_path) == [0.0, None]
