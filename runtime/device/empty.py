"""Models whose weights take no memory, or lie on a device from the beginning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn


@contextmanager
def init_empty_weights(include_buffers: bool | None = None) -> Iterator[None]:
    """
    Models that are made in the body have weights of the meta device: shapes and types without memory.

    Load real ones with `load_checkpoint_in_model(model, file, device_map={"": "cpu"})`.

    Args:
        include_buffers: buffers, too.
    """
    with init_on_device(torch.device("meta"), include_buffers):
        yield


@contextmanager
def init_on_device(device: torch.device | str, include_buffers: bool | None = None) -> Iterator[None]:
    """
    Models that are made in the body have their weights on a device.

    Args:
        device: where.
        include_buffers: buffers, too.
    """
    device = torch.device(device)
    if include_buffers:
        with device:
            yield
        return
    register = nn.Module.register_parameter

    def placed(self: nn.Module, name: str, parameter: Any) -> None:
        if parameter is not None:
            more = {**vars(parameter), "requires_grad": parameter.requires_grad}
            parameter = type(parameter)(parameter.to(device), **more)
        register(self, name, parameter)

    with mock.patch.object(nn.Module, "register_parameter", placed):
        yield
