"""
The file that `torchlift config` writes and `torchlift launch` reads.

Its keys are those of Accelerate's files, as far as they mean something here. A key that is not known is an error, and
so is one that asks for what is not there: nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import ConfigError, NotAvailableYet, UnknownWordError
from .sharding_keys import FSDP, MESH, checked

PRECISIONS = ["no", "bf16", "fp16", "fp8", "int8"]
DYNAMO_MODES = ["default", "reduce-overhead", "max-autotune"]
_KINDS = (
    *("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_XPU", "MULTI_NPU", "MULTI_MLU", "MULTI_MUSA", "MULTI_HPU", "FSDP"),
    *("XLA", "TPU"),
)
_LATER = {
    "deepspeed_config": "DeepSpeed",
    "megatron_lm_config": "Megatron-LM",
    "mpirun_config": "starting with mpirun",
    "enable_cpu_affinity": "binding processes to cores",
}
"""Keys that may be in a file as long as they ask for nothing."""
_WITHOUT_EFFECT = (
    *("main_training_function", "same_network", "rdzv_backend", "downcast_bf16", "debug"),
    # of TPU pods: they mean nothing for other jobs, and several machines are refused
    *("tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "tpu_vm", "tpu_env", "command_file", "commands"),
)

_FP8_KEYS = ("backend", "pad_inner_dim", "enable_fsdp_float8_all_gather")
_DYNAMO = {
    "dynamo_backend",
    "dynamo_mode",
    "dynamo_use_fullgraph",
    "dynamo_use_dynamic",
    "dynamo_use_regional_compilation",
}


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """What a file says; None where it says nothing."""

    compute_environment: str = "LOCAL_MACHINE"
    """Where the processes run; no other word is known."""
    distributed_type: str | None = None
    """What kind of job it is; "NO" means one process."""
    num_processes: int | None = None
    """Of the whole job."""
    num_machines: int = 1
    machine_rank: int = 0
    """The number of this machine, from 0."""
    main_process_ip: str | None = None
    """Where machine 0 is reached."""
    main_process_port: int | None = None
    gpu_ids: str | None = None
    """Numbers of the GPUs to use, with commas between; "all" for all."""
    mixed_precision: str | None = None
    use_cpu: bool = False
    """Stay on the CPU."""
    split_batches: bool = False
    """Keep the global batch: share every batch of the script."""
    gradient_accumulation_steps: int | None = None
    dynamo_backend: str | None = None
    """The back end that models are compiled with."""
    dynamo_mode: str | None = None
    dynamo_use_fullgraph: bool | None = None
    dynamo_use_dynamic: bool | None = None
    dynamo_use_regional_compilation: bool | None = None
    fsdp_config: Mapping[str, str] | None = None
    """How weights are sharded: keys and words."""
    fp8_config: Mapping[str, str] | None = None
    """How layers multiply in fp8: `backend: AO`, and settings of torchao."""
    parallelism_config: Mapping[str, str] | None = None
    """How many replicas of how many shards: keys and words."""

    def __post_init__(self) -> None:
        _check_place(self.compute_environment)
        if self.mixed_precision not in (None, *PRECISIONS):
            raise UnknownWordError("mixed_precision", self.mixed_precision, PRECISIONS)
        if self.dynamo_mode not in (None, *DYNAMO_MODES):
            raise UnknownWordError("dynamo_mode", self.dynamo_mode, DYNAMO_MODES)
        if self.distributed_type in ("DEEPSPEED", "MEGATRON_LM"):
            raise NotAvailableYet(f"distributed_type: {self.distributed_type}", "Use MULTI_GPU or MULTI_CPU.")
        if self.distributed_type not in (None, *_KINDS):
            raise UnknownWordError("distributed_type", self.distributed_type, list(_KINDS))
        if self.distributed_type == "NO" and (self.num_processes or 1) > 1:
            raise ConfigError(f"distributed_type: NO means one process, but num_processes is {self.num_processes}.")
        for name, least in (("num_processes", 1), ("num_machines", 1), ("machine_rank", 0)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ConfigError(f"{name} is {value!r}; it must be a whole number from {least} on.")

        if self.fsdp_config and not self.shards:
            raise ConfigError(
                f"fsdp_config has no effect with distributed_type: {self.distributed_type}. Set "
                "distributed_type: FSDP, or remove fsdp_config."
            )

    @property
    def by_xla(self) -> bool:
        """One process drives all devices, by torch_xla; `num_processes` counts these in files of Accelerate."""
        return self.distributed_type in ("XLA", "TPU")

    @property
    def shards(self) -> bool:
        """Weights are sharded."""
        return self.distributed_type == "FSDP" or (self.distributed_type is None and bool(self.fsdp_config))

    def to_dict(self) -> dict[str, Any]:
        """What differs from saying nothing."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def _check_place(word: object) -> None:
    if word != "LOCAL_MACHINE":
        raise NotAvailableYet(f"compute_environment: {word}", "Use LOCAL_MACHINE.")


