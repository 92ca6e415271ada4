"""The words of FSDP's settings, of both its versions, and what they mean for version 2. Needs no torch."""

from __future__ import annotations

from typing import Any

from ..errors import NotAvailableYet, UnknownWordError

FSDP_MODEL_NAME = "pytorch_model_fsdp"
"""Of the folder of sharded weights in a checkpoint of Accelerate, and, before a number, of the file of full ones."""
FSDP_SHARDING_STRATEGY = ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"]
"""Of version 1, in the order of their numbers."""
FSDP_AUTO_WRAP_POLICY = ["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"]
FSDP_BACKWARD_PREFETCH = ["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"]
FSDP2_STATE_DICT_TYPE = ["SHARDED_STATE_DICT", "FULL_STATE_DICT"]
FSDP_STATE_DICT_TYPE = ["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"]
"""Of version 1, in the order of their numbers."""

_RESHARDS = {"FULL_SHARD": True, "SHARD_GRAD_OP": False}
_YES = frozenset({"y", "yes", "t", "true", "on", "1"})
_NO = frozenset({"n", "no", "f", "false", "off", "0"})


def switch(name: str, value: Any) -> bool:
    """
    A setting as on or off.

    Raises:
        UnknownWordError: neither.
    """
    word = str(value).strip().lower()
    if word not in _YES | _NO:
        raise UnknownWordError(name, value, ["true", "false"])
    return word in _YES


def word_of(value: Any, words: list[str]) -> str:
    """The word of a member of one of torch's enumerations, or of its number; else the value as it is."""
    text = str(getattr(value, "name", value)).lstrip("_").upper()
    if text.isdigit() and 1 <= int(text) <= len(words):
        return words[int(text) - 1]
    return text


def keeps_no_copy(name: str, value: Any) -> bool:
    """
    Whether a unit gives up its gathered weights after the forward pass.

    Args:
        name: of the setting: sharding_strategy of version 1, or reshard_after_forward.
        value: its value.

    Raises:
        NotAvailableYet: a strategy of version 1 that is no setting of version 2.
        UnknownWordError: no such word.
    """
    of_first = name == "sharding_strategy"
    if isinstance(value, bool) or (not of_first and str(value).lower() in _YES | _NO):
        return switch(name, value)
    word = word_of(value, FSDP_SHARDING_STRATEGY) if of_first or not isinstance(value, int) else str(value)
    if word == "NO_SHARD":
        raise NotAvailableYet(
            f"{name}: NO_SHARD", "It keeps all weights on every process, which is what a job without FSDP does."
        )
    if word in FSDP_SHARDING_STRATEGY and word not in _RESHARDS:
        raise NotAvailableYet(
            f"{name}: {word}",
            "Replicas of shards are a mesh: use ParallelismConfig(dp_replicate_size=<machines>, "
            "dp_shard_size=<processes of one>), and reshard_after_forward.",
        )
    if word not in _RESHARDS:
        raise UnknownWordError(name, value, [*(() if of_first else ("true", "false")), *_RESHARDS])
    return _RESHARDS[word]
