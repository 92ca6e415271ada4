"""
Linear layers that multiply in eight bits, by torchao.

Weights stay what they are, in their own type; the operands of each product are cast on the way. torchao puts new layers
into the places of the old ones. Here the layers are changed in place: what a script holds of them (a head, a hook)
goes on to work, and `prepare` returns the model that it was given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from ..available import need
from ..config.eight_bits import AORecipeKwargs
from ..device.kinds import kind_of
from ..errors import DeviceError, expect
from ..types import PrecisionType

Filter = Callable[[nn.Module, str], bool]
_MULTIPLE = 16

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Converted:
    """A layer that multiplies in eight bits now, and what it was before."""

    layer: nn.Module
    own: type
    now: type
    added: tuple[str, ...]

    def undo(self) -> None:
        """Make it the layer that it was, unless somebody else has changed it since."""
        if type(self.layer) is self.now:
            self.layer.__class__ = self.own
            for name in self.added:
                self.layer.__dict__.pop(name, None)


def convert(
    model: nn.Module, word: PrecisionType, recipe: AORecipeKwargs, device: torch.device, speaks: bool = True
) -> list[Converted]:
    """
    Let linear layers of a model multiply in eight bits, in place.

    Args:
        model: any; a linear layer, too.
        word: fp8 or int8.
        recipe: which layers, and how.
        device: where they will compute.
        speaks: this process warns of what is not converted, or emulated.
    """
    level = logging.WARNING if speaks else logging.DEBUG
    make = _int8(recipe, device) if word is PrecisionType.INT8 else _float8(recipe, device, level)
    wanted = _filter(model, recipe.module_filter_func)
    layers = [(name, one) for name, one in model.named_modules() if isinstance(one, nn.Linear)]
    chosen = [(name, one) for name, one in layers if wanted(one, name)]
    own_way = [name for name, one in chosen if not _plain(one)]
    if own_way:
        log.log(
            level,
            "%s of %s computes in a way of its own, and not in %s: name it in module_filter_func to leave it out.",
            ", ".join(own_way),
            type(model).__name__,
            word,
        )
    done = [make(one) for _, one in chosen if _plain(one)]
    if not done and any(True for _ in model.parameters()):
        log.log(
            level,
            'mixed_precision="%s": no layer of %s computes in it. It has %d linear layers; the first and the last one '
            "are left out, and so are those whose sizes are no multiples of %d. Others are chosen by "
            "AORecipeKwargs(module_filter_func=...).",
            word,
            type(model).__name__,
            len(layers),
            _MULTIPLE,
        )
    return done


def _plain(layer: nn.Linear) -> bool:
    """It computes as `nn.Linear` does, with a weight that is a parameter, and nobody has converted it."""
    named = layer._parameters.get("weight") is not None
    return named and type(layer).forward is nn.Linear.forward and "forward" not in vars(layer)


def _filter(model: nn.Module, given: Filter | None) -> Filter:
    if given is None or given is filter_first_and_last_linear_layers:
        return partial(filter_linear_layers, layers_to_filter=find_first_last_linear_layers(model))
    return given


def _float8(recipe: AORecipeKwargs, device: torch.device, level: int) -> Callable[[nn.Linear], Converted]:
    from torchao.float8 import Float8LinearConfig
    from torchao.float8.float8_linear import Float8Linear

    config = recipe.config
    if config is None:
        config = Float8LinearConfig(pad_inner_dim=recipe.pad_inner_dim is not False)
    wanted = 'a Float8LinearConfig(...) for mixed_precision="fp8"'
    expect("config of AORecipeKwargs", config, Float8LinearConfig, wanted)
    if not config.emulate and not kind_of(device).multiplies_fp8():
        _say_emulated(device.type, level)
        config = replace(config, emulate=True)
    config = replace(config, enable_fsdp_float8_all_gather=False)  # it would put other parameters into the layers

    def make(layer: nn.Linear) -> Converted:
        own = type(layer)
        made = Float8Linear.from_float(layer, config=config)
        now = Float8Linear if own is nn.Linear else type(f"Float8{own.__name__}", (Float8Linear, own), {})
        added = {name: value for name, value in vars(made).items() if name not in vars(layer)}
        layer.__class__ = now
        layer.__dict__.update(added)
        return Converted(layer, own, now, tuple(added))

    return make


@cache
def _say_emulated(name: str, level: int) -> None:
    log.log(level, "%s has no products in fp8: they are emulated, which takes longer than full precision.", name)


def _int8(recipe: AORecipeKwargs, device: torch.device) -> Callable[[nn.Linear], Converted]:
    from torchao.prototype.quantized_training import Int8MixedPrecisionTrainingConfig

    config = Int8MixedPrecisionTrainingConfig() if recipe.config is None else recipe.config
    wanted = 'an Int8MixedPrecisionTrainingConfig(...) for mixed_precision="int8"'
    expect("config of AORecipeKwargs", config, Int8MixedPrecisionTrainingConfig, wanted)
    config = replace(config, module_swap=True)
    if kind_of(device).is_cpu and not _int8_on_the_cpu():
        raise DeviceError(
            'mixed_precision="int8" on the CPU: where torchao finds a GPU, it multiplies int8 there alone. Train on '
            'the GPU, hide it (CUDA_VISIBLE_DEVICES=""), or use mixed_precision="bf16".'
        )

    def make(layer: nn.Linear) -> Converted:
        own, kind = type(layer), _int8_layer()
        now = kind if own is nn.Linear else type(f"Int8{own.__name__}", (kind, own), {})
        layer.__class__ = now
        layer.__dict__["config"] = config
        return Converted(layer, own, now, ("config",))

    return make


@cache
def _int8_on_the_cpu() -> bool:
    """torchao has a product for it: only where it finds no GPU, and then on the CPU alone."""
    from torchao.prototype.quantized_training.int8_mixed_precision import scaled_int8_mm

    some, scale = torch.ones(2, 2, dtype=torch.int8), torch.ones(2)
    try:
        scaled_int8_mm(some, some, scale, scale)
    except NotImplementedError:
        return False
    return True


@cache
def _int8_layer() -> type[nn.Linear]:
    """
    The layer of torchao, which takes part in autocast as `nn.Linear` does, and as torchao's layer for fp8.

    torchao's own adds a bias of fp32 to a product in bf16. The gradient that comes back is fp32 then, and is multiplied
    with weights in bf16: on a GPU that is refused.
    """
    from torchao.prototype.quantized_training import Int8MixedPrecisionTrainingLinear
    from torchao.prototype.quantized_training.int8_mixed_precision import _Int8MixedPrecisionTrainingLinearFunction

    class Int8Linear(Int8MixedPrecisionTrainingLinear):  # type: ignore[misc]
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            kind = input.device.type
            if torch.is_autocast_enabled(kind):
                input = input.to(torch.get_autocast_dtype(kind))
            out: torch.Tensor = _Int8MixedPrecisionTrainingLinearFunction.apply(input, self.weight, None, self.config)
            return out if self.bias is None else out + self.bias.to(out.dtype)

    return Int8Linear


def find_first_last_linear_layers(model: nn.Module) -> tuple[str | None, str | None]:
    """The names of the first and the last linear layer of a model."""
    names = [name for name, one in model.named_modules() if isinstance(one, nn.Linear)]
    return (names[0], names[-1]) if names else (None, None)


def filter_linear_layers(module: nn.Module, fqn: str, layers_to_filter: Sequence[str | None]) -> bool:
    """
    A layer whose sizes are multiples of 16, and which is not left out.

    Args:
        module: the layer.
        fqn: its name in the model.
        layers_to_filter: the names of those that are left out.
    """
    if isinstance(module, nn.Linear) and (module.in_features % _MULTIPLE or module.out_features % _MULTIPLE):
        return False
    return fqn not in layers_to_filter


def filter_first_and_last_linear_layers(module: nn.Module, fqn: str) -> bool:
    """
    The same for the first and the last layer of `module`: what `AORecipeKwargs` does by itself.

    Args:
        module: a model. Handed to `AORecipeKwargs` or `convert_model_to_fp8_ao`, the function means the model that is
            converted.
        fqn: the name of a layer.
    """
    return filter_linear_layers(module, fqn, find_first_last_linear_layers(module))


def has_ao_layers(model: nn.Module) -> bool:
    """
    Layers of the model compute in fp8, by torchao.

    Raises:
        MissingPackageError: torchao is not installed; an ImportError.
    """
    need("torchao", "has_ao_layers", "fp8")
    from torchao.float8.float8_linear import Float8Linear

    return any(isinstance(one, Float8Linear) for one in model.modules())


def convert_model_to_fp8_ao(
    model: nn.Module, config: Any = None, module_filter_func: Filter | None = filter_first_and_last_linear_layers
) -> None:
    """
    Let linear layers of a model compute in fp8, in place: what `prepare` does with `mixed_precision="fp8"`.

    Args:
        model: on the device where it will compute.
        config: a `Float8LinearConfig` of torchao; its defaults when None.
        module_filter_func: chooses layers by themselves and by their names.

    Raises:
        MissingPackageError: torchao is not installed; an ImportError.
    """
    recipe = AORecipeKwargs(config=config, module_filter_func=module_filter_func)
    first = next(iter(model.parameters()), None)
    convert(model, PrecisionType.FP8, recipe, torch.device("cpu") if first is None else first.device)
