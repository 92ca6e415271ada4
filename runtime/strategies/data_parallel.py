"""
Data parallelism as an engine beside the model.

The exchange of gradients is armed by the parameters: a hook on each hears that a gradient has been added, whoever has
called backward, and whatever forward has returned, stored or handed on. A pass that `Accelerator.backward` runs is over
when that says so; any other one when autograd does.

There are two ways, equal in what they do. One exchanges when a pass is over. The other one exchanges during the pass
(`during`); it is taken where it is faster, and where everything that it must know beforehand is known: the loss (so it
is one of `Accelerator.backward`), a graph without functions of the script, and that it reaches no other prepared model.
Each process decides by itself: for a model that has the second way, the first one makes the same calls. Small models,
and those with sparse gradients, have no second way (`averages`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from ..collectives.world import World
from ..config.handlers import DistributedDataParallelKwargs
from ..device.precision import Precision
from ..errors import MixedUseError
from ..torch_internals import backward_pass, heard_by_others, weights_are_lent, when_backward_is_over
from .averages import average_collected, average_gradients
from .during import DuringPass, has_sparse_gradients, small, understood
from .first_pass import equal_from_birth
from .graph import Graph
from .hooks import Compression
from .strategy import TrainingEngine, weakly_heard
from .weights import Weights, check_same, equalise


class DataParallelEngine(TrainingEngine):
    """
    Keeps one model equal on all processes.

    Args:
        model: on its device; its weights and buffers become those of rank 0.
        world: the processes.
        precision: of its forward pass.
        options: of the exchange; torch's defaults when None.
        during: gradients may be exchanged during a backward pass.

    Raises:
        MixedUseError: the processes hand in different models, or the options cannot be.
    """

    def __init__(
        self,
        model: nn.Module,
        world: World,
        precision: Precision,
        options: DistributedDataParallelKwargs | None = None,
        during: bool = True,
    ) -> None:
        super().__init__(model, world, precision)
        self.roll: Callable[[DataParallelEngine], None] | None = None
        """Exchanges gradients while inputs may be uneven; None at other times."""
        self._options = options or DistributedDataParallelKwargs()
        self._compression = Compression(self._options, world.device)
        self._at_end = not during
        self._untried = True
        """No forward pass that trains has begun: layers may come into being in the first one."""
        self._told = False
        """The backward pass is one of `Accelerator.backward`, which says when it is over."""
        self._passes: dict[int, list[torch.Tensor]] = {}
        """What other passes that are under way (they may be nested) have come by."""
        self._collected: set[int] = set()
        """The parameters that have been given gradients since the last exchange, in passes that are over."""
        self._ear = weakly_heard(self)
        self._hooks: dict[int, Any] = {}
        self._reached: list[torch.Tensor] = []
        """What the pass that `Accelerator.backward` runs has come by."""
        self._during: DuringPass | None = None
        check_same(world, model)
        equalise(world, [*model.parameters(), *model.buffers()])
        self._weights = Weights(model)
        self._listen()

    def _listen(self) -> None:
        """Hear of every parameter that is trained, and choose how its gradients are exchanged."""
        trained = self._weights.trained
        for parameter in trained:
            if id(parameter) not in self._hooks:
                handle = parameter.register_post_accumulate_grad_hook(self._ear)  # type: ignore[no-untyped-call]
                # a swap of what a parameter holds would take the hook away: torch refuses one where a weakref exists
                self._hooks[id(parameter)] = parameter, handle, weakref.ref(parameter)
        for gone in self._hooks.keys() - set(map(id, self._weights.parameters)):
            self._hooks.pop(gone)[1].remove()
        self._sparse = has_sparse_gradients(self._model)
        self._small = not self._options.needs_reducer and not self._sparse and small(trained, self._world.device)
        whole = not (self._small or self._sparse or self._at_end) and self._weights.complete
        wanted = whole and understood(trained)
        if self._during is not None and not (wanted and self._during.holds(trained)):
            self._during.release()
            self._during = None
        if wanted and self._during is None:
            self._during = DuringPass(
                self._model,
                trained,
                self._compression,
                self._options.bucket_cap,
                self._options.gradient_as_bucket_view,
            )

    def look(self) -> None:
        """
        Take up what has become of the parameters since: new ones, others in their place, another type, thawed ones.

        New ones get the values of rank 0. Gradients that those have already which nobody has heard of are exchanged.

        Raises:
            MixedUseError: the processes have made different changes.
        """
        if not self._weights.changed() or weights_are_lent():
            return
        heard = self._hooks.keys() & set(map(id, self._weights.parameters))
        new = self._weights.take()
        if new:
            check_same(self._world, self._model, "have changed a prepared model in different ways")
            equalise(self._world, [parameter.detach() for parameter in new])
        self._listen()
        unheard = [one for one in self._weights.trained if id(one) not in heard]
        if unheard and self._sync:
            average_gradients(self._world, unheard, self.name)
        else:
            self._collected.update(id(one) for one in unheard if one.grad is not None)

    def call(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The forward pass; begins with the parameters as they are on all processes."""
        if self._model.training:
            self._forwarded = True
            if torch.is_grad_enabled():
                self.look()
                if self._untried:
                    with equal_from_birth(self._world, self._model):
                        output = super().call(call, args, kwargs)
                    self._untried = not self._weights.complete
                    return output
        return super().call(call, args, kwargs)

    # ---------------------------------------------------------------- a backward pass

    def _hear(self, parameter: torch.Tensor) -> None:
        """A gradient has been added. In a pass that the script has begun by itself: exchange when it is over."""
        if self._told:  # short on purpose: it is run at every step, for each parameter
            self._reached.append(parameter)
            if self._during is not None and self._during.missing:
                self._during.give_zeros()
                del self._reached[1:]
            return
        self._collected.add(id(parameter))
        if self._sync:
            number = backward_pass()
            if number not in self._passes:
                self._passes[number] = []
                when_backward_is_over(partial(self._over, number))
            self._passes[number].append(parameter)

    def _over(self, number: int) -> None:
        """A pass that the script has begun by itself is over."""
        self._check_kept(self._passes.pop(number, []))
        for call in self.when_plain:
            call()
        self.look()  # layers that were called by themselves may be new: no forward pass of the model has come by
        self._exchange()

    def _check_kept(self, reached: list[torch.Tensor]) -> None:
        """
        Make sure that the gradients of a pass are still there.

        Raises:
            MixedUseError: something has used them up already, when they were those of this process alone.
        """
        if any(parameter.grad is None and parameter.requires_grad for parameter in reached):  # frozen since: none
            raise MixedUseError(
                f"a gradient of the {type(self._model).__name__} was taken away in the middle of the backward pass, "
                "before the processes could exchange it. A hook that steps an optimizer there trains every process "
                "apart: step after the pass."
            )

    def is_reached(self, graph: Graph) -> bool:
        """A pass will give gradients to parameters of the model."""
        return not self._hooks.keys().isdisjoint(graph.leaves)

    def before_backward(self, graph: Callable[[], Graph] | None, alone: Callable[[], bool]) -> None:
        """
        A pass of `Accelerator.backward` begins.

        Args:
            graph: asks what it will reach; None where that is not all that matters.
            alone: asks whether it reaches one prepared model. The exchanges of several would mix during the pass, in
                another order on a process whose graph is another one.
        """
        self.look()
        self._reached.clear()
        if not self._sync:
            return
        self._told = True
        self._passes.clear()  # of passes that have failed
        possible = self._during is not None and self.roll is None and not self._collected
        if self._during is not None and possible and graph is not None:
            ahead = graph()
            known = ahead.plain and not any(map(heard_by_others, self._weights.trained))
            if known and self.is_reached(ahead) and alone():
                if not self._during.hears(ahead.leaves):
                    self._renew_reducer()
                else:
                    self._during.begin(self.name, ahead.leaves)

    def after_backward(self) -> None:
        """The pass is over: exchange what has not been yet."""
        self._told = False
        if self._during is not None and self._during.armed:
            reached = set(map(id, self._reached))
            try:
                means = self._during.end(reached)
            except BaseException:
                self._renew_reducer()
                raise
            if means:
                self._check_once(reached)
                self._collected.clear()
                self._equal()
                return
            self._renew_reducer()
        self._collected.update(map(id, self._reached))
        if self._sync and self._reached:
            self._check_kept(self._reached)
            self._exchange()

    def _check_once(self, reached: set[int]) -> None:
        """
        Make sure that no gradient has come twice in a pass whose gradients were exchanged during it.

        Args:
            reached: the identities of the parameters that have been given gradients in it.

        Raises:
            MixedUseError: a hook has run another backward pass; what that added was not exchanged.
        """
        if len(reached) < len(self._reached):
            self._renew_reducer()
            raise MixedUseError(
                f"a hook of a tensor ran another backward pass into the {type(self._model).__name__} during one of "
                "accelerator.backward: its gradients were not exchanged. Run it after the other one, or begin the "
                "outer one with loss.backward()."
            )

    def failed_backward(self, goes_on: bool) -> None:
        """
        The pass has ended in an error. No reducer is used again that was in the middle of one.

        Args:
            goes_on: the script may go on.

        Raises:
            MixedUseError: the error was the reducer's, because a hook has run another backward pass.
        """
        self._told = False
        self._collected.update(map(id, self._reached))
        if self._during is not None and self._during.armed:
            self._during.drop_zeros()
            try:
                if goes_on:
                    self._during.complete()
            finally:
                self._renew_reducer()
            self._check_once(set(map(id, self._reached)))

    def _renew_reducer(self) -> None:
        """What is left of a pass in the old one is forgotten. The new one makes the same calls."""
        if self._during is not None:
            self._during.release()
        self._during = None
        self._listen()

    def _exchange(self) -> None:
        """Gradients become those of all processes, now."""
        if self.roll is not None:
            self.roll(self)
            return
        self.average()
        self._equal()

    @property
    def _broadcasts_buffers(self) -> bool:
        return self._options.broadcast_buffers

    @property
    def _buffers(self) -> list[torch.Tensor]:
        return self._weights.buffers

    @property
    def _trains(self) -> bool:
        return any(parameter.requires_grad for parameter in self._weights.parameters)

    def average(self) -> None:
        """Make the gradients of all processes their mean, now."""
        if self._small:
            average_gradients(self._world, self._weights.trained, self.name)
        elif self._during is not None:
            self._during.exchange(self.name, self._collected)
        else:
            average_collected(self._world, self._weights.trained, self._collected, self.name)
        self._collected.clear()

    # ---------------------------------------------------------------- around

    def outlive(self) -> None:
        """Live as long as the hooks: neither the model nor anything else of the script may hold the engine."""
        self._ear.__dict__["engine"] = self

    def release(self) -> None:
        """Take the hooks off the parameters."""
        self._ear.__dict__.clear()
        for _, handle, _ in self._hooks.values():
            handle.remove()
        self._hooks.clear()
        if self._during is not None:
            self._during.release()
            self._during = None
