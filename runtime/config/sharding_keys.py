"""
The keys that ask for sharded weights: of a configuration file, of the command line, and as variables of a process.

They are Accelerate's. A file has them in `fsdp_config` and `parallelism_config`, the command line as
`--fsdp-version 2`, and a process as FSDP_VERSION.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ..errors import ConfigError, NotAvailableYet, UnknownWordError
from .fsdp_words import (
    FSDP2_STATE_DICT_TYPE,
    FSDP_AUTO_WRAP_POLICY,
    FSDP_BACKWARD_PREFETCH,
    FSDP_STATE_DICT_TYPE,
    keeps_no_copy,
    switch,
    word_of,
)

FSDP = "fsdp_"
MESH = "parallelism_config_"


@dataclass(frozen=True)
class Key:
    """One setting."""

    name: str
    """As a file has it."""
    variable: str
    """As a process reads it."""
    read: Callable[[str, Any], str]
    """Checks a value, and gives the word for the variable."""
    about: str
    """For `--help`."""

    @property
    def option(self) -> str:
        """As the command line has it."""
        return "--" + self.name.replace("_", "-")


def _switched(name: str, value: Any) -> str:
    return str(switch(name, value)).lower()


def _reshards(name: str, value: Any) -> str:
    return str(keeps_no_copy(name, value)).lower()


def _strategy(name: str, value: Any) -> str:
    return "FULL_SHARD" if keeps_no_copy(name.removeprefix(FSDP), value) else "SHARD_GRAD_OP"


def _version(name: str, value: Any) -> str:
    if str(value) not in ("1", "2"):
        raise UnknownWordError(name, value, ["1", "2"])
    return str(value)


def _one_of(words: list[str]) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        word = word_of(value, words)
        if word not in words:
            raise UnknownWordError(name, value, words)
        return word

    return read


def _state_dict(name: str, value: Any) -> str:
    word = word_of(value, FSDP_STATE_DICT_TYPE)
    if word not in FSDP2_STATE_DICT_TYPE:
        raise UnknownWordError(name, value, FSDP2_STATE_DICT_TYPE)
    return word


def _number(least: int) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        try:
            number = float(str(value))  # YAML takes 1e8 for a text
        except ValueError:
            number = -1.0
        if number < least or not number.is_integer():
            raise ConfigError(f"{name} is {value!r}; it must be a whole number from {least} on.")
        return str(int(number))

    return read


def _text(name: str, value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _never(name: str, value: Any) -> str:
    if switch(name, value):
        raise NotAvailableYet(f"{name}: {value}", "Leave it out.")
    return "false"


def _just_one(name: str, value: Any) -> str:
    if _number(1)(name, value) != "1":
        raise NotAvailableYet(f"{name}: {value}", "Set it to 1; weights are sharded by dp_shard_size.")
    return "1"


_OLD = "Of FSDP 1; accepted, without effect."
KEYS = (
    Key("fsdp_version", "FSDP_VERSION", _version, "Which version's words are used; version 2 runs.  [default: 2]"),
    Key("fsdp_reshard_after_forward", "FSDP_RESHARD_AFTER_FORWARD", _reshards,
        "true: give up gathered weights after the forward pass; false: keep them until backward.  [default: true]"),
    Key("fsdp_sharding_strategy", "FSDP_SHARDING_STRATEGY", _strategy, "Of FSDP 1: FULL_SHARD or SHARD_GRAD_OP."),
    Key("fsdp_auto_wrap_policy", "FSDP_AUTO_WRAP_POLICY", _one_of(FSDP_AUTO_WRAP_POLICY),
        "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP: which modules are gathered by themselves."),
    Key("fsdp_transformer_layer_cls_to_wrap", "FSDP_TRANSFORMER_CLS_TO_WRAP", _text,
        "With TRANSFORMER_BASED_WRAP: the classes of these modules, separated by commas."),
    Key("fsdp_min_num_params", "FSDP_MIN_NUM_PARAMS", _number(0),
        "With SIZE_BASED_WRAP: how many parameters such a module has at least."),
    Key("fsdp_offload_params", "FSDP_OFFLOAD_PARAMS", _switched,
        "true: keep shards and optimizer states in the memory of the CPU.  [default: false]"),
    Key("fsdp_state_dict_type", "FSDP_STATE_DICT_TYPE", _state_dict,
        "SHARDED_STATE_DICT or FULL_STATE_DICT: how save_state writes weights."),
    Key("fsdp_activation_checkpointing", "FSDP_ACTIVATION_CHECKPOINTING", _switched,
        "true: compute activations again in the backward pass.  [default: false]"),
    Key("fsdp_cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING", _switched,
        "true: process 0 alone reads the weights of a model of transformers.  [default: false]"),
    Key("fsdp_ignored_modules", "FSDP_IGNORED_MODULES", _text,
        "A regular expression for the names of modules that stay whole on every process."),
    Key("fsdp_backward_prefetch", "FSDP_BACKWARD_PREFETCH", _one_of(FSDP_BACKWARD_PREFETCH), _OLD),
    Key("fsdp_forward_prefetch", "FSDP_FORWARD_PREFETCH", _never, "Of FSDP 1; only false is accepted."),
    Key("fsdp_use_orig_params", "FSDP_USE_ORIG_PARAMS", _switched, _OLD),
    Key("fsdp_sync_module_states", "FSDP_SYNC_MODULE_STATES", _switched, _OLD),
    Key("parallelism_config_dp_replicate_size", "PARALLELISM_CONFIG_DP_REPLICATE_SIZE", _number(1),
        "How many replicas of the model there are.  [default: 1]"),
    Key("parallelism_config_dp_shard_size", "PARALLELISM_CONFIG_DP_SHARD_SIZE", _number(1),
        "Among how many processes a replica is sharded.  [default: 1]"),
    *(Key(f"parallelism_config_{axis}_size", f"PARALLELISM_CONFIG_{axis.upper()}_SIZE", _just_one,
          "Not supported yet; only 1 is accepted.") for axis in ("tp", "cp", "sp")),
    *(Key(f"parallelism_config_{name}", f"PARALLELISM_CONFIG_{name.upper()}", _text, "Accepted, without effect.")
      for name in ("cp_backend", "cp_comm_strategy", "sp_backend", "sp_seq_length", "sp_seq_length_is_variable",
                   "sp_attn_implementation")),
)  # fmt: skip
"""In the order of `--help`."""
_BY_NAME = {key.name: key for key in KEYS}


def checked(found: Mapping[str, Any], block: str, where: str) -> dict[str, str]:
    """
    A block of a file: the names of its keys, and their values as words.

    Args:
        found: the block; keys may lack its beginning, as in Accelerate.
        block: "fsdp_" or "parallelism_config_".
        where: the block's name and the file's, for messages.

    Raises:
        ConfigError: unknown keys, or values that mean nothing.
        NotAvailableYet: a value asks for what is not supported.
    """
    full = {name if name.startswith(block) else block + name: value for name, value in found.items()}
    unknown = sorted(set(full) - set(_BY_NAME))
    if unknown:
        known = ", ".join(name for name in _BY_NAME if name.startswith(block))
        raise ConfigError(f"{where} has unknown keys ({unknown}). Remove them; known keys are: {known}.")
    return {name: _BY_NAME[name].read(name, value) for name, value in full.items() if value is not None}


def variables(settings: Mapping[str, str], num_processes: int) -> dict[str, str]:
    """
    What the processes of a job are started with.

    Args:
        settings: keys and words, of both blocks.
        num_processes: of the whole job.

    Raises:
        ConfigError: the mesh has another number of processes.
    """
    mesh = {name.removeprefix(MESH): word for name, word in settings.items() if name.startswith(MESH)}
    sizes = {name: int(word) for name, word in mesh.items() if name.endswith("_size")}
    if prod(sizes.values()) not in (1, num_processes):
        given = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise ConfigError(
            f"the mesh has {prod(sizes.values())} processes ({given}), but the job has {num_processes}. Make the "
            "product of its sizes the number of processes."
        )
    return {_BY_NAME[name].variable: word for name, word in settings.items()}
