"""
The runtime: what a migrated training script calls.

Importing this package is cheap and needs no torch; the first name that needs it says how to install it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .accelerator.facade import Accelerator
    from .checkpoint.weights import load_checkpoint_in_model
    from .compat.operations import synchronize_rng_states
    from .compat.plugins import DeepSpeedPlugin
    from .config.fsdp import FullyShardedDataParallelPlugin
    from .config.handlers import (
        AutocastKwargs,
        DistributedDataParallelKwargs,
        GradientAccumulationPlugin,
        GradScalerKwargs,
        InitProcessGroupKwargs,
        ShapeBuckets,
        TorchDynamoPlugin,
    )
    from .config.parallelism import ParallelismConfig
    from .config.project import ProjectConfiguration
    from .config.settings import DataLoaderConfiguration
    from .data.loader import skip_first_batches
    from .device.empty import init_empty_weights, init_on_device
    from .device.memory import find_executable_batch_size
    from .errors import (
        BatchShapeError,
        CheckpointError,
        CollectiveError,
        CollectiveMismatch,
        DivergenceError,
        MixedUseError,
        NotAvailableYet,
        NotPreparedError,
        RemainderError,
        ShardedTensorError,
        TopologyError,
        TorchliftError,
        UnclearBatchError,
        UnknownTorchError,
        UnknownWordError,
    )
    from .launch.notebook import debug_launcher, notebook_launcher
    from .process.early import EarlyState
    from .process.rng import set_seed
    from .process.state import PartialState
    from .tracking.inert import Inert
    from .tracking.profiling import ProfileKwargs
    from .types import DDPCommunicationHookType, DistributedType, PrecisionType

__all__ = [
    # the facade
    "Accelerator",
    "PartialState",
    "debug_launcher",
    "EarlyState",
    "find_executable_batch_size",
    "Inert",
    "init_empty_weights",
    "init_on_device",
    "load_checkpoint_in_model",
    "notebook_launcher",
    "set_seed",
    "synchronize_rng_states",
    "skip_first_batches",
    # words
    "AutocastKwargs",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "FullyShardedDataParallelPlugin",
    "ParallelismConfig",
    "GradientAccumulationPlugin",
    "GradScalerKwargs",
    "InitProcessGroupKwargs",
    "ShapeBuckets",
    "TorchDynamoPlugin",
    "DDPCommunicationHookType",
    "DistributedType",
    "PrecisionType",
    "ProfileKwargs",
    "ProjectConfiguration",
    # not there yet: they say so when they are used
    "DeepSpeedPlugin",
    # errors
    "TorchliftError",
    "BatchShapeError",
    "CheckpointError",
    "CollectiveError",
    "CollectiveMismatch",
    "DivergenceError",
    "MixedUseError",
    "NotAvailableYet",
    "NotPreparedError",
    "RemainderError",
    "ShardedTensorError",
    "TopologyError",
    "UnclearBatchError",
    "UnknownTorchError",
    "UnknownWordError",
]

_HOME = {
    "Accelerator": ".accelerator.facade",
    "PartialState": ".process.state",
    "set_seed": ".process.rng",
    "DataLoaderConfiguration": ".config.settings",
    "skip_first_batches": ".data.loader",
    "AutocastKwargs": ".config.handlers",
    "DistributedDataParallelKwargs": ".config.handlers",
    "GradientAccumulationPlugin": ".config.handlers",
    "GradScalerKwargs": ".config.handlers",
    "InitProcessGroupKwargs": ".config.handlers",
    "ShapeBuckets": ".config.handlers",
    "TorchDynamoPlugin": ".config.handlers",
    "ProjectConfiguration": ".config.project",
    "debug_launcher": ".launch.notebook",
    "EarlyState": ".process.early",
    "find_executable_batch_size": ".device.memory",
    "Inert": ".tracking.inert",
    "init_empty_weights": ".device.empty",
    "init_on_device": ".device.empty",
    "is_rich_available": ".compat.packages",
    "notebook_launcher": ".launch.notebook",
    "synchronize_rng_states": ".compat.operations",
    "load_checkpoint_in_model": ".checkpoint.weights",
    "DDPCommunicationHookType": ".types",
    "DistributedType": ".types",
    "ProfileKwargs": ".tracking.profiling",
    "DeepSpeedPlugin": ".compat.plugins",
    "FullyShardedDataParallelPlugin": ".config.fsdp",
    "ParallelismConfig": ".config.parallelism",
    "PrecisionType": ".types",
}


def __getattr__(name: str) -> object:
    if name not in __all__ and name not in _HOME:
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .compat.unsupported import absent

        return absent(name)
    try:
        module = import_module(_HOME.get(name, ".errors"), __name__)
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ImportError(
            f'torchlift.runtime.{name} needs PyTorch, which is not installed. Run: pip install "torchlift[runtime]"',
            name="torch",
        ) from missing
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
