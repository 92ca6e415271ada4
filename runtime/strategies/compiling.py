"""Compiling models without replacing them."""

from __future__ import annotations

from torch import nn

from ..config.handlers import TorchDynamoPlugin
from ..torch_internals import compile_call

_REPEATED = 2
"""Layers of one class that are in one list at least so often are worth compiling once for all."""


def compile_in_place(model: nn.Module, plugin: TorchDynamoPlugin) -> None:
    """Compile a model, or its repeated blocks, as the plugin says. The model stays the same object."""
    blocks = _blocks(model) if plugin.use_regional_compilation else []
    for module in blocks or [model]:
        if type(module).forward.__module__.startswith("torch.nn."):
            compile_call(module, **plugin.arguments())
        else:
            module.compile(**plugin.arguments())


def _blocks(model: nn.Module) -> list[nn.Module]:
    found: list[nn.Module] = []
    for holder in model.modules():
        if isinstance(holder, nn.ModuleList) and len(holder) >= _REPEATED and len({type(one) for one in holder}) == 1:
            found.extend(holder)
    return found
