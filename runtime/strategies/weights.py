"""What a model consists of, and whether that is still so; making it equal on all processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter, is_, methodcaller
from zlib import crc32

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ..collectives.gather import follow, overwrite_tensors
from ..collectives.world import World
from ..errors import MixedUseError
from ..torch_internals import Table, buffers_in, tables

_KIND = attrgetter("dtype", "requires_grad")
_VALUES = methodcaller("values")
_PORTION = 32 << 20
"""So many bytes are sent in one collective, where a tensor is not larger."""


class Weights:
    """
    The parameters of a model, as they were when they were taken stock of.

    Scripts replace them after `prepare`: a new head, adapters, `load_state_dict(assign=True)`; they thaw and freeze
    them, and change their type.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known: set[int] = set()
        self.take()

    def take(self) -> list[nn.Parameter]:
        """Take stock. Returns the parameters that were not there before."""
        every = list(self._model.parameters())
        self.parameters = [parameter for parameter in every if not is_lazy(parameter)]
        self._lazy = [parameter for parameter in every if is_lazy(parameter)]
        self._tables: list[Table] = tables(self._model)
        self._parts = list(self._model.modules())
        self._things = self._listed()
        self._kinds = self._kinds_now()
        new = [parameter for parameter in self.parameters if id(parameter) not in self._known]
        self._known = set(map(id, self.parameters))
        return new

    @property
    def trained(self) -> list[nn.Parameter]:
        """Those that collect gradients."""
        return [parameter for parameter in self.parameters if parameter.requires_grad]

    def changed(self) -> bool:
        """Something is not as it was. Asked at every step: no walk over the model, only over lists."""
        now = self._listed()
        if self._lazy and not all(map(is_lazy, self._lazy)):
            return True
        return len(now) != len(self._things) or not all(map(is_, now, self._things)) or self._kinds != self._kinds_now()

    @property
    def complete(self) -> bool:
        """Each has values: none is a lazy one that no forward pass has come by."""
        return not any(map(is_lazy, self._lazy))

    @property
    def buffers(self) -> list[torch.Tensor]:
        """The buffers of the parts that were there then, each once."""
        return buffers_in(self._parts)

    def _listed(self) -> list[object]:
        return list(chain.from_iterable(map(_VALUES, self._tables)))

    def _kinds_now(self) -> list[tuple[torch.dtype, bool]]:
        return list(map(_KIND, self.parameters))


def check_same(world: World, model: nn.Module, what: str = "hand in different models") -> None:
    """
    Make sure that all processes have the same model at this point.

    Raises:
        MixedUseError: names, shapes or types of its weights differ between the processes.
    """
    described = "".join(f"{name}{'lazy' if is_lazy(t) else tuple(t.shape)}{t.dtype}" for name, t in _named(model))
    world.note("prepare a model")
    marks = [row[0] for row in world.gather_numbers([crc32(described.encode())])]
    if len(set(marks)) > 1:
        raise MixedUseError(
            f"prepare: the processes {what} (here: {type(model).__name__}, rank {world.rank}). Build the same models "
            "in the same order on every process, and prepare them in the same order."
        )


def _named(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def equalise(world: World, tensors: list[torch.Tensor], together: bool = False) -> None:
    """
    Copy rank 0's values into tensors, in place; also into views whose elements share memory.

    Through ``data``, which autograd does not watch: a generator's running statistics are saved in its graph, and that
    graph waits for its own backward pass while the discriminator is trained.

    Args:
        world: the processes.
        tensors: of the same sizes everywhere.
        together: all processes have just taken part in an exchange, so rank 0 need not wait for them again.
    """
    tensors = [tensor for tensor in tensors if not is_lazy(tensor)]  # that have no values yet
    copy = follow if together else overwrite_tensors
    for some in _in_portions(_without_repeats(tensor.data) for tensor in tensors):
        copy(world, some)


def _in_portions(tensors: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """What travels together: a copy of a large model would not fit beside it."""
    portion: list[torch.Tensor] = []
    held = 0
    for tensor in tensors:
        if portion and held + tensor.nbytes > _PORTION:
            yield portion
            portion, held = [], 0
        portion.append(tensor)
        held += tensor.nbytes
    if portion:
        yield portion


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """A view that holds every element of an expanded tensor once."""
    if tensor.is_contiguous():
        return tensor
    for dim, (stride, length) in enumerate(zip(tensor.stride(), tensor.shape, strict=True)):
        if stride == 0 and length > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor
