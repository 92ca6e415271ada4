"""The only reader of the process environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ConfigError, TopologyError, UnknownWordError
from .places import SOURCES, meeting_point, source_of

_YES = {"1", "true", "yes", "on", "y", "t"}
_NO = {"0", "false", "no", "off", "n", "f", ""}


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What the environment says; None where it says nothing."""

    rank: int | None
    world_size: int | None
    local_rank: int | None
    local_world_size: int | None
    master_addr: str | None
    master_port: int | None
    by_torch: bool
    """The place is described as torch describes it; else by MPI or SLURM."""
    restart: int
    """How often the job has been started again (torchrun counts)."""
    cpu: bool
    mixed_precision: str | None
    tf32: bool | None
    """Products of matrices in fp32 may be rounded; None: as torch does by itself."""
    split_batches: bool | None
    monitor: bool | None
    sanitize: bool | None
    sanitize_folder: str | None
    """Where the launcher wants the records of the sanitizer."""
    gradient_accumulation_steps: int | None
    dynamo_backend: str | None
    dynamo_mode: str | None
    dynamo_fullgraph: bool | None
    dynamo_dynamic: bool | None
    dynamo_regional: bool | None
    device: str | None
    """The device of this process; the one with its number when None."""
    pjrt_device: str | None
    """What torch_xla computes on, as it is written there."""
    fsdp: bool
    """Weights are sharded, as the variables FSDP_* say."""
    parallelism: bool
    """The processes are the mesh of the variables PARALLELISM_CONFIG_*."""


def read_environment(source: Mapping[str, str] | None = None) -> Environment:
    """
    Read every variable that the runtime listens to.

    Args:
        source: the variables; the environment of this process when None.

    Raises:
        TopologyError: a number is not a number.
        UnknownWordError: a switch is neither on nor off.
    """
    env = os.environ if source is None else source
    place = source_of(env)
    address, port = meeting_point(env, place)
    return Environment(
        rank=_number(env, place.rank),
        world_size=_number(env, place.world_size),
        local_rank=_number(env, place.local_rank),
        local_world_size=_per_machine(env, place.local_world_size),
        master_addr=address,
        master_port=_number({"MASTER_PORT": port or ""}, "MASTER_PORT"),
        by_torch=place is SOURCES[0],
        restart=_number(env, "TORCHELASTIC_RESTART_COUNT") or 0,
        cpu=bool(_switch(env, "TORCHLIFT_CPU", "ACCELERATE_USE_CPU")),
        mixed_precision=_word(env, "TORCHLIFT_MIXED_PRECISION", "ACCELERATE_MIXED_PRECISION"),
        tf32=_switch(env, "TORCHLIFT_TF32"),
        split_batches=_switch(env, "TORCHLIFT_SPLIT_BATCHES"),
        monitor=_switch(env, "TORCHLIFT_MONITOR"),
        sanitize=_switch(env, "TORCHLIFT_SANITIZE"),
        sanitize_folder=env.get("TORCHLIFT_SANITIZE_FOLDER") or None,
        gradient_accumulation_steps=_number(
            env, "TORCHLIFT_GRADIENT_ACCUMULATION_STEPS", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
        ),
        dynamo_backend=_word(env, "TORCHLIFT_DYNAMO_BACKEND", "ACCELERATE_DYNAMO_BACKEND"),
        dynamo_mode=_word(env, "TORCHLIFT_DYNAMO_MODE", "ACCELERATE_DYNAMO_MODE"),
        dynamo_fullgraph=_switch(env, "TORCHLIFT_DYNAMO_USE_FULLGRAPH", "ACCELERATE_DYNAMO_USE_FULLGRAPH"),
        dynamo_dynamic=_switch(env, "TORCHLIFT_DYNAMO_USE_DYNAMIC", "ACCELERATE_DYNAMO_USE_DYNAMIC"),
        dynamo_regional=_switch(
            env, "TORCHLIFT_DYNAMO_USE_REGIONAL_COMPILATION", "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION"
        ),
        device=_word(env, "TORCHLIFT_DEVICE", "ACCELERATE_TORCH_DEVICE"),
        pjrt_device=env.get("PJRT_DEVICE") or None,
        fsdp=bool(_switch(env, "TORCHLIFT_USE_FSDP", "ACCELERATE_USE_FSDP")),
        parallelism=bool(_switch(env, "TORCHLIFT_USE_PARALLELISM_CONFIG", "ACCELERATE_USE_PARALLELISM_CONFIG")),
    )


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str] | None:
    for name in names:
        if name in env:
            return name, env[name].strip()
    return None


def _word(env: Mapping[str, str], *names: str) -> str | None:
    found = _first(env, names)
    return (found[1].lower() or None) if found else None


def _number(env: Mapping[str, str], *names: str) -> int | None:
    found = _first(env, names)
    if not found or not found[1]:
        return None
    name, text = found
    try:
        return int(text)
    except ValueError:
        raise TopologyError(f"the environment variable {name} is {text!r}; set it to a whole number") from None


def _per_machine(env: Mapping[str, str], name: str) -> int | None:
    """Processes on a machine; SLURM writes `4(x2)` for two machines with four each."""
    text = env.get(name, "")
    return _number({name: text.partition("(")[0].partition(",")[0]}, name)


def _switch(env: Mapping[str, str], *names: str) -> bool | None:
    found = _first(env, names)
    if not found:
        return None
    name, text = found
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise UnknownWordError(f"the environment variable {name}", text, ["1", "0"])


def foreign(*names: str) -> dict[str, str]:
    """Variables that belong to other packages: those of `names` that are set."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


class Variables:
    """
    The variables of one plugin, which begin with the same letters; None where one is not set, or empty.

    Args:
        prefix: these letters.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def word(self, name: str) -> str | None:
        """A variable as it is."""
        return os.environ.get(self._prefix + name, "").strip() or None

    def switch(self, name: str) -> bool | None:
        """
        A variable as on or off.

        Raises:
            UnknownWordError: neither.
        """
        return _switch(os.environ, self._prefix + name) if self.word(name) else None

    def number(self, name: str) -> int | None:
        """
        A variable as a whole number.

        Raises:
            ConfigError: none.
        """
        text = self.word(name)
        try:
            return None if text is None else int(text)
        except ValueError:
            raise ConfigError(
                f"the environment variable {self._prefix}{name} is {text!r}; set it to a whole number."
            ) from None
