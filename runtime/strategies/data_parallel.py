"""
Data parallelism as an engine beside the model.

torch's DistributedDataParallel is kept private: nobody calls it, only its reducer is used. It is armed by the forward
pass, as DDP does, so that a plain `loss.backward()` exchanges gradients; and again by `Accelerator.backward` with the
loss itself, so that methods other than `forward`, several forwards, retained graphs and unused heads do, too.

Where the reducer would be slower, or does not see what it must (see `averages`), there is none: gradients are exchanged
when the backward pass is over, on the same two occasions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any
from zlib import crc32

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..collectives.gather import broadcast_tensors
from ..collectives.world import World
from ..config.handlers import DistributedDataParallelKwargs
from ..device.placement import map_tree
from ..device.precision import Precision, to_fp32
from ..errors import MixedUseError
from ..process import watched_calls
from ..torch_internals import backward_pass, buffer_tables, forget_pass, unhook, when_backward_is_over
from .averages import average_gradients, small
from .hooks import Compression

_NUMBERS = count(1)
"""Processes prepare their models in the same order."""


class PrecisionEngine:
    """Runs a model's forward pass in mixed precision; its outputs are in fp32."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision

    @property
    def mixed(self) -> bool:
        """There is something to do also for methods beside `forward`."""
        return self._precision.mixed

    def call(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The forward pass."""
        return self.around(call, args, kwargs)

    def around(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Any method that computes with weights."""
        if not self._precision.mixed:
            return call(*args, **kwargs)
        with self._precision.autocast():
            output = call(*args, **kwargs)
        return to_fp32(output)


class DataParallelEngine(PrecisionEngine):
    """
    Keeps one model equal on all processes.

    Args:
        model: on its device; its weights and buffers become those of rank 0.
        world: the processes.
        precision: of its forward pass.
        options: of the exchange; torch's defaults when None.

    Raises:
        MixedUseError: the processes hand in different models, or the options cannot be.
    """

    def __init__(
        self, model: nn.Module, world: World, precision: Precision, options: DistributedDataParallelKwargs | None = None
    ) -> None:
        super().__init__(precision)
        self.roll: Callable[[DataParallelEngine], None] | None = None
        """Exchanges gradients while inputs may be uneven; None at other times."""
        self._model = model
        self._options = options or DistributedDataParallelKwargs()
        self._compression = Compression(self._options, world.device)
        self._world = world
        self._sync = True
        self._armed = False
        self._looked = False
        self._told = False
        """The backward pass is one of `Accelerator.backward`, which says when it is over."""
        self._pass = -1
        self._name = f"model {next(_NUMBERS)}"
        self._before: list[tuple[torch.Tensor | None, int]] = []
        _same_model(world, model)
        equalise(world, [*model.parameters(), *model.buffers()])
        self._afterwards = not self._options.needs_reducer and small(world, model)
        self._build()

    def _build(self) -> None:
        self._parameters = list(self._model.parameters())
        self._buffers = buffer_tables(self._model)
        self._idle = [parameter for parameter in self._parameters if not parameter.requires_grad]
        trained = self._trained()
        reducing = bool(trained) and not self._afterwards
        self._ddp = _reducing(self._model, trained[0], self._options) if reducing else None
        if self._ddp is not None:
            self._compression.on(self._ddp)

    @property
    def model(self) -> nn.Module:
        """The model that is kept equal."""
        return self._model

    def _trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self._parameters if parameter.requires_grad]

    def _rebuild_if_unfrozen(self) -> None:
        """Parameters that were frozen when the reducer was built, and are not any more, need another one."""
        if any(parameter.requires_grad for parameter in self._idle):
            self.release()
            self._build()

    @property
    def _at_the_end(self) -> bool:
        """Gradients are exchanged when a backward pass is over, and not by the reducer."""
        return self._afterwards or self.roll is not None

    def call(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The forward pass; makes sure that gradients of its outputs are exchanged."""
        output = super().call(call, args, kwargs)
        if self._sync and torch.is_grad_enabled():
            found = _differentiable(output)
            if self._at_the_end:
                for one in found:
                    if not one.is_leaf:
                        one.register_hook(self._hear)  # type: ignore[no-untyped-call]
            elif found:
                self._rebuild_if_unfrozen()
                self._arm(found)
        return output

    def _hear(self, _gradient: torch.Tensor) -> None:
        """A backward pass has come by that the script has begun by itself: exchange when it is over."""
        current = backward_pass()
        if self._sync and self._at_the_end and not self._told and current != self._pass:
            self._pass = current
            self._remember()
            when_backward_is_over(self._exchange)

    def _remember(self) -> None:
        """Note what gradients there are; `_exchange` finds out at next to no cost whether some have been added to."""
        gradients = [parameter.grad for parameter in self._parameters]
        self._before = [(one, 0 if one is None else one._version) for one in gradients]

    def _reached(self) -> bool:
        pairs = zip(self._parameters, self._before, strict=True)
        return any(p.grad is not one or (one is not None and one._version != was) for p, (one, was) in pairs)

    def _exchange(self) -> None:
        """The backward pass is over."""
        reached, self._before = self._reached(), []
        if reached and self.roll is not None:
            self.roll(self)
        elif reached:
            self.average()

    def average(self) -> None:
        """Make the gradients of all processes their mean, now."""
        average_gradients(self._world, self._trained(), self._name)

    def before_backward(self, loss: torch.Tensor) -> None:
        """Make ready for the gradients of `loss`, or make sure that nothing is exchanged inside a window."""
        if not self._sync:
            if self._armed:
                self.disarm()
            return
        if not self._at_the_end:
            self._world.note("backward")
            if not self._looked:
                self._looked = True
                if reenters(loss):
                    self._exchange_afterwards()
        self._told = True
        self._remember()
        if not self._at_the_end:
            self._rebuild_if_unfrozen()
            self._arm([loss])

    def after_backward(self) -> None:
        """Exchange what has not been yet; buffers that the forward pass has changed become those of rank 0."""
        if not self._sync:
            return
        self._told = False
        if self._at_the_end:
            self._exchange()
        else:
            if self._reached():  # what went through the reducer must be of one model
                watched_calls.note("backward", self._name, (self._name,))
            watched_calls.done()  # still armed, where the loss has reached none of its weights
        if self._model.training and self._options.broadcast_buffers and self.roll is None and any(self._buffers):
            equalise(self._world, list(self._model.buffers()))

    def _exchange_afterwards(self) -> None:
        """
        Exchange gradients when the backward pass is over, instead of during it.

        A backward pass that starts others inside of itself (reentrant checkpointing) hides from the reducer which
        parameters it will reach.
        """
        self.disarm()
        self.release()
        self._afterwards = True
        self._ddp = None

    def _arm(self, outputs: list[torch.Tensor]) -> None:
        if self._ddp is not None:
            self._armed = True
            self._ddp.reducer.prepare_for_forward()
            self._ddp.reducer.prepare_for_backward(outputs)

    def disarm(self) -> None:
        """The next gradients are not exchanged; also after a backward pass that has failed half way."""
        if self._ddp is not None:
            forget_pass(self._ddp.reducer)
        self._armed = self._told = False

    def no_sync(self) -> AbstractContextManager[None]:
        """Gradients add up on each process; the next backward pass outside of the body exchanges their sum."""
        return self.syncing(False)

    @contextmanager
    def syncing(self, sync: bool) -> Iterator[None]:
        """Whether backward passes in the body exchange gradients."""
        before, self._sync = self._sync, sync
        try:
            yield
        finally:
            self._sync = before

    def release(self) -> None:
        """Take the hooks off the parameters."""
        if self._ddp is not None:
            unhook(self._ddp.reducer)


def _reducing(model: nn.Module, like: nn.Parameter, options: DistributedDataParallelKwargs) -> DistributedDataParallel:
    """
    A DDP that is there for its reducer.

    Which parameters a backward pass reaches is found out anew each time. DDP warns, once a process, where it finds that
    all of them are reached; one more element that never is keeps it quiet, and costs nothing in its bucket.
    """
    holder = nn.Module()
    holder.never_reached = nn.Parameter(like.detach().new_zeros(1))
    holder.model = model
    return DistributedDataParallel(
        holder,
        init_sync=False,
        find_unused_parameters=True,
        bucket_cap_mb=options.bucket_cap_mb,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
    )


def _same_model(world: World, model: nn.Module) -> None:
    """
    Make sure that all processes prepare the same model at this point.

    Raises:
        MixedUseError: names, shapes or types of its weights differ between the processes.
    """
    described = "".join(f"{name}{tuple(t.shape)}{t.dtype}" for name, t in _named(model))
    world.note("prepare a model")
    marks = [row[0] for row in world.gather_numbers([crc32(described.encode())])]
    if len(set(marks)) > 1:
        raise MixedUseError(
            f"prepare: the processes hand in different models (here: {type(model).__name__}, rank {world.rank}). Build "
            "the same models in the same order on every process, and prepare them in the same order."
        )


def _named(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def reenters(loss: torch.Tensor) -> bool:
    """The graph behind `loss` starts backward passes of its own."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if "Checkpoint" in node.name():
            return True
        waiting.extend(parent for parent, _ in node.next_functions)
    return False


def equalise(world: World, tensors: list[torch.Tensor]) -> None:
    """
    Copy rank 0's values into tensors, in place; also into views whose elements share memory.

    Through ``data``, which autograd does not watch: a generator's running statistics are saved in its graph, and that
    graph waits for its own backward pass while the discriminator is trained.
    """
    if not tensors:
        return
    with torch.no_grad():
        views = [_without_repeats(tensor.data) for tensor in tensors]
        new = broadcast_tensors(world, views)
        if world.rank:
            for view, value in zip(views, new, strict=True):
                view.copy_(value)


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """A view that holds every element of an expanded tensor once."""
    for dim, (stride, length) in enumerate(zip(tensor.stride(), tensor.shape, strict=True)):
        if stride == 0 and length > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _differentiable(output: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def look(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            if leaf.requires_grad:
                found.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, (type, nn.Module)):
            found.extend(v for v in vars(leaf).values() if isinstance(v, torch.Tensor) and v.requires_grad)
        return leaf

    map_tree(look, output)
    return found