def fp8_words(given: Mapping[str, Any], where: str) -> dict[str, str]:
    """
    Settings of fp8, checked, as words for the environment.

    Args:
        given: the settings.
        where: they come from, for the message.

    Raises:
        NotAvailableYet: they are those of Transformer Engine or MS-AMP.
    """
    foreign = [key for key in given if key not in _FP8_KEYS]
    backend = str(given.get("backend") or "AO").upper()
    if foreign or backend != "AO":
        raise NotAvailableYet(
            f"{foreign[0] if backend == 'AO' else f'backend {backend}'} of {where}",
            'Set the backend to AO: it computes in fp8 by torchao (pip install "torchlift[fp8]").',
        )
    return {key: str(value) for key, value in given.items() if value is not None}


def from_mapping(found: Mapping[str, Any], where: str) -> ClusterConfig:
    """
    Check the contents of a file.

    Raises:
        ConfigError: unknown keys, or values of another kind.
        NotAvailableYet: a key asks for what is not there.
    """
    _check_place(found.get("compute_environment", "LOCAL_MACHINE"))
    known = {one.name for one in fields(ClusterConfig)}
    given = {key: value for key, value in found.items() if key not in _WITHOUT_EFFECT}
    dynamo = given.pop("dynamo_config", None) or {}
    given.update((key, value) for key, value in dynamo.items() if key in _DYNAMO)
    unknown = sorted(set(given) - known - set(_LATER))
    unknown += sorted(f"dynamo_config.{key}" for key in set(dynamo) - _DYNAMO)
    if unknown:
        raise ConfigError(
            f"The config file at {where} had unknown keys ({unknown}). Remove them; known keys are: "
            f"{', '.join(sorted(known))}."
        )
    for key, ability in _LATER.items():
        if given.pop(key, None) not in (None, False, "", [], {}, "no"):
            raise NotAvailableYet(f"{ability} ({key} in {where})", "Remove the key.")
    for block, begin in (("fsdp_config", FSDP), ("parallelism_config", MESH)):
        given[block] = checked(given.get(block) or {}, begin, f"{block} in {where}") or None
    given["fp8_config"] = fp8_words(given.get("fp8_config") or {}, f"fp8_config in {where}") or None
    if isinstance(given.get("mixed_precision"), bool):  # YAML takes a bare `no` for False
        given["mixed_precision"] = "no" if given["mixed_precision"] is False else "yes"
    if isinstance(given.get("distributed_type"), bool):
        given["distributed_type"] = "NO"
    if given.get("gpu_ids") is not None:
        given["gpu_ids"] = str(given["gpu_ids"])
    return ClusterConfig(**given)


def read_config(path: Path) -> ClusterConfig:
    """
    Read a file of YAML (or JSON, which is YAML).

    Raises:
        ConfigError: there is none, or it cannot be understood.
    """
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"the config file {path} cannot be read: {error.strerror}. Run `torchlift config`."
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"the config file {path} is not valid YAML: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"the config file {path} holds no keys.")
    return from_mapping(found, str(path))


def write_config(config: ClusterConfig, path: Path) -> None:
    """Write a file; its folder is made if need be."""
    import yaml

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config.to_dict(), sort_keys=True), encoding="utf-8")


def default_path(environment: Mapping[str, str]) -> Path:
    """Where the file is when none is named: in the cache folder of the user."""
    cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "torchlift" / "default_config.yaml"
