"""Backward passes that make a graph of themselves (`create_graph=True`), through sharded models: gradient penalties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..collectives.world import World
from ..errors import MixedUseError
from ..torch_internals import backward_pass, changes_of, when_backward_is_over
from ..torch_sharding import (
    end_with_exchange,
    exchange_rest,
    give_up_gathered,
    guard_gradients,
    keep_gathered,
    whole_parameter,
)
from .former import current


class GraphsOfBackward:
    """
    Keeps in memory what a graph of a backward pass needs of the weights of one sharded model.

    The pass that follows computes with the weights that this one has gathered, wherever it begins: before torch hears
    of it, too, and after a unit has exchanged its gradients. They stay in memory until weights have been changed.

    Args:
        name: of the class of the model, for messages.
        roots: the outermost modules that `fully_shard` has been called for.
        parts: what torch keeps of each weight.
        syncs: asks whether backward passes exchange gradients.
        in_forward: asks whether a forward pass of the model is under way.
    """

    def __init__(
        self, name: str, roots: list[Any], parts: list[Any], syncs: Callable[[], bool], in_forward: Callable[[], bool]
    ) -> None:
        self._name = name
        self._roots = roots
        self._parts = parts
        self._syncs = syncs
        self._in_forward = in_forward
        self._under_way = False
        """A pass is making a graph of itself."""
        self._changes: int | None = None
        """How often weights had been changed when such a pass began. None: nothing is kept."""
        guard_gradients(self)

    def comes_by(self) -> None:
        """A backward pass has come to a unit."""
        if self._under_way or not torch.is_grad_enabled() or backward_pass() < 0:  # it makes no graph of itself
            return
        if self._changes is None:
            self._changes = self._changes_now()
            keep_gathered(self._parts)
        self._under_way = True
        self._exchange(False)  # no weight is given a gradient
        for root in self._roots:
            end_with_exchange(root)
        when_backward_is_over(self._is_made)

    def _is_made(self) -> None:
        self._under_way = False
        self._exchange(self._syncs())
        if self._in_forward():  # the model takes gradients in its forward pass, and goes on with its weights
            for root in self._roots:
                root.unshard()

    def _exchange(self, sync: bool) -> None:
        for root in self._roots:
            root.set_requires_gradient_sync(sync)

    def _changes_now(self) -> int:
        return changes_of([part.sharded_param for part in self._parts])

    def forward_begins(self) -> None:
        """After a step, no graph of before can be used."""
        if self._changes is not None and self._changes_now() != self._changes:
            self.give_up()

    def hears_of_weight(self) -> None:
        """
        A backward pass has given a gradient to a weight.

        Raises:
            MixedUseError: it was to be part of a graph.
        """
        if self._under_way:
            raise MixedUseError(
                f"a backward pass with create_graph=True has come to the weights of the {self._name}, which are "
                "sharded: their gradients are no part of a graph. Take gradients of inputs alone, as in "
                "torch.autograd.grad(output, inputs, create_graph=True), or train without sharding."
            )
        if self._changes is not None:
            for root in self._roots:
                end_with_exchange(root)

    def exchange_late(self, world: World, name: str) -> None:
        """Exchange what has come to weights after their unit had exchanged its gradients. All processes call it."""
        if self._changes is None:
            return
        late = any(whole_parameter(part).grad is not None for part in self._parts)
        world.note(f"backward of {name}")
        if any(here for (here,) in world.gather_numbers([int(late)])):
            for root in self._roots:
                exchange_rest(root)

    # ---------------------------------------------------------------- gradients that the script asks for

    def whole(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What passes compute with in the place of a weight; None for what is no weight of the model."""
        one = current(tensor)
        return next((whole_parameter(part) for part in self._parts if part.sharded_param is one), None)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """In the body, a pass gives gradients to who asks for them, and none to weights: nothing is exchanged."""
        self._exchange(False)
        try:
            yield
        finally:
            self._exchange(self._syncs())

    def give_up(self) -> None:
        """Weights are freed again when they are not needed."""
        if self._under_way:
            self._under_way = False
            self._exchange(self._syncs())
        if self._changes is not None:
            self._changes = None
            give_up_gathered(self._parts)
