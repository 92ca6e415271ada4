"""What training computes: every loss that is backpropagated, and the parameters after every optimizer step."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ...torch_sharding import whole_of
from .figures import digest, norm, number, sketch, together
from .recorder import Ended, Recorder

_MOST_PARAMETERS = 400
"""Of so many parameters the figures are kept one by one."""


def install(recorder: Recorder) -> Steps:
    """Record backward passes and optimizer steps from now on."""
    depth = [0]

    def watched(original: Callable[..., Any], gradients: int) -> Callable[..., Any]:
        @wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not _is_computed(tensors):
                return original(tensors, *args, **kwargs)
            depth[0] += 1
            try:
                if depth[0] == 1:
                    given = args[gradients] if len(args) > gradients else None
                    recorder.write("loss", v=_value(tensors, given), p=recorder.current, at=recorder.line())
                result = original(tensors, *args, **kwargs)
                if depth[0] == 1:
                    recorder.write("backward")
                return result
            finally:
                depth[0] -= 1

        return backward

    torch.Tensor.backward = watched(torch.Tensor.backward, 0)  # type: ignore[method-assign]
    torch.autograd.backward = watched(torch.autograd.backward, 0)
    steps = Steps(recorder)
    register_optimizer_step_pre_hook(steps.before)
    register_optimizer_step_post_hook(steps.after)
    _watch_autocast(recorder)
    return steps


def _is_computed(tensors: Any) -> bool:
    """Whether what is differentiated was computed. A pass that begins at leaves only hands them gradients, as the
    runtime does at the end of an exchange."""
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    return any(getattr(tensor, "grad_fn", None) is not None for tensor in tensors)


def _value(tensors: Any, gradients: Any) -> float:
    """What is differentiated, as one number."""
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    gradients = [gradients] if isinstance(gradients, torch.Tensor) else list(gradients or [])
    with torch.no_grad():
        if len(gradients) == len(tensors):
            tensors = [t if g is None else t * g for t, g in zip(tensors, gradients, strict=True)]
        return sum(map(number, tensors))


class Steps:
    """Figures before and after the steps of all optimizers."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._order: dict[int, int] = {}
        self.optimizers: list[Optimizer] = []
        self._gradient = 0.0
        self._rates: list[float] = []
        self._first: dict[str, Any] = {}
        self._inside = 0

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Gradients as the step will use them, and its learning rates."""
        self._inside += 1
        if self._inside > 1 or not self._recorder.mine:
            return
        with torch.no_grad():
            self._gradient = norm([whole_of(p.grad) for p in parameters_of(optimizer) if p.grad is not None])
        self._rates = rates_of(optimizer)
        if id(optimizer) not in self._order:
            self._first = _weights(optimizer)

    def after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Parameters after the step. Ends the run when it has gone on for too long."""
        self._inside -= 1
        if self._inside or not self._recorder.mine:
            return
        first = id(optimizer) not in self._order
        index = self._order.setdefault(id(optimizer), len(self._order))
        if first:
            self.optimizers.append(optimizer)
        made = self._recorder.made[index] = self._recorder.made.get(index, 0) + 1
        self._record(optimizer, index, made, first)
        if made >= self._recorder.most_steps:
            raise Ended

    def _record(self, optimizer: Optimizer, index: int, made: int, first: bool) -> None:
        fields: dict[str, Any] = {
            "o": index,
            "k": made,
            "lr": self._rates,
            "gn": self._gradient,
            **_weights(optimizer),
            "p": self._recorder.current,
            "at": self._recorder.line(),
        }
        if first:
            fields["cls"] = _kind(optimizer)
            fields["first"] = self._first
            fields["names"] = names_of(parameters_of(optimizer)[:_MOST_PARAMETERS])
        self._recorder.write("step", **fields)


def _weights(optimizer: Optimizer) -> dict[str, Any]:
    """Figures of the parameters as they are now; of sharded ones, on all ranks."""
    with torch.no_grad():
        parameters = [whole_of(p.detach()) for p in parameters_of(optimizer)]
        sketches = [sketch(p) for p in parameters]
        return {
            "w": norm(parameters),
            "h": together([digest(p) for p in parameters]),
            "s": torch.stack(sketches).sum(0).tolist() if sketches else [],
            "ps": [s.tolist() for s in sketches[:_MOST_PARAMETERS]],
            "pw": [norm([p]) for p in parameters[:_MOST_PARAMETERS]],
        }


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """The parameters of an optimizer, in its order."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def rates_of(optimizer: Optimizer) -> list[float]:
    """The learning rates of an optimizer's groups."""
    return [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]


def _kind(optimizer: Optimizer) -> str:
    """The name of the nearest class that torch knows, for scripts with optimizers of their own."""
    for cls in type(optimizer).__mro__:
        if cls.__module__.startswith("torch.optim") and cls is not Optimizer:
            return cls.__name__
    return type(optimizer).__name__


def names_of(parameters: list[torch.Tensor]) -> list[str]:
    """
    Names by the model that holds the most of the parameters, free of what wrappers add; numbers where there is none.
    """
    wanted = {id(p) for p in parameters}
    best: dict[int, str] = {}
    highest: tuple[int, bool, int] = (0, False, 0)
    for thing in gc.get_objects():
        if not issubclass(type(thing), nn.Module) or "_parameters" not in thing.__dict__:
            continue
        found = {id(p): name for name, p in thing.named_parameters() if id(p) in wanted}
        own = not type(thing).__module__.startswith("torch.")  # the script's class before torch's containers
        rank = (len(found), own, -sum(map(len, found.values())))
        if found and rank > highest:
            best, highest = found, rank
    return [best.get(id(p), f"parameter {i}") for i, p in enumerate(parameters)]


def _watch_autocast(recorder: Recorder) -> None:
    enter = torch.autocast.__enter__

    def entered(self: Any) -> Any:
        if getattr(self, "_enabled", False) and self.fast_dtype is not None:
            recorder.hold("mixed precision", hash(str(self.fast_dtype)))
        return enter(self)  # type: ignore[no-untyped-call]

    torch.autocast.__enter__ = entered  # type: ignore[method-assign]
