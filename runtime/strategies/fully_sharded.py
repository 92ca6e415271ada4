"""
Sharded weights as an engine beside the model: torch's own `fully_shard` moves them, this makes it keep our promises.

Between passes a parameter of the model is a sharded tensor (`DTensor`): every process has a part of it, of its gradient
and of what the optimizer remembers. A pass gathers the weights of one unit after another, and adds up gradients during
the backward pass, whoever has called that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from operator import is_, methodcaller
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from ..collectives.world import World
from ..device.placement import map_tree, tensors_in
from ..device.precision import Precision
from ..errors import MixedUseError
from ..process import watched_calls
from ..torch_internals import backward_pass, buffers_in, tables, when_backward_is_over
from ..torch_sharding import (
    around_forward,
    forget_failed_pass,
    hear_backward,
    is_sharded,
    is_view,
    move_hooks,
    sharded_parts,
    stopped_in_a_pass,
    whole_parameter,
)
from .averages import anywhere_of, as_bits
from .data_parallel import DataParallelEngine
from .extend import Extended
from .former import current
from .full_state import from_rank_0, full_state
from .graph import Graph
from .graphs_of_backward import GraphsOfBackward
from .sharded_optimizers import check_optimizer, shard_state
from .strategy import TrainingEngine, weakly_heard

_VALUES = methodcaller("values")


class ShardedFront(Extended):
    """What a sharded model does differently, beside its calls."""

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As before; on other ranks than 0, `state_dict` may be empty. All processes call it."""
        engine: FullyShardedEngine = self._torchlift_engine  # type: ignore[assignment]
        state_dict = from_rank_0(engine.world, engine.model, state_dict)
        return super().load_state_dict(state_dict, *args, **kwargs)  # type: ignore[misc]

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As before; also of what a window has collected on this process."""
        engine: FullyShardedEngine = self._torchlift_engine  # type: ignore[assignment]
        engine.forget()
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]


def saving_whole_weights(cls: Any) -> Callable[..., Any]:
    """The method `save_pretrained` of a class, for a sharded model: process 0 writes, and all processes call it."""

    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("state_dict") is None:
            engine: FullyShardedEngine = self._torchlift_engine
            kwargs["state_dict"] = full_state(engine.world, self, "save_pretrained")
            if engine.world.rank:
                return None
        return cls.save_pretrained(self, *args, **kwargs)

    return save_pretrained


class FullyShardedEngine(TrainingEngine):
    """
    Trains one sharded model on all processes.

    Args:
        model: sharded already; weights and buffers are those of rank 0.
        roots: the outermost modules that `fully_shard` has been called for: the model, or what is in a list of models.
        world: the processes.
        precision: of its forward pass.
        rest: exchanges the gradients of the parameters that every process keeps whole; None where there are none.
        broadcast_buffers: buffers follow rank 0 after every exchange.
    """

    def __init__(
        self,
        model: nn.Module,
        roots: list[Any],
        world: World,
        precision: Precision,
        rest: DataParallelEngine | None,
        broadcast_buffers: bool,
    ) -> None:
        super().__init__(model, world, precision)
        self._roots = roots
        self._rest = rest
        self._broadcasting = broadcast_buffers
        self._parts = sharded_parts(model)
        self._types = [part.sharded_param.dtype for part in self._parts]
        self._whole = {id(whole_parameter(part)): part for part in self._parts}
        self._modules = list(model.modules())
        self._tables = tables(model)
        self._listed = self._list()
        self._hooked: dict[int, Any] = {}
        self._ear = weakly_heard(self)
        self._told = False
        self._heard: set[int] = set()
        """The whole parameters that have been given gradients since the last exchange."""
        self._without: list[Any] | None = None
        """What had no gradient before the pass that is under way; None before it comes by the model."""
        self._passes: set[int] = set()
        """Passes under way that the script has begun by itself."""
        self._depth = 0
        """A forward pass, or another method that computes with weights, is under way."""
        self._failed = False
        """A pass has ended in an error: nobody knows how far the other processes have come in it."""
        self._graphs = GraphsOfBackward(
            type(model).__name__, roots, self._parts, lambda: self._sync, lambda: bool(self._depth)
        )
        shards: Any = FSDPModule
        self._notes = [
            unit.register_forward_pre_hook(partial(self._note_unit, path), prepend=True)
            for path, unit in model.named_modules()
            if isinstance(unit, shards) and unit not in roots
        ]
        self._notes += [
            unit.register_forward_hook(_own_output, prepend=True) for unit in self._modules if isinstance(unit, shards)
        ]
        for root in roots:
            root.set_reduce_scatter_unused_params(True)
            hear_backward(root, self._come_by, watched_calls.explain_if_torn)
        self.look()

    @property
    def world(self) -> World:
        """The processes."""
        return self._world

    # ---------------------------------------------------------------- forward

    @property
    def mixed(self) -> bool:
        """Methods beside `forward` need weights, too."""
        return True

    def call(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The forward pass: weights are gathered on the way."""
        output = self._under_way(lambda: super(FullyShardedEngine, self).around(call, args, kwargs))
        if self._depth:  # another method of the model has called it, and goes on with its weights
            self._roots[0].unshard()
        return output

    def around(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Another method that computes with weights: as a forward pass, unless it is called in one."""
        if self._depth or self._roots != [self._model]:
            return super().around(call, args, kwargs)
        model, *rest = args
        run = partial(super().around, partial(call, model))
        return self._under_way(
            lambda: around_forward(model, lambda *a, **k: _without_views(run(a, k)), tuple(rest), kwargs)
        )

    def _under_way(self, run: Callable[[], Any]) -> Any:
        if self._depth or backward_pass() >= 0:  # a part of a pass; activations that are computed again
            return run()
        self._go_on()
        self._graphs.forward_begins()
        if torch.is_grad_enabled():
            self.look()
        self._forwarded = self._forwarded or self._model.training
        watched_calls.note("forward", self.name, (self.name,))
        watched_calls.done()
        self._depth += 1
        try:
            return run()
        except BaseException as error:
            self._fail()
            watched_calls.explain_if_torn(error)
            raise
        finally:
            self._depth -= 1

    def _note_unit(self, path: str, _module: nn.Module, _args: Any) -> None:
        """Weights of a unit are gathered: on processes that gather those of another one, they would be mixed up."""
        if backward_pass() < 0:
            watched_calls.note("forward", path, (self.name, path))
            watched_calls.done()

    def _fail(self) -> None:
        self._failed = True
        self._without = None
        self._graphs.give_up()
        for root in self._roots:
            forget_failed_pass(root)

    def _go_on(self) -> None:
        """After an error in a pass, go on only together: the others may still wait for this process in it."""
        if any(map(stopped_in_a_pass, self._roots)):  # a backward pass of the script's own has failed
            self._passes.clear()
            self._fail()
        if self._failed:
            self._failed = False
            self._world.note("go on after an error")
            self._world.gather_numbers([])

    # ---------------------------------------------------------------- parameters

    def _list(self) -> list[object]:
        return list(chain.from_iterable(map(_VALUES, self._tables)))

    def look(self) -> None:
        """
        Take up thawed parameters, and hooks that the script has set on parameters.

        Raises:
            MixedUseError: the script has replaced weights, or changed their type.
        """
        if self._rest is not None:
            self._rest.look()
        now = self._list()
        if len(now) != len(self._listed) or not all(map(is_, now, self._listed)):
            self._check_replaced()
            self._listed = now
        for part, kind in zip(self._parts, self._types, strict=True):
            sharded, whole = part.sharded_param, whole_parameter(part)
            if sharded.dtype is not kind:
                raise self._refusal(f"the type of its weights has become {sharded.dtype}")
            move_hooks(sharded, whole)
            if sharded.requires_grad and id(part) not in self._hooked:
                whole.requires_grad_(True)
                handle = whole.register_post_accumulate_grad_hook(self._ear)  # type: ignore[no-untyped-call]
                self._hooked[id(part)] = handle

    def _check_replaced(self) -> None:
        known = {id(part.sharded_param) for part in self._parts} | self._whole.keys()
        kept = set() if self._rest is None else set(map(id, self._rest.model.parameters()))
        new = [name for name, one in self._model.named_parameters() if id(one) not in known | kept]
        if new:
            raise self._refusal(f"{', '.join(new[:3])} {'is' if len(new) == 1 else 'are'} new in it")
        self._tables = tables(self._model)
        self._modules = list(self._model.modules())

    def _refusal(self, what: str) -> MixedUseError:
        return MixedUseError(
            f"the {type(self._model).__name__} is sharded, and {what} since it was prepared. Do that before "
            "accelerator.prepare; sharded weights cannot follow it."
        )

    def wire(self, optimizer: torch.optim.Optimizer) -> None:
        """
        Put sharded parameters in the place of those of before; what is remembered of them becomes sharded, too.

        Raises:
            NotAvailableYet: the optimizer cannot work with sharded weights.
        """
        for group in optimizer.param_groups:
            group["params"][:] = [self._now(one) for one in group["params"]]
        ours = [one for group in optimizer.param_groups for one in group["params"] if is_sharded(one)]
        if not ours:
            return
        for former in list(optimizer.state):
            if self._now(former) is not former:
                optimizer.state[self._now(former)] = optimizer.state.pop(former)
        check_optimizer(optimizer)
        shard_state(optimizer)
        for group in optimizer.param_groups:
            kinds = {is_sharded(one) for one in group["params"] if one.device.type != "cpu"}
            if len(kinds) == 2 and group.get("foreach", False) is None and not group.get("fused"):
                group["foreach"] = False  # tensors of both kinds cannot be stepped in one call
        if "_torchlift_sharded" not in optimizer.__dict__:
            optimizer.__dict__["_torchlift_sharded"] = optimizer.register_load_state_dict_post_hook(shard_state)

    def _now(self, parameter: Any) -> Any:
        part = self._whole.get(id(parameter))  # taken from the model in the middle of a pass
        return current(parameter) if part is None else part.sharded_param

    # ---------------------------------------------------------------- a backward pass

    def is_reached(self, graph: Graph) -> bool:
        """A pass will give gradients to parameters of the model."""
        mine = not self._whole.keys().isdisjoint(graph.leaves)
        return mine or (self._rest is not None and self._rest.is_reached(graph))

    def _come_by(self) -> None:
        """A backward pass has come to a unit. Of one that is computed several times, zeros may be exchanged first."""
        self._begin_pass()
        self._graphs.comes_by()

    def _begin_pass(self) -> None:
        if self._without is None and backward_pass() >= 0:
            self._without = [part for part in self._parts if part.sharded_param.grad is None]
            when_backward_is_over(self._end_without_gradients)

    def _end_without_gradients(self) -> None:
        if not self._heard:
            self._without = None

    def _hear(self, parameter: torch.Tensor) -> None:
        """A gradient of this process has been added; torch adds up those of all during the pass."""
        self._graphs.hears_of_weight()
        self._begin_pass()
        self._heard.add(id(parameter))
        if not self._told and self._sync:
            number = backward_pass()
            if number not in self._passes:
                self._passes.add(number)
                when_backward_is_over(partial(self._over, number))

    def _over(self, number: int) -> None:
        """A pass that the script has begun by itself is over."""
        self._passes.discard(number)
        for call in self.when_plain:
            call()
        self._over_everywhere()

    def _over_everywhere(self) -> None:
        """Gradients have been exchanged. One that no process has come by in the pass is none, as on one process."""
        self._graphs.exchange_late(self._world, self.name)
        trained = [part for part in self._parts if part.sharded_param.requires_grad]
        here = [id(whole_parameter(part)) in self._heard for part in trained]
        self._world.note(f"backward of {self.name}")
        rows = self._world.gather_numbers(as_bits(here))
        anywhere = anywhere_of(rows, len(here))
        without = set(map(id, self._without or ()))
        for part, reached in zip(trained, anywhere, strict=True):
            if not reached and id(part) in without:
                part.sharded_param.grad = None
        self._heard.clear()
        self._without = None
        self._equal()

    def before_backward(self, graph: Callable[[], Graph] | None, alone: Callable[[], bool]) -> None:
        """A pass of `Accelerator.backward` begins."""
        self.look()
        self._without = None
        self._told = True
        if self._rest is not None:
            self._rest.before_backward(graph, alone)

    def after_backward(self) -> None:
        """The pass is over: gradients are the means over all processes."""
        self._told = False
        if self._rest is not None:
            self._rest.after_backward()
        if self._sync and self._without is not None:
            self._over_everywhere()
        self._without = None

    def failed_backward(self, goes_on: bool) -> None:
        """The pass has ended in an error: the next one begins only when all processes are there."""
        self._told = False
        if self._rest is not None:
            self._rest.failed_backward(False)
        self._fail()

    @contextmanager
    def syncing(self, sync: bool) -> Iterator[None]:
        """Whether backward passes in the body exchange gradients."""
        before = self._sync
        with ExitStack() as stack:
            if self._rest is not None:
                stack.enter_context(self._rest.syncing(sync))
            stack.callback(self._set_sync, before)
            self._set_sync(sync)
            yield

    def _set_sync(self, sync: bool) -> None:
        if sync is not self._sync:
            for root in self._roots:
                root.set_requires_gradient_sync(sync)
        self._sync = sync

    def collected(self, parameters: Iterable[torch.Tensor] | None = None) -> Iterable[torch.Tensor]:
        """Gradients of this process alone, of windows that are not complete."""
        chosen = self._chosen(parameters)
        both = ((part.unsharded_accumulated_grad, whole_parameter(part).grad) for part in chosen)
        return [one for pair in both for one in pair if one is not None]

    def forget(self, parameters: Iterable[torch.Tensor] | None = None) -> None:
        """Drop those; of some parameters, or of all."""
        for part in self._chosen(parameters):
            part.unsharded_accumulated_grad = whole_parameter(part).grad = None
            self._heard.discard(id(whole_parameter(part)))

    def _chosen(self, parameters: Iterable[torch.Tensor] | None) -> list[Any]:
        if parameters is None:
            return self._parts
        chosen = {id(current(one)) for one in parameters}
        return [part for part in self._parts if id(part.sharded_param) in chosen]

    @property
    def _broadcasts_buffers(self) -> bool:
        return self._broadcasting

    @property
    def _buffers(self) -> list[torch.Tensor]:
        return buffers_in(self._modules)

    @property
    def _trains(self) -> bool:
        return any(parameter.requires_grad for parameter in self._model.parameters())

    # ---------------------------------------------------------------- around

    def full_state(self) -> dict[str, Any]:
        """The state dict of the plain model, on rank 0."""
        return full_state(self._world, self._model, "get_state_dict")

    def release(self) -> None:
        """Take the hooks off the parameters. The weights stay sharded."""
        for handle in (*self._hooked.values(), *self._notes):
            handle.remove()
        self._hooked.clear()
        if self._rest is not None:
            self._rest.release()


def _own_output(_module: nn.Module, _args: Any, output: Any) -> Any:
    """What a unit returns is its own tensor: scripts change it in place."""
    return _without_views(output)


def _without_views(output: Any) -> Any:
    if not any(map(is_view, tensors_in(output))):
        return output
    return map_tree(lambda leaf: leaf.clone() if is_view(leaf) else leaf, output)
