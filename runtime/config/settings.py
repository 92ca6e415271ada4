"""The settings of one accelerator, checked once and frozen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import MixedUseError, NotAvailableYet, UnknownWordError, expect
from ..types import PrecisionType, RNGType
from .eight_bits import AORecipeKwargs, recipe_of
from .environment import Environment
from .handlers import (
    AutocastKwargs,
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
    ShapeBuckets,
    TorchDynamoPlugin,
    one_of,
    sorted_out,
    window_length,
)

if TYPE_CHECKING:
    from .fsdp import FullyShardedDataParallelPlugin
    from .parallelism import ParallelismConfig

T = TypeVar("T")


@dataclass(kw_only=True)
class DataLoaderConfiguration:
    """
    How prepared loaders share their batches among the processes.

    It is read when an accelerator is made, or when its `dataloader_config` is set.
    """

    split_batches: bool | None = None
    """True: every batch of the script is shared among the processes, so that the global batch is the script's.
    False or None: every process gets batches of the script's size."""
    even_batches: bool = True
    """With batches per process: complete the last round with rows from the start of the data set."""
    non_blocking: bool = False
    """Copy batches to the device without waiting for the copy (useful with pinned memory)."""
    dispatch_batches: bool | None = None
    """True: rank 0 reads for all processes, and sends each its rows. Otherwise every process reads for itself."""
    use_seedable_sampler: bool = False
    """Shuffle by a seed and the number of the epoch: the order of an epoch can be had again."""
    data_seed: int | None = None
    """The seed of that; the seed of torch when the loader is prepared, when None."""
    use_stateful_dataloader: bool = False
    """Loaders have `state_dict` and `load_state_dict`: a pass that was saved in its middle goes on from there."""

    def __post_init__(self) -> None:
        if self.dispatch_batches and self.even_batches is False:
            raise MixedUseError(
                "dispatch_batches=True always completes the last batches, so it cannot be used with even_batches=False."
            )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the arguments and the environment amount to."""

    device_placement: bool
    split_batches: bool
    even_batches: bool
    non_blocking: bool
    monitor: bool
    """Notice weights that drift apart, and what was not prepared."""
    sanitize: bool
    """Record what this rank does, for a comparison at the end."""
    mixed_precision: PrecisionType
    gradient_accumulation_steps: int
    cpu: bool
    step_scheduler_with_optimizer: bool
    dispatch_batches: bool
    data_seed: int | None
    use_seedable_sampler: bool
    stateful: bool
    rng_types: tuple[RNGType, ...]
    accumulation: GradientAccumulationPlugin
    autocast: AutocastKwargs
    scaler: GradScalerKwargs
    parallel: DistributedDataParallelKwargs
    joining: InitProcessGroupKwargs
    dynamo: TorchDynamoPlugin
    tf32: bool | None
    recipe: AORecipeKwargs | None
    """How linear layers multiply in eight bits; None: they do not."""
    handlers: dict[type, KwargsHandler]
    """All that were given, by their classes."""
    sharding: FullyShardedDataParallelPlugin | None
    """How weights are sharded; None: every process has whole models."""
    mesh: ParallelismConfig | None
    """How processes are divided; None: weights are sharded among all of them, or not at all."""

    @property
    def buckets(self) -> ShapeBuckets | None:
        """Lengths to which batches are padded where each shape is compiled; None: as they are."""
        found = self.handlers.get(ShapeBuckets)
        return found if isinstance(found, ShapeBuckets) else None


def resolve(
    environment: Environment,
    *,
    device_placement: bool,
    split_batches: bool | None,
    mixed_precision: str | None,
    gradient_accumulation_steps: int,
    cpu: bool,
    dataloader_config: DataLoaderConfiguration | None,
    step_scheduler_with_optimizer: bool,
    gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
    kwargs_handlers: Iterable[KwargsHandler] | None = None,
    dynamo_backend: str | None = None,
    dynamo_plugin: TorchDynamoPlugin | None = None,
    rng_types: Iterable[str] | None = None,
    fsdp_plugin: FullyShardedDataParallelPlugin | None = None,
    parallelism_config: ParallelismConfig | None = None,
) -> Settings:
    """Join arguments and environment. An argument wins, except for the length of the accumulation window."""
    handlers = sorted_out(kwargs_handlers)
    loaders = dataloader_config or DataLoaderConfiguration()
    expect("dataloader_config", loaders, DataLoaderConfiguration, "a DataLoaderConfiguration(...)")
    windows = _accumulation(environment, gradient_accumulation_steps, gradient_accumulation_plugin)
    mesh = _mesh(environment, parallelism_config)
    precision = parse_precision(mixed_precision or environment.mixed_precision or "no")
    return Settings(
        device_placement=device_placement,
        split_batches=_split_batches(environment, split_batches, loaders.split_batches),
        even_batches=loaders.even_batches,
        non_blocking=loaders.non_blocking,
        monitor=environment.monitor is not False,
        sanitize=bool(environment.sanitize),
        mixed_precision=precision,
        gradient_accumulation_steps=windows.num_steps or 1,
        cpu=cpu or environment.cpu,
        step_scheduler_with_optimizer=step_scheduler_with_optimizer,
        dispatch_batches=bool(loaders.dispatch_batches),
        data_seed=loaders.data_seed,
        use_seedable_sampler=loaders.use_seedable_sampler,
        stateful=loaders.use_stateful_dataloader,
        rng_types=_rng_types(rng_types),
        accumulation=windows,
        autocast=one_of(handlers, AutocastKwargs),
        scaler=one_of(handlers, GradScalerKwargs),
        parallel=one_of(handlers, DistributedDataParallelKwargs),
        joining=one_of(handlers, InitProcessGroupKwargs),
        dynamo=_dynamo(dynamo_backend, dynamo_plugin),
        tf32=environment.tf32,
        recipe=recipe_of(precision, handlers),
        handlers=handlers,
        sharding=_sharding(environment, fsdp_plugin, mesh),
        mesh=mesh,
    )


def with_loaders(settings: Settings, loaders: DataLoaderConfiguration) -> Settings:
    """The same settings with others for loaders."""
    expect("dataloader_config", loaders, DataLoaderConfiguration, "a DataLoaderConfiguration(...)")
    return replace(
        settings,
        split_batches=settings.split_batches if loaders.split_batches is None else loaders.split_batches,
        even_batches=loaders.even_batches,
        non_blocking=loaders.non_blocking,
        dispatch_batches=bool(loaders.dispatch_batches),
        data_seed=loaders.data_seed,
        use_seedable_sampler=loaders.use_seedable_sampler,
        stateful=loaders.use_stateful_dataloader,
    )


def either(name: str, given: T | None, other: str, also: T | None) -> T | None:
    """
    One argument under two names.

    Raises:
        MixedUseError: both were given.
    """
    if given is not None and also is not None:
        raise MixedUseError(f"{name} and {other} are two names of one argument. Give one.")
    return also if given is None else given


def _accumulation(
    environment: Environment, given: int, plugin: GradientAccumulationPlugin | None
) -> GradientAccumulationPlugin:
    steps = window_length("gradient_accumulation_steps", given)
    if plugin is not None and steps > 1:
        raise MixedUseError(
            "gradient_accumulation_steps and gradient_accumulation_plugin both set the number of accumulation steps. "
            "Give one."
        )
    plugin = plugin or GradientAccumulationPlugin()
    return replace(plugin, num_steps=environment.gradient_accumulation_steps or plugin.num_steps or steps)


def _dynamo(backend: str | None, plugin: TorchDynamoPlugin | None) -> TorchDynamoPlugin:
    if backend is not None and plugin is not None:
        raise MixedUseError("dynamo_backend and dynamo_plugin both configure compilation. Give one.")
    return plugin or TorchDynamoPlugin(backend=backend)


def _sharding(
    environment: Environment, given: Any, mesh: ParallelismConfig | None
) -> FullyShardedDataParallelPlugin | None:
    """A mesh that shards asks for sharding; one that only replicates leaves nothing to shard."""
    wanted = given is not None or environment.fsdp or (mesh is not None and mesh.dp_shard_enabled)
    if not wanted:
        return None
    from .fsdp import FullyShardedDataParallelPlugin  # not needed by most

    plugin = FullyShardedDataParallelPlugin() if given is None else given
    expect("fsdp_plugin", plugin, FullyShardedDataParallelPlugin, "a FullyShardedDataParallelPlugin(...)")
    if mesh is not None and mesh.dp_replicate_enabled and not mesh.dp_shard_enabled:
        raise MixedUseError(
            f"FSDP is asked for, and ParallelismConfig has dp_replicate_size={mesh.dp_replicate_size} with "
            "dp_shard_size=1, which shards nothing. Set dp_shard_size, or leave out one of the two."
        )
    return plugin


def _mesh(environment: Environment, given: Any) -> ParallelismConfig | None:
    if given is None and not environment.parallelism:
        return None
    from .parallelism import ParallelismConfig  # not needed by most

    config = ParallelismConfig() if given is None else given
    expect("parallelism_config", config, ParallelismConfig, "a ParallelismConfig(...)")
    return config


def _rng_types(words: Iterable[str] | None) -> tuple[RNGType, ...]:
    chosen = [] if words is None else [str(word) for word in words]
    for word in chosen:
        if word not in RNGType.list():
            raise UnknownWordError("rng_types", word, RNGType.list())
    return tuple(RNGType(word) for word in chosen)


def _split_batches(environment: Environment, argument: bool | None, configured: bool | None) -> bool:
    if argument is not None and configured is not None and argument != configured:
        raise MixedUseError(
            f"Accelerator(split_batches={argument}) contradicts DataLoaderConfiguration(split_batches={configured}). "
            "Give it in one place."
        )
    for value in (argument, configured, environment.split_batches):
        if value is not None:
            return value
    return False


_SPELLINGS = {
    "bf16-mixed": "bf16",
    "16-mixed": "fp16",
    "fp16-mixed": "fp16",
    "32-true": "no",
    "32": "no",
    "fp32": "no",
}
_LATER = ("16-true", "bf16-true", "64-true", "transformer-engine", "transformer-engine-float16")


def parse_precision(word: str) -> PrecisionType:
    """
    Turn a word into a precision ("bf16-mixed", "16-mixed" and "32-true" are other spellings).

    Raises:
        NotAvailableYet: for weights in low precision.
        UnknownWordError: for any other word that is no precision.
    """
    word = _SPELLINGS.get(str(word), str(word))
    if word in _LATER:
        raise NotAvailableYet(f'mixed_precision="{word}"', 'Use "bf16".')
    if word not in PrecisionType.list():
        raise UnknownWordError("mixed_precision", word, PrecisionType.list())
    return PrecisionType(word)
