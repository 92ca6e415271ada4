"""What is handed on to torch: settings of autocast, the scaler, data parallelism, the process group, compilation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from typing import Any, TypeVar

from ..errors import MixedUseError, UnknownWordError, WrongKindError
from ..types import DDPCommunicationHookType, DynamoBackend
from .compression import hook_of
from .environment import read_environment

H = TypeVar("H", bound="KwargsHandler")


class KwargsHandler:
    """The base of dataclasses whose fields are handed on as keyword arguments."""

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return deepcopy(self.__dict__)

    def to_kwargs(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        plain = self._plain()
        return {name: value for name, value in self.to_dict().items() if plain.get(name, _NOTHING) != value}

    def _plain(self) -> dict[str, Any]:
        """All defaults."""
        return {
            one.name: one.default_factory() if one.default_factory is not MISSING else one.default
            for one in fields(self)  # type: ignore[arg-type]
        }


_NOTHING = object()


@dataclass
class AutocastKwargs(KwargsHandler):
    """Settings of `torch.autocast`."""

    enabled: bool = True
    """False: `accelerator.autocast` and forward passes run in full precision."""
    cache_enabled: bool | None = None
    """Keep the copies of weights in low precision within a context."""


@dataclass
class GradScalerKwargs(KwargsHandler):
    """Settings of `torch.amp.GradScaler`, for fp16."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    enabled: bool = True


@dataclass
class InitProcessGroupKwargs(KwargsHandler):
    """Settings of `torch.distributed.init_process_group`; they count for the first accelerator of a process."""

    backend: str | None = "nccl"
    """"nccl" and "gloo" mean what the device needs."""
    init_method: str | None = None
    """Where the processes meet; None: what the environment says."""
    timeout: timedelta | None = None
    """Of collectives; None: torch's own."""


@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """
    Settings of the exchange of gradients.

    `dim`, `check_reduction`, `find_unused_parameters` and `static_graph` are accepted and change nothing: what a
    backward pass reaches is always found out, and may change from step to step.
    """

    dim: int = 0
    broadcast_buffers: bool = True
    """Buffers that a training step has changed become those of rank 0."""
    bucket_cap_mb: int = 25
    """Gradients travel in buckets of this many MiB."""
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: bool = False
    """Gradients are views of the buckets: saves memory; they must not be detached in place."""
    static_graph: bool = False
    comm_hook: DDPCommunicationHookType = DDPCommunicationHookType.NO
    """How gradients are compressed."""
    comm_wrapper: DDPCommunicationHookType = DDPCommunicationHookType.NO
    """fp16 or bf16 around another hook."""
    comm_state_option: dict[str, Any] = field(default_factory=dict)
    """Settings of the power_sgd hooks (`matrix_approximation_rank`, `start_powerSGD_iter`, ...)."""

    @property
    def needs_reducer(self) -> bool:
        """Something is asked for that only the reducer of torch's DistributedDataParallel does."""
        plain = DDPCommunicationHookType.NO
        hooked = self.comm_hook is not plain or self.comm_wrapper is not plain
        return hooked or self.gradient_as_bucket_view or self.bucket_cap is not None

    @property
    def bucket_cap(self) -> int | None:
        """
        What to hand to torch's DistributedDataParallel: None for its own 25 MiB.

        The same number said aloud takes away its small first bucket, which begins to travel early: 2 to 3 % of a step
        of 25 million parameters on two processes.
        """
        return None if self.bucket_cap_mb == type(self).bucket_cap_mb else self.bucket_cap_mb

    def to_dict(
        self, ignore_keys: Iterable[str] = ("comm_hook", "comm_wrapper", "comm_state_option")
    ) -> dict[str, Any]:
        """The fields that torch's DistributedDataParallel takes, too: all but those of compression."""
        return {name: value for name, value in super().to_dict().items() if name not in ignore_keys}

    def __post_init__(self) -> None:
        for name in ("comm_hook", "comm_wrapper"):
            word = getattr(self, name)
            if word not in DDPCommunicationHookType.list():
                raise UnknownWordError(name, word, DDPCommunicationHookType.list())
            setattr(self, name, DDPCommunicationHookType(str(word)))

    def compression(self, on_cpu: bool) -> tuple[Any, Any]:
        """
        The state and the hook for `register_comm_hook` of torch; None and None without one.

        Raises:
            MixedUseError: the CPU has no such hook.
        """
        return hook_of(self.comm_hook, self.comm_wrapper, self.comm_state_option, on_cpu)

    def register_comm_hook(self, model: Any) -> None:
        """
        Compress the gradients of a DistributedDataParallel that the script has made by itself.

        Raises:
            MixedUseError: it is another model. Those of `prepare` have the hook of the accelerator's handler.
        """
        register = getattr(model, "register_comm_hook", None)
        if register is None:
            raise MixedUseError(
                f"register_comm_hook takes a DistributedDataParallel, but this is a {type(model).__name__}. Pass this "
                "handler to Accelerator(kwargs_handlers=[...]): prepare then applies the compression."
            )
        state, hook = self.compression(all(one.device.type == "cpu" for one in model.parameters()))
        if hook is not None:
            register(state, hook)


