"""Gradients: backward passes, windows of accumulation, clipping. The part of the facade around a training step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..collectives.world import World
from ..config.handlers import AutocastKwargs
from ..config.settings import Settings
from ..data.loss_batch import CURRENT, shares_of_loss
from ..device.precision import Precision
from ..errors import UnknownWordError, expect, refuse_newer
from ..gradients.clipping import as_list, clip_norm, clip_values
from ..gradients.window import Windows
from ..process import watched_calls
from ..strategies.extend import mark
from ..strategies.graph import Graph
from ..types import LossReduction
from .prepare import Preparation
from .process_api import Placed

_OF_TORCH = {"gradient", "retain_graph", "create_graph", "inputs"}
"""What `Tensor.backward` takes."""


class Gradients(Placed):
    """Methods of `Accelerator` that a training step calls."""

    scaler: torch.amp.GradScaler | None
    _world: World
    _settings: Settings
    _precision: Precision
    _windows: Windows
    _prepared: Preparation

    def backward(
        self,
        loss: torch.Tensor,
        reduction: str = "mean",
        num_items: int | torch.Tensor | None = None,
        batch: Any = CURRENT,
        **kwargs: Any,
    ) -> None:
        """
        Compute gradients, and exchange them at the end of a window.

        Args:
            loss: of the rows of the batch in hand, a scalar.
            reduction: how the script computed it from the rows. "mean": gradients are those of the mean over the rows
                of all processes. "sum": those of the sum over them.
            num_items: the loss is the sum over so many items (tokens, for one) of this process; gradients are those of
                the mean over all items of the window, on all processes.
            batch: the batch that the loss was computed from, or a tensor of it as the loader yielded it. It matters
                with `split_batches` alone, and is the one in hand where nothing is said; None for a loss of other data.
            kwargs: for `loss.backward` (`retain_graph=True`).

        Raises:
            UnclearBatchError: batches are split, shards can be uneven, and nothing tells which batch the loss is of.
        """
        expect("backward", loss, torch.Tensor, "the loss, a tensor that was computed from the weights")
        if kwargs and type(loss).backward is torch.Tensor.backward:
            refuse_newer("backward", kwargs.keys() - _OF_TORCH, {"num_items", "reduction", "batch", *_OF_TORCH})
        sums = num_items is not None or reduction == LossReduction.SUM
        shares = None if self._world.alone else shares_of_loss(self._progress, loss, batch, sums)
        weight = 1.0 if shares is None else shares.weights[self.process_index]
        self._progress.noted_backward()
        factor = self._loss_factor(reduction, weight) if num_items is None else self._items_factor(num_items, weight)
        self._prepared.note_loss(factor * (self._windows.divisor if num_items is None else 1), batch is not None)
        loss = loss if factor == 1.0 else loss * factor
        if self.scaler is not None:
            self._prepared.update_scale()
            loss = self.scaler.scale(loss)
        engines = self._prepared.engines
        whole = kwargs.get("inputs") is None and not kwargs.get("create_graph")
        graph = cache(lambda: Graph(loss)) if whole else None
        alone = cache(lambda: sum(engine.is_reached(graph()) for engine in engines.values()) == 1 if graph else False)
        try:
            for engine in engines.values():
                engine.before_backward(graph, alone)
            loss.backward(**kwargs)  # type: ignore[no-untyped-call]
        except BaseException as error:
            if engines and isinstance(error, RuntimeError):
                watched_calls.explain()
            with ExitStack() as stack:
                for engine in reversed(engines.values()):
                    stack.callback(engine.failed_backward, isinstance(error, Exception))
            raise
        for engine in engines.values():
            engine.after_backward()
        self._windows.noted_backward()

    def _loss_factor(self, reduction: str, weight: float) -> float:
        if reduction != LossReduction.MEAN and reduction not in LossReduction.list():
            raise UnknownWordError("backward(reduction=...)", reduction, LossReduction.list())
        if reduction == LossReduction.SUM and weight:
            weight = float(self.num_processes)
        return weight / self._windows.divisor

    def _items_factor(self, items: int | torch.Tensor, weight: float) -> float:
        if not weight:
            return 0.0 * self._windows.factor_of_items(0, self._items_of_all)
        return self._windows.factor_of_items(int(items), self._items_of_all)

    def _items_of_all(self, items: int) -> float:
        if self._world.alone:
            return float(items)
        self._world.note("count items")
        return sum(row[0] for row in self._world.gather_numbers([items])) / self._world.size

    @contextmanager
    def accumulate(self, *models: Any) -> Iterator[None]:
        """
        One micro-batch of a window of `gradient_accumulation_steps`.

        Inside, losses are divided by the length of a window; prepared optimizers and schedulers do nothing until it is
        complete, which it also is at the end of the data. What a script divides a short last window by is its own
        affair: `gradient_accumulation_steps` as most do; its own length with
        `GradientAccumulationPlugin(exact_windows=True)`; the items in it with `backward(loss, num_items=...)`.

        Args:
            models: those that accumulate; all prepared ones when none is named.
        """
        self._windows.enter(tuple(map(id, models)), lambda: self._prepared.gradients_of(models))
        with ExitStack() as stack:
            stack.callback(self._windows.leave)
            if not self._windows.sync and not self._settings.accumulation.sync_each_batch:
                for engine in self._prepared.engines_of(models):
                    stack.enter_context(engine.no_sync())
            yield

    @contextmanager
    def no_sync(self, model: Any = None) -> Iterator[None]:
        """Backward passes in the body add up on each process; the next one outside exchanges the sum."""
        with ExitStack() as stack:
            stack.enter_context(self._monitor.quiet())
            for engine in self._prepared.engines_of(() if model is None else (model,)):
                stack.enter_context(engine.no_sync())
            yield

    def unsynchronized(self, *models: nn.Module) -> AbstractContextManager[None]:
        """
        Every process trains these models by itself in the body, on purpose: the monitor does not object.

        Gradients of a prepared model are still exchanged; `no_sync` keeps them on their process.

        Args:
            models: any model when none is named.

        Raises:
            WrongKindError: something else than a model.
        """
        for model in models:
            expect("unsynchronized", model, nn.Module, "models, objects of nn.Module, or nothing")
        return self._monitor.meant(models)

    @contextmanager
    def trigger_sync_in_backward(self, model: Any) -> Iterator[None]:
        """Backward passes in the body exchange gradients, also inside of `no_sync` or an incomplete window."""
        with ExitStack() as stack:
            for engine in self._prepared.engines_of((model,)):
                stack.enter_context(engine.syncing(True))
            yield

    @contextmanager
    def join_uneven_inputs(self, joinables: list[Any], even_batches: bool | None = None) -> Iterator[None]:
        """
        Train in the body although some processes may have fewer batches than others.

        Gradients are sums over those that still train, divided by the number of all processes, as torch's Join does.
        Afterwards all hold the weights, buffers and optimizer states of a process that trained to the end.

        Args:
            joinables: prepared models; all when empty.
            even_batches: for the loops in the body, instead of what the loaders were prepared with.
        """
        with ExitStack() as stack:
            if even_batches is not None:
                stack.enter_context(self._prepared.even_batches_as(even_batches))
            if not self._world.alone:
                stack.enter_context(self._monitor.quiet())
                stack.enter_context(self._prepared.joined(joinables))
            yield

    def mark_forward_method(self, model: nn.Module, *names: str) -> None:
        """
        Run further methods of a model in mixed precision.

        Gradients are exchanged for all of them anyway; those that name a layer or a weight are found by themselves.
        """
        mark(model, names)

    def autocast(self, autocast_handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """Mixed precision for code outside of a prepared model's forward pass; with a handler, as that says."""
        if autocast_handler is None:
            return self._precision.autocast()
        expect("autocast", autocast_handler, AutocastKwargs, "an AutocastKwargs(...), or nothing")
        return replace(self._precision, **vars(autocast_handler)).autocast()

    def clip_grad_norm_(
        self, parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0
    ) -> torch.Tensor:
        """
        Clip the gradients of `parameters` to a total norm; inside an incomplete window they are only measured.

        Returns:
            The total norm before clipping; the same on all processes, except inside a window.
        """
        engines = list(self._prepared.engines.values())
        return clip_norm(self._prepared.gates, engines, as_list(parameters), max_norm, norm_type, self._windows.sync)

    def clip_grad_value_(self, parameters: torch.Tensor | Iterable[torch.Tensor], clip_value: float) -> None:
        """Clip every element of the gradients to [-clip_value, clip_value]; nothing inside an incomplete window."""
        clip_values(self._prepared.gates, as_list(parameters), clip_value, self._windows.sync)

    def unscale_gradients(self, optimizer: Optimizer | list[Optimizer] | None = None) -> None:
        """Take the fp16 scale out of the gradients of an optimizer (all when None), once a step."""
        wanted = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
        self._prepared.check_known(wanted or ())
        for gate in self._prepared.gates:
            if wanted is None or any(gate.optimizer is one for one in wanted):
                gate.unscale()
