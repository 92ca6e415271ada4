"""
Layers that come into being in a forward pass: made by the script where they are first needed, or torch's lazy ones.

Each process draws their weights by itself, and the pass goes on with them, so they become those of rank 0 at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.nn.parameter import is_lazy

from ..collectives.world import World
from .weights import check_same, equalise


@contextmanager
def equal_from_birth(world: World, model: nn.Module) -> Iterator[None]:
    """What a model gets in the body is equal on all processes, which all run it."""

    def share(part: nn.Module) -> None:
        check_same(world, part, "have made different layers in a forward pass")
        equalise(world, [*part.parameters(), *part.buffers()])

    def hear(owner: nn.Module, name: str, born: Any) -> None:
        if born is not None and any(owner is part for part in model.modules()):
            share(born if isinstance(born, nn.Module) else nn.ParameterList([born]))

    def hear_lazy(part: nn.Module, _args: Any) -> None:  # runs after torch's own hook, which gives them a shape
        handles.pop(part).remove()
        share(part)

    lazy = [part for part in model.modules() if any(is_lazy(one) for one in part.parameters(recurse=False))]
    handles: dict[nn.Module, Any] = {part: part.register_forward_pre_hook(hear_lazy) for part in lazy}
    heard = register_module_module_registration_hook(hear), register_module_parameter_registration_hook(hear)
    try:
        yield
    finally:
        for handle in (*handles.values(), *heard):
            handle.remove()
