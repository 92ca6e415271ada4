"""
Noise as a function of (step, call, row).

From the first batch on, torch's random functions draw from a generator that is seeded with the number of the batch
and of the call. What has one entry for each row of the batch in hand is drawn for the whole batch, and this process
gets its rows: so two half batches hold the rows of the whole one. numpy's functions do the same from a seed of their
own, and leave its stream where it was: a length that only happens to be a multiple of the rows shifts nothing.

A script that makes its batches by hand has no first batch, and draws from torch's own generator. All processes draw
what it draws then: the whole batch, of which each takes its rows.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ...device.kinds import kind_of
from ...process import rng
from ..hooks.data import InHand
from ..hooks.recorder import Recorder
from .order import Fetching

_STRIDE = 0x9E3779B97F4A7C15
_IN_PLACE = "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_"
_BY_SIZE = "rand randn"
_WITH_DEVICE = "rand randn randint randperm normal"
_NUMPY = "binomial exponential normal poisson randint uniform"
_NUMPY_BY_SIZE = "rand randn"
_PYTHON = "betavariate choice choices gauss normalvariate randint random randrange sample shuffle triangular uniform"
_NUMPY_COUNTED = "beta choice gamma permutation shuffle"
_NUMPY_ONE_ARGUMENT = "random random_sample standard_normal"


class Noise:
    """
    Takes the place of torch's and numpy's random functions.

    Args:
        recorder: of the trace.
        hand: the batch that the script works on.
    """

    def __init__(self, recorder: Recorder, hand: InHand) -> None:
        self._recorder = recorder
        self._hand = hand
        self._at: tuple[int, int] = (0, 0)
        self._calls = 0
        self._filling = False

    def install(self) -> None:
        """Replace the functions."""
        rng.alike = True
        for name in _WITH_DEVICE.split():
            setattr(torch, name, _by_the_cpu(getattr(torch, name)))
        for name in _BY_SIZE.split():
            setattr(torch, name, self._by_size(name))
        for name in _IN_PLACE.split():
            setattr(torch.Tensor, name, self._in_place(name))
        torch.randint = self._randint(torch.randint)
        torch.randperm = self._randperm(torch.randperm)
        torch.randn_like = self._like("normal_")
        torch.rand_like = self._like("uniform_")
        torch.randint_like = self._like("random_")
        torch.normal = self._normal(torch.normal)
        torch.bernoulli = self._bernoulli(torch.bernoulli)
        torch.Tensor.bernoulli = torch.bernoulli  # type: ignore[method-assign]
        torch.multinomial = self._multinomial(torch.multinomial)
        torch.Tensor.multinomial = torch.multinomial  # type: ignore[method-assign]
        self._numpy()
        self._single()

    @property
    def _natural(self) -> bool:
        """Before the first batch, inside data sets and inside our own draws, random functions are torch's own."""
        if self._filling or Fetching.now or not self._recorder.mine:
            return True
        self._hand.look()
        return self._unseeded and not self._hand.by_hand

    @property
    def _unseeded(self) -> bool:
        """No loader has handed out a batch: what is drawn goes on from what was drawn before."""
        return self._hand.number == 0

    @property
    def _left_alone(self) -> bool:
        """So are those that cannot draw the whole of a batch by hand, and give this process its rows of it."""
        return self._natural or self._unseeded

    def _generator(self, device: torch.device) -> torch.Generator | None:
        if self._unseeded:
            return None
        where = "cpu" if kind_of(device).drives_all else device  # torch_xla has no generators
        return torch.Generator(where).manual_seed(self._seed())

    def _seed(self) -> int:
        """The seed of the next call."""
        at = (self._hand.number, self._recorder.step_count())
        if at != self._at:
            self._at, self._calls = at, 0
        self._calls += 1
        return (at[0] * _STRIDE + at[1] * 1_000_003 + self._calls * 7_919) % 2**63

    def _cut(self, length: int) -> tuple[int, int]:
        """How many entries to draw for `length` of them, and where this process's begin."""
        hand = self._hand
        if not hand.rows or not length or length % hand.rows:
            if Fetching.collating:
                self._count()  # perhaps once for each row
            return length, 0
        if hand.by_hand and length != hand.rows:
            return length, 0  # the next batch is drawn while this one is in hand: as a whole, by all processes
        self._recorder.hold("noise per row", self._calls)
        times = length // hand.rows
        return max(hand.total * times, length), hand.before * times

    def fill(self, tensor: torch.Tensor, name: str, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Fill a tensor in place with `name` ("normal_")."""
        kwargs.pop("generator", None)
        generator = self._generator(tensor.device)
        original = _ORIGINAL[name]
        rows = tensor.dim() and not isinstance(tensor, torch.nn.Parameter)  # weights have no rows of a batch
        total, start = self._cut(tensor.shape[0]) if rows else (0, 0)
        if kind_of(tensor.device).drives_all:
            return self._fill_on_the_cpu(tensor, original, args, {**kwargs, "generator": generator})
        self._filling = True
        try:
            self._draw(tensor, original, args, {**kwargs, "generator": generator}, total, start)
        finally:
            self._filling = False
        return tensor

    @torch.no_grad()
    def _fill_on_the_cpu(self, tensor: torch.Tensor, original: Any, args: Any, kwargs: Any) -> torch.Tensor:
        """The numbers of the original, which is on the CPU. One process has all rows."""
        self._filling = True
        try:
            tensor.copy_(original(torch.empty(tensor.shape, dtype=tensor.dtype), *args, **kwargs))
        finally:
            self._filling = False
        return tensor

    @staticmethod
    @torch.no_grad()
    def _draw(tensor: torch.Tensor, original: Any, args: Any, kwargs: Any, total: int, start: int) -> None:
        if not total or total == tensor.shape[0]:
            original(tensor, *args, **kwargs)
            return
        whole = torch.empty((total, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
        original(whole, *args, **kwargs)
        end = start + tensor.shape[0]
        tensor.copy_(whole[start:end] if end <= total else whole[: tensor.shape[0]])

    def _in_place(self, name: str) -> Callable[..., Any]:
        original = _ORIGINAL[name]

        @wraps(original)
        def filled(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._natural or any(isinstance(a, torch.Tensor) for a in args):
                return original(tensor, *args, **kwargs)
            return self.fill(tensor, name, *args, **kwargs)

        return filled

    def _by_size(self, name: str) -> Callable[..., Any]:
        original, filling = getattr(torch, name), "normal_" if name == "randn" else "uniform_"

        @wraps(original)
        def drawn(*size: Any, **kwargs: Any) -> Any:
            if self._natural:
                return original(*size, **kwargs)
            given = {k: v for k, v in kwargs.items() if k not in ("generator", "requires_grad", "out")}
            made = self.fill(torch.empty(*size, **given), filling)
            if kwargs.get("out") is not None:
                made = kwargs["out"].copy_(made)
            return made.requires_grad_() if kwargs.get("requires_grad") else made

        return drawn

    def _like(self, filling: str) -> Callable[..., Any]:
        original: Any = {"normal_": torch.randn_like, "uniform_": torch.rand_like, "random_": torch.randint_like}[
            filling
        ]

        @wraps(original)
        def drawn(input: torch.Tensor, *bounds: Any, **kwargs: Any) -> Any:
            if self._natural:
                return original(input, *bounds, **kwargs)
            named = [kwargs.pop(k) for k in ("low", "high") if k in kwargs]
            asked = kwargs.pop("requires_grad", False)
            kwargs.pop("generator", None)
            bounds = (*bounds, *named)
            if filling == "random_" and len(bounds) == 1:
                bounds = (0, *bounds)
            made = self.fill(torch.empty_like(input, **kwargs), filling, *bounds)
            return made.requires_grad_() if asked else made.detach()

        return drawn

    def _randint(self, original: Any) -> Callable[..., Any]:
        @wraps(original)
        def drawn(*args: Any, **kwargs: Any) -> Any:
            size = kwargs.get("size", args[-1] if args else None)
            if self._natural or not isinstance(size, (tuple, list, torch.Size)):
                return original(*args, **kwargs)
            bounds = [a for a in args if a is not size]
            bounds += [kwargs[name] for name in ("low", "high") if name in kwargs]
            low, high = bounds if len(bounds) == 2 else (0, *bounds)
            given = {k: v for k, v in kwargs.items() if k in ("dtype", "device", "pin_memory")}
            given.setdefault("dtype", torch.int64)
            return self.fill(torch.empty(tuple(size), **given), "random_", int(low), int(high))

        return drawn

    def _randperm(self, original: Any) -> Callable[..., Any]:
        @wraps(original)
        def drawn(n: int, **kwargs: Any) -> Any:
            if self._left_alone:
                return original(n, **kwargs)
            if n == self._hand.rows:
                self._recorder.hold("rows of a batch mixed by randperm", 0)
            kwargs.pop("generator", None)
            device = torch.device(kwargs.pop("device", None) or "cpu")
            generator = self._generator(device)
            assert generator is not None
            permutation: torch.Tensor = original(n, generator=generator, device=generator.device, **kwargs)
            return permutation.to(device)

        return drawn

    def _normal(self, original: Any) -> Callable[..., Any]:
        @wraps(original)
        def drawn(mean: Any, std: Any = 1.0, *args: Any, **kwargs: Any) -> Any:
            if self._natural or not (isinstance(mean, torch.Tensor) or isinstance(std, torch.Tensor)):
                size = kwargs.get("size", args[0] if args else None)
                if self._natural or size is None:
                    return original(mean, std, *args, **kwargs)
                given = {k: v for k, v in kwargs.items() if k in ("dtype", "device")}
                return self.fill(torch.empty(tuple(size), **given), "normal_", float(mean), float(std))
            first, second = torch.broadcast_tensors(*map(torch.as_tensor, (mean, std)))  # type: ignore[no-untyped-call]
            noise = self.fill(torch.empty_like(first, memory_format=torch.contiguous_format).to(second), "normal_")
            return (first + second * noise).detach()

        return drawn

    def _bernoulli(self, original: Any) -> Callable[..., Any]:
        @wraps(original)
        def drawn(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._left_alone:
                return original(input, *args, **kwargs)
            chance = args[0] if args else kwargs.get("p", input)
            return (self.fill(torch.empty_like(input).detach(), "uniform_") < chance).to(input.dtype)

        return drawn

    def _multinomial(self, original: Any) -> Callable[..., Any]:
        @wraps(original)
        def drawn(input: torch.Tensor, num_samples: int, replacement: bool = False, **kwargs: Any) -> Any:
            if self._left_alone or input.dim() != 2:
                return original(input, num_samples, replacement, **kwargs)
            chances = input.detach().double()
            if not replacement:
                waits = self.fill(torch.empty_like(chances), "exponential_") / chances
                return waits.topk(num_samples, largest=False).indices
            sums = chances.cumsum(1)
            draws = self.fill(torch.empty(len(chances), num_samples).to(chances), "uniform_") * sums[:, -1:]
            return torch.searchsorted(sums, draws).clamp_max(input.shape[1] - 1)

        return drawn

    def _numpy(self) -> None:
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return
        for name in _NUMPY.split():
            self._replace(numpy.random, name, lambda args: None)
        for name in _NUMPY_BY_SIZE.split():
            self._replace(numpy.random, name, lambda args: args)
        for name in _NUMPY_ONE_ARGUMENT.split():
            self._replace(numpy.random, name, lambda args: args[0] if args else None)

    def _single(self) -> None:
        """Count what is drawn one by one: drawn for each row, every process has its own number of them."""
        modules = [(random, _PYTHON), (sys.modules.get("numpy.random"), _NUMPY_COUNTED)]
        for module, names in modules:
            for name in names.split() if module is not None else ():
                setattr(module, name, self._counted(getattr(module, name)))

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def drawn(*args: Any, **kwargs: Any) -> Any:
            self._count()
            return original(*args, **kwargs)

        return drawn

    def _count(self) -> None:
        if not self._left_alone:
            self._recorder.draws += 1

    def _replace(self, module: Any, name: str, positional: Callable[[Any], Any]) -> None:
        original = getattr(module, name)
        by_name = positional(()) is None

        @wraps(original)
        def drawn(*args: Any, **kwargs: Any) -> Any:
            size = kwargs.get("size", positional(args))
            if size is None and by_name and len(args) == 3:  # (low, high, size), (mean, std, size)
                size = args[2]
            shape = (size,) if isinstance(size, int) else tuple(size or ())
            if self._natural or not shape:
                self._count()
                return original(*args, **kwargs)
            total, start = self._cut(shape[0])
            whole = (total, *shape[1:])
            state = module.get_state()
            if not self._unseeded:
                module.seed(self._seed() % 2**32)
            if "size" in kwargs:
                drawn = original(*args, **{**kwargs, "size": whole})
            elif not by_name:
                drawn = original(*whole)
            elif len(args) == 3:
                drawn = original(*args[:2], whole)
            else:
                drawn = original(whole)
            if not self._unseeded:
                module.set_state(state)
            return drawn[start : start + shape[0]]

        setattr(module, name, drawn)


def _by_the_cpu(original: Any) -> Callable[..., Any]:
    """Where torch_xla draws, the numbers are those that the original draws on the CPU."""

    @wraps(original)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or not kind_of(torch.device(device)).drives_all:
            return original(*args, **kwargs)
        return original(*args, **{**kwargs, "device": "cpu"}).to(device)

    return drawn


_ORIGINAL: dict[str, Any] = {name: getattr(torch.Tensor, name) for name in _IN_PLACE.split()}
