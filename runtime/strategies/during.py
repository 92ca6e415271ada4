"""
Exchanging gradients during the backward pass: torch's DistributedDataParallel, for its reducer alone.

The reducer exchanges a part of the gradients while the others are still computed. It must know beforehand which
parameters a pass will reach, and may reach each once. Where that is not certain, the same buckets are exchanged when
the pass is over: by the same calls, because another process may have its gradients exchanged during the pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import get_gradient_edge

from ..process import watched_calls
from ..torch_internals import (
    calls_made,
    empty_buckets,
    finished,
    forget_pass,
    has_reducer,
    like,
    made_alone,
    unhook,
    used_here,
)
from .hooks import Compression

SMALL_BYTES = 1 << 20
"""On the CPU, what DDP does beside (finding out what was not reached takes a collective of its own) costs more than
exchanging the gradients of a model of so many bytes during the backward pass gains."""


def has_sparse_gradients(model: nn.Module) -> bool:
    """Tables of a model have gradients of the rows that were read alone: as dense ones they would grow."""
    return any(getattr(module, "sparse", False) for module in model.modules())


def small(trained: Sequence[nn.Parameter], device: torch.device) -> bool:
    """One exchange at the end is the fastest for this model."""
    if device.type != "cpu":
        return False
    return sum(parameter.numel() * parameter.dtype.itemsize for parameter in trained) <= SMALL_BYTES


def understood(trained: Sequence[nn.Parameter]) -> bool:
    """There is a reducer, and it can carry such gradients: real numbers."""
    return bool(trained) and has_reducer() and all(parameter.is_floating_point() for parameter in trained)


class DuringPass:
    """
    One reducer.

    Args:
        model: whose parameters it is for.
        trained: those that collect gradients now.
        compression: of what travels.
        bucket_cap_mb: how much travels together; None for torch's own way, in which a small first part begins early.
        gradient_as_bucket_view: gradients are views of what travels.
    """

    def __init__(
        self,
        model: nn.Module,
        trained: Sequence[nn.Parameter],
        compression: Compression,
        bucket_cap_mb: int | None,
        gradient_as_bucket_view: bool,
    ) -> None:
        self._members = [(one, one.dtype) for one in trained]
        self._nodes = {id(one): node_of(one) for one in trained}
        """Where gradients are added: the hooks of the reducer are there. Torch makes new ones when a type changes."""
        self._armed: int | None = None
        # Which parameters a pass reaches is found out anew each time. DDP warns, once a process, where it finds that
        # all of them are reached; one more element that never is keeps it quiet, and costs nothing in its bucket.
        holder = nn.Module()
        holder.never_reached = nn.Parameter(trained[0].detach().new_zeros(1))
        holder.model = model
        self._ddp = made_alone(
            holder,
            find_unused_parameters=True,
            bucket_cap_mb=bucket_cap_mb,
            gradient_as_bucket_view=gradient_as_bucket_view,
        )
        self._compression = compression
        self._device = trained[0].device
        compression.on(self._ddp)

    def holds(self, trained: Sequence[nn.Parameter]) -> bool:
        """It was made for these parameters, as they are now."""
        return set(map(id, trained)) <= self._nodes.keys() and all(one.dtype is was for one, was in self._members)

    def hears(self, leaves: Mapping[int, object]) -> bool:
        """Its hooks are at the nodes at which a pass will add gradients."""
        return all(leaves[number] is node for number, node in self._nodes.items() if number in leaves)

    @property
    def armed(self) -> bool:
        """A backward pass that it exchanges gradients of is under way."""
        return self._armed is not None

    def begin(self, name: str, loss: torch.Tensor) -> None:
        """The backward pass of a loss begins now."""
        watched_calls.note("backward", name, (name,))
        self._armed = self._calls()
        forget_pass(self._ddp.reducer)  # its hooks have marked what passes have reached whose exchange came afterwards
        self._ddp.reducer.prepare_for_forward()
        self._ddp.reducer.prepare_for_backward([loss])

    def exchange(self, name: str, collected: Collection[int]) -> None:
        """
        Make the gradients of all processes their mean, now, by the calls that a pass of another process makes.

        Args:
            name: of the model, for messages.
            collected: the identities of the parameters that have collected gradients here since the last exchange.
        """
        watched_calls.note("backward", name, (name,))
        used = torch.tensor(
            [0, *(one.grad is not None and id(one) in collected for one, _ in self._members)],
            dtype=torch.int32,
            device=self._device,
        )
        means: dict[int, torch.Tensor] = {}
        works = []
        for bucket in empty_buckets(self._ddp.reducer):
            parameters, values = bucket.parameters(), bucket.gradients()
            for parameter, value in zip(parameters, values, strict=True):
                if parameter.grad is not None:
                    value.copy_(parameter.grad.detach())
            if self._compression.hook is None:
                works.append(dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True))
            else:
                values = like(_flat(self._compression.run(bucket).wait()), values)
            means.update(zip(map(id, parameters), values, strict=True))
        works.append(dist.all_reduce(used, async_op=True))
        for work in works:
            watched_calls.finish(work)
        for (one, _), anywhere in zip(self._members, used.tolist()[1:], strict=True):
            if anywhere and one.grad is None:
                one.grad = means[id(one)].clone()
            elif anywhere:
                assert one.grad is not None
                one.grad.detach().copy_(means[id(one)])
        watched_calls.done()

    def end(self) -> bool:
        """The pass is over. Returns whether all gradients are means; if not, none is."""
        made, self._armed = self._armed, None
        done = finished(self._ddp.reducer)
        if not done and made is not None:
            self._complete(made)
        watched_calls.done()
        return done

    def complete(self) -> None:
        """
        The pass has failed on this process: take part, with zeros, in what the others wait for.

        Otherwise what is still on its way would meet what is exchanged next.
        """
        made, self._armed = self._armed, None
        if made is not None:
            self._complete(made)
            watched_calls.done()

    def _calls(self) -> int:
        """How many exchanges have begun on this process."""
        return calls_made() if self._compression.hook is None else self._compression.calls

    def _complete(self, made: int) -> None:
        buckets, begun = empty_buckets(self._ddp.reducer), self._calls() - made
        used = used_here(self._ddp.reducer).to(self._device)
        if self._compression.hook is not None:
            for bucket in buckets[begun:]:
                self._compression.run(bucket).wait()
            missing = [used] if begun < len(buckets) else []
        else:
            missing = [*(bucket.buffer() for bucket in buckets), used][begun:]
        for work in [dist.all_reduce(one, async_op=True) for one in missing]:
            watched_calls.finish(work, lambda: False)

    def release(self) -> None:
        """Take the hooks off the parameters."""
        forget_pass(self._ddp.reducer)
        unhook(self._ddp.reducer)


def node_of(parameter: torch.Tensor) -> object:
    """The node of a graph at which gradients of a parameter are added."""
    return get_gradient_edge(parameter).node


def _flat(result: Any) -> torch.Tensor:
    """What a communication hook has returned: the numbers of a bucket, or a list of that."""
    flat: torch.Tensor = result[0] if isinstance(result, (list, tuple)) else result
    return flat
