"""
Exchanging gradients during the backward pass: torch's DistributedDataParallel, for its reducer alone.

The reducer exchanges a part of the gradients while the others are still computed. It must know beforehand which
parameters a pass will reach, and may reach each once. Where that is not certain, the same buckets are exchanged when
the pass is over: by the same calls, because another process may have its gradients exchanged during the pass.

Which parameters were reached is not asked of all processes at every step, as DDP does that expects unreached ones. The
graph of a loss tells beforehand which ones this process will not reach: they give zeros when the first gradient comes.
The last bucket also says whether a process has come by all of them. Only where none has, a call of its
own adds up who was reached by whom.
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
    is_hooked,
    like,
    made_alone,
    unhook,
)
from .hooks import Compression

_WHOLE = 1024
"""Numbers that say whether a process has come by all parameters. One would do. With so many, the parts into which gloo
cuts the bucket still begin where a cache line does: a single one made an exchange of 12 MB cost 5 ms more."""
SMALL_BYTES = 1 << 20
"""On the CPU, what DDP does beside costs more than exchanging the gradients of a model of so many bytes during the
backward pass gains."""


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
        self.missing: list[nn.Parameter] = []
        """Those that this pass does not reach, until they have given zeros."""
        self._without: list[nn.Parameter] = []
        """Those that this pass does not reach, and that had no gradient before it. A gradient from before stays: it is
        the same on all processes."""
        # DDP reverses the parameters, so the first one travels in the last bucket (of its type).
        holder = nn.Module()
        holder.whole = self._whole = nn.Parameter(trained[0].detach().new_zeros(_WHOLE))
        """Its mean says whether a process has reached all parameters."""
        holder.model = model
        self._ddp = made_alone(holder, bucket_cap_mb, gradient_as_bucket_view)
        self._compression = compression
        self._device = trained[0].device
        compression.on(self._ddp)

    def holds(self, trained: Sequence[nn.Parameter]) -> bool:
        """It was made for these parameters, as they are now; so one that is made anew makes the same calls."""
        return set(map(id, trained)) == self._nodes.keys() and all(one.dtype is was for one, was in self._members)

    def hears(self, leaves: Mapping[int, object]) -> bool:
        """Its hooks are at the nodes at which a pass will add gradients."""
        return all(leaves[number] is node for number, node in self._nodes.items() if number in leaves)

    @property
    def armed(self) -> bool:
        """A backward pass that it exchanges gradients of is under way."""
        return self._armed is not None

    def begin(self, name: str, leaves: Collection[int]) -> None:
        """
        A backward pass begins now. Its gradients are exchanged during it, but not where a hook of the script would be
        called with the zeros of a parameter that it does not reach, or where torch has made a new node for that.

        Args:
            name: of the model, for messages.
            leaves: the identities of the parameters that it will reach.
        """
        missing = [one for one, _ in self._members if id(one) not in leaves]
        if any(is_hooked(one) or node_of(one) is not self._nodes[id(one)] or _is_odd(one.grad) for one in missing):
            return
        watched_calls.note("backward", name, (name,))
        self._armed = self._calls()
        forget_pass(self._ddp.reducer)  # its hooks have marked what passes have reached whose exchange came afterwards
        self._ddp.reducer.prepare_for_forward()
        self._ddp.reducer.prepare_for_backward([])
        self.missing, self._without = missing, [one for one in missing if one.grad is None]

    def give_zeros(self) -> None:
        """
        The first gradient of the pass has come: those that it does not reach are zeros.

        Not before: a process that reaches all would exchange what comes first at about this time.
        """
        missing, self.missing = self.missing, []
        for one in missing:
            before = one.grad
            torch.autograd.backward(one, torch.zeros_like(one))
            if before is None:
                one.grad = None  # the reducer has taken it

    def exchange(self, name: str, collected: Collection[int]) -> None:
        """
        Make the gradients of all processes their mean, now, by the calls that a pass of another process makes.

        Args:
            name: of the model, for messages.
            collected: the identities of the parameters that have collected gradients here since the last exchange.
        """
        watched_calls.note("backward", name, (name,))
        here = [one.grad is not None and id(one) in collected for one, _ in self._members]
        self._whole.grad = self._whole.new_full((_WHOLE,), all(here))
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
        for work in works:
            watched_calls.finish(work)
        anywhere = self._anywhere(here, means[id(self._whole)])
        for (one, _), reached in zip(self._members, anywhere, strict=True):
            if reached and one.grad is None:
                one.grad = means[id(one)].clone()
            elif reached:
                assert one.grad is not None
                one.grad.detach().copy_(means[id(one)])
        watched_calls.done()

    def _anywhere(self, here: Sequence[bool], whole: torch.Tensor) -> Sequence[bool]:
        """
        Which parameters some process has reached. Every process comes here after the last bucket.

        Args:
            here: which ones this process has reached.
            whole: what the last bucket says of it; all of its numbers are the same.
        """
        if self._compression.hook is None and (all(here) or whole[0].item()):  # asking for a value waits for the device
            return [True] * len(here)
        used = torch.tensor(here, dtype=torch.int32, device=self._device)
        watched_calls.finish(dist.all_reduce(used, async_op=True))
        return [bool(count) for count in used.tolist()]

    def end(self, reached: Collection[int]) -> bool:
        """
        The pass is over.

        Args:
            reached: the identities of the parameters that have been given gradients in it.

        Returns:
            Whether all gradients are means; if not, none is.
        """
        made, self._armed = self._armed, None
        here = [one.grad is not None and id(one) in reached for one, _ in self._members]
        without = set() if all(here) else {*self._without, *(one for one, _ in self._members if one.grad is None)}
        self._whole.grad = None
        try:  # the end of the last bucket: the reducer waits for all that is on its way
            torch.autograd.backward(self._whole, self._whole.new_full((_WHOLE,), all(here)))
        except RuntimeError:
            watched_calls.explain()
            raise
        done = finished(self._ddp.reducer)
        if done:
            assert self._whole.grad is not None
            anywhere = self._anywhere(here, self._whole.grad)
            if without:
                for (one, _), somewhere in zip(self._members, anywhere, strict=True):
                    if not somewhere and one in without:
                        one.grad = None
        elif made is not None:
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
        buckets = empty_buckets(self._ddp.reducer)[self._calls() - made :]
        works = []
        for bucket in buckets:
            if self._compression.hook is None:
                works.append(dist.all_reduce(bucket.buffer(), async_op=True))
            else:
                self._compression.run(bucket).wait()
        for work in works:
            watched_calls.finish(work, lambda: False)
        sums = (pair for bucket in buckets for pair in zip(bucket.parameters(), bucket.gradients(), strict=True))
        whole = next(value for one, value in sums if one is self._whole)
        self._anywhere([False] * len(self._members), whole)

    def drop_zeros(self) -> None:
        """The pass has failed: what it would not have reached has no gradient, as before it."""
        for one in self._without:
            one.grad = None
        self._without, self.missing = [], []

    def release(self) -> None:
        """Take the hooks off the parameters."""
        forget_pass(self._ddp.reducer)
        unhook(self._ddp.reducer)


def _is_odd(gradient: torch.Tensor | None) -> bool:
    """Nothing can be added to it in place: its elements may share memory."""
    return gradient is not None and not gradient.is_contiguous()


def node_of(parameter: torch.Tensor) -> object:
    """The node of a graph at which gradients of a parameter are added."""
    return get_gradient_edge(parameter).node


def _flat(result: Any) -> torch.Tensor:
    """What a communication hook has returned: the numbers of a bucket, or a list of that."""
    flat: torch.Tensor = result[0] if isinstance(result, (list, tuple)) else result
    return flat
