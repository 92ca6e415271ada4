"""The objects of torch that settings of FSDP amount to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch

from ..device.kinds import current
from ..errors import ConfigError, NotAvailableYet, UnknownWordError, WrongKindError
from .fsdp_words import FSDP2_STATE_DICT_TYPE, FSDP_STATE_DICT_TYPE, switch, word_of

if TYPE_CHECKING:
    from torch.distributed.fsdp import MixedPrecisionPolicy, OffloadPolicy


def offload(asked: Any) -> OffloadPolicy:
    """
    Torch's object for what `cpu_offload` says.

    Raises:
        WrongKindError: it is no switch and no object of torch.
    """
    from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy, OffloadPolicy

    if isinstance(asked, OffloadPolicy):
        return asked
    if isinstance(asked, CPUOffload):
        asked = asked.offload_params
    if not isinstance(asked, (bool, str)):
        raise WrongKindError(
            f"cpu_offload was given a {type(asked).__name__}; it takes True, False or torch's CPUOffloadPolicy(...)."
        )
    if not switch("cpu_offload", asked):
        return OffloadPolicy()
    return CPUOffloadPolicy(pin_memory=current().pins())  # pinning needs a device to pin for


_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "no": torch.float32}
_KEYS = ("param_dtype", "reduce_dtype", "output_dtype", "cast_forward_inputs")


def precision_policy(asked: Any) -> MixedPrecisionPolicy:
    """
    Torch's object for what `mixed_precision_policy` says.

    Gradients are added in fp32, and forward passes give fp32, unless other types are given.

    Raises:
        UnknownWordError, ConfigError, WrongKindError: it means nothing.
        NotAvailableYet: only version 1 of FSDP can do that.
    """
    from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy

    if isinstance(asked, MixedPrecisionPolicy):
        return _that_adds(asked)
    if isinstance(asked, MixedPrecision):
        return MixedPrecisionPolicy(**_of_first_version(asked))
    if isinstance(asked, Mapping):
        return MixedPrecisionPolicy(**_checked(asked))
    if isinstance(asked, str):
        if asked == "fp8":
            raise NotAvailableYet('mixed_precision_policy="fp8"', 'Use "bf16".')
        if asked not in _TYPES:
            raise UnknownWordError("mixed_precision_policy", asked, list(_TYPES))
        asked = _TYPES[asked]
    if not isinstance(asked, torch.dtype):
        raise WrongKindError(
            f"mixed_precision_policy was given a {type(asked).__name__}; it takes a word such as 'bf16', a dict, "
            "or torch's MixedPrecisionPolicy(...)."
        )
    if asked not in _TYPES.values():
        raise UnknownWordError("mixed_precision_policy", asked, [str(one) for one in dict.fromkeys(_TYPES.values())])
    return MixedPrecisionPolicy(param_dtype=asked, **_full())


def _that_adds(policy: MixedPrecisionPolicy) -> MixedPrecisionPolicy:
    kind = policy.reduce_dtype
    if kind is not None and not (kind.is_floating_point and kind.itemsize > 1):
        raise ConfigError(
            f"mixed_precision_policy has reduce_dtype={kind}: gradients cannot be added in it. Use torch.float32, or "
            "torch.bfloat16."
        )
    return policy


def _full() -> dict[str, Any]:
    return {"reduce_dtype": torch.float32, "output_dtype": torch.float32}


def _checked(asked: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(asked) - set(_KEYS))
    if unknown:
        more = " Buffers keep their type in FSDP 2." if "buffer_dtype" in unknown else ""
        raise ConfigError(
            f"mixed_precision_policy has the unknown keys {', '.join(unknown)}; known are {', '.join(_KEYS)}.{more}"
        )
    named = {key: _TYPES.get(value, value) if isinstance(value, str) else value for key, value in asked.items()}
    wrong = [key for key in _KEYS[:3] if named.get(key) not in (None, *_TYPES.values())]
    if wrong:
        raise ConfigError(
            f"mixed_precision_policy has {wrong[0]}={asked[wrong[0]]!r}; it must be torch.bfloat16, torch.float16 or "
            "torch.float32."
        )
    return {**_full(), **named}


def _of_first_version(asked: Any) -> dict[str, Any]:
    plain, taken = type(asked)(), ("param_dtype", "reduce_dtype", "buffer_dtype", "cast_root_forward_inputs")
    for one in fields(asked):
        if one.name not in taken and getattr(asked, one.name) != getattr(plain, one.name):
            raise NotAvailableYet(f"{one.name} of torch's MixedPrecision", "Use torch's MixedPrecisionPolicy(...).")
    if asked.buffer_dtype not in (None, asked.param_dtype):
        raise NotAvailableYet("buffer_dtype of torch's MixedPrecision", "Leave it out: buffers keep their type.")
    reduced = {"reduce_dtype": asked.reduce_dtype} if asked.reduce_dtype else {}
    return {**_full(), "param_dtype": asked.param_dtype, **reduced}


def state_dict_configs(word: Any, full: bool) -> tuple[Any, Any, Any]:
    """
    Torch's type of a state dict, and its settings for weights and for optimizers.

    Args:
        word: a word, a member of torch's enumeration or its number; None for the default.
        full: the default is the full one.

    Raises:
        ConfigError: the local one.
        UnknownWordError: no such word.
    """
    from torch.distributed.fsdp import (
        FullOptimStateDictConfig,
        FullStateDictConfig,
        ShardedOptimStateDictConfig,
        ShardedStateDictConfig,
        StateDictType,
    )

    name = FSDP2_STATE_DICT_TYPE[1 if full else 0] if word is None else word_of(word, FSDP_STATE_DICT_TYPE)
    if name == "LOCAL_STATE_DICT":
        raise ConfigError("FSDP 2 has no state_dict_type LOCAL_STATE_DICT. Use SHARDED_STATE_DICT or FULL_STATE_DICT.")
    if name not in FSDP2_STATE_DICT_TYPE:
        raise UnknownWordError("state_dict_type", word, FSDP2_STATE_DICT_TYPE)
    if name == "FULL_STATE_DICT":
        once = {"offload_to_cpu": True, "rank0_only": True}
        return StateDictType[name], FullStateDictConfig(**once), FullOptimStateDictConfig(**once)
    return (
        StateDictType[name],
        ShardedStateDictConfig(offload_to_cpu=True),
        ShardedOptimStateDictConfig(offload_to_cpu=True),
    )