@dataclass
class TorchDynamoPlugin(KwargsHandler):
    """
    Settings of `torch.compile`, which `prepare` applies to every model, in place.

    What is None is what the environment says: TORCHLIFT_DYNAMO_BACKEND, _MODE, _USE_FULLGRAPH, _USE_DYNAMIC,
    _USE_REGIONAL_COMPILATION (or the same with ACCELERATE_).
    """

    backend: str | None = None
    """A back end of torch.compile; "no": nothing is compiled."""
    mode: str | None = None
    """"default", "reduce-overhead", "max-autotune"."""
    fullgraph: bool | None = None
    """Raise where the model would be compiled in pieces."""
    dynamic: bool | None = None
    """Compile for all shapes at once."""
    options: Any = None
    """For the back end."""
    disable: bool = False
    """Compile nothing after all."""
    use_regional_compilation: bool | None = None
    """Compile repeated blocks instead of the whole model: a faster start."""

    def __post_init__(self) -> None:
        says = read_environment()
        word = str(self.backend or says.dynamo_backend or DynamoBackend.NO).lower()
        if word not in DynamoBackend.list():
            raise UnknownWordError("dynamo_backend", self.backend, DynamoBackend.list())
        self.backend = DynamoBackend(word)
        self.mode = self.mode or says.dynamo_mode or "default"
        self.fullgraph = bool(says.dynamo_fullgraph) if self.fullgraph is None else self.fullgraph
        self.dynamic = says.dynamo_dynamic if self.dynamic is None else self.dynamic
        if self.use_regional_compilation is None:
            self.use_regional_compilation = bool(says.dynamo_regional)

    def to_dict(self) -> dict[str, Any]:
        """All fields; the back end as its word."""
        return {**super().to_dict(), "backend": str(self.backend)}

    def _plain(self) -> dict[str, Any]:
        settled = {"backend": "no", "mode": "default", "fullgraph": False, "use_regional_compilation": False}
        return {**super()._plain(), **settled}

    @property
    def wanted(self) -> bool:
        """Something is to be compiled."""
        return self.backend != DynamoBackend.NO

    def arguments(self) -> dict[str, Any]:
        """For `torch.compile`."""
        given = {"backend": str(self.backend), "fullgraph": self.fullgraph, "dynamic": self.dynamic}
        given["mode"] = None if self.mode == "default" or self.options is not None else self.mode
        return {**given, "options": self.options, "disable": self.disable}


@dataclass
class GradientAccumulationPlugin(KwargsHandler):
    """How `Accelerator.accumulate` counts."""

    num_steps: int | None = None
    """Batches per optimizer step."""
    adjust_scheduler: bool = True
    """Accepted; schedulers count optimizer steps here, and need no adjusting."""
    sync_with_dataloader: bool = True
    """The end of the data ends a window."""
    sync_each_batch: bool = False
    """Exchange gradients after every batch: slower, and needs less memory with some strategies."""
    exact_windows: bool = False
    """Divide a short last window by its own length instead of by `num_steps`."""

    def __post_init__(self) -> None:
        if self.num_steps is not None:
            self.num_steps = window_length("num_steps of the GradientAccumulationPlugin", self.num_steps)


def window_length(name: str, given: Any) -> int:
    """
    How many batches a window of accumulation has.

    Raises:
        MixedUseError: not a whole number of them, or none.
    """
    try:
        steps = int(given)
    except (TypeError, ValueError):
        steps = 0
    if steps < 1 or (not isinstance(given, str) and steps != given):
        raise MixedUseError(f"{name} is {given}; it must be 1 or more, in whole numbers.")
    return steps


@dataclass
class ShapeBuckets(KwargsHandler):
    """
    Lengths to which batches are padded where each shape is compiled anew (torch_xla). Elsewhere nothing is padded.

    What is padded counts in a loss and in a metric, unless the script leaves it out (`ignore_index`, a mask).
    """

    lengths: tuple[int, ...]
    """A tensor gets the next of them; one that is longer than all stays."""
    dim: int = 1
    """The dimension that is padded, at its end."""
    fill: float | Mapping[Any, float] = 0
    """What with; or, by the keys (or positions) of a batch, what which tensor is padded with, and no others are."""

    def __post_init__(self) -> None:
        if not self.lengths or any(not isinstance(one, int) or one < 1 for one in self.lengths):
            raise MixedUseError(f"ShapeBuckets(lengths={self.lengths!r}): it takes whole numbers from 1 on.")
        if self.dim < 1:
            raise MixedUseError(f"ShapeBuckets(dim={self.dim}): rows are dimension 0; it takes a later one, from 1 on.")


def sorted_out(handlers: Iterable[Any] | None) -> dict[type, KwargsHandler]:
    """
    Handlers by their class.

    Raises:
        MixedUseError: two of one class; a ValueError.
        AssertionError: no handler, as in Accelerate.
    """
    found: dict[type, KwargsHandler] = {}
    if isinstance(handlers, KwargsHandler):
        raise WrongKindError(f"kwargs_handlers takes a list: [{type(handlers).__name__}(...)].")
    for handler in handlers or ():
        if not isinstance(handler, KwargsHandler):
            raise AssertionError(f"kwargs_handlers holds {handler!r}; it takes objects such as AutocastKwargs(...).")
        if type(handler) in found:
            raise MixedUseError(f"kwargs_handlers holds two {type(handler).__name__}; give one.")
        found[type(handler)] = handler
    return found


def one_of(handlers: dict[type, KwargsHandler], cls: type[H]) -> H:
    """The handler of a class; one with the defaults when none was given."""
    for handler in handlers.values():
        if isinstance(handler, cls):
            return handler
    return cls()
