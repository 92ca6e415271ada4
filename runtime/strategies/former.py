"""
Parameters of before: what scripts and optimizers still hold of a model whose weights have been sharded since.

Sharding puts new objects into the model. The old ones are emptied, and forward whatever is done with them to the new
one: a list of parameters, a group of an optimizer or an average that the script has kept go on working. What cannot be
is identity: `old is new` is False.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..device.placement import map_tree
from ..torch_sharding import fill_shard

_KEY = "_torchlift_part"


class Former(nn.Parameter):
    """A parameter of before; it has no data of its own."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Any function of torch, with the parameters of now in the place of those of before."""
        args = map_tree(current, tuple(args))
        if function is _SET_DATA:
            return fill_shard(*args)
        return function(*args, **map_tree(current, dict(kwargs or {})))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return repr(current(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return current(self).__reduce_ex__(protocol)


_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]


def current(value: Any) -> Any:
    """The parameter of now; anything else is itself."""
    return value.__dict__[_KEY].sharded_param if type(value) is Former else value


def replace(parameter: nn.Parameter, part: Any) -> None:
    """
    Make a parameter one of before.

    Args:
        parameter: the script's; its memory is given back.
        part: of the sharded model; its `sharded_param` is the parameter of now.
    """
    if type(parameter) is nn.Parameter:
        parameter.grad = None
        parameter.data = parameter.data.new_empty(0)
        parameter.__dict__[_KEY] = part
        parameter.__class__ = Former
