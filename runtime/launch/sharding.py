"""What the command line says about sharded weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from ..config.cluster import ClusterConfig
from ..config.sharding_keys import FSDP, KEYS, MESH, checked, variables
from ..errors import LaunchError

F = TypeVar("F", bound=Callable[..., Any])


def sharding_options(function: F) -> F:
    """Decorate a command with `--use-fsdp`, `--fsdp-...`, `--use-parallelism-config` and `--parallelism-config-...`."""
    for key in reversed(KEYS):
        function = click.option(key.option, help=key.about)(function)
    mesh = "Arrange the processes as replicas of shards (--parallelism-config-...)."
    function = click.option("--use-parallelism-config", is_flag=True, default=None, help=mesh)(function)
    sharded = "Shard weights, gradients and optimizer states over the processes (FSDP 2)."
    return click.option("--use-fsdp", is_flag=True, default=None, help=sharded)(function)


def taken_out(given: dict[str, Any]) -> dict[str, str]:
    """Take the settings that were given out of the arguments of a command."""
    found = {key.name: given.pop(key.name) for key in KEYS}
    return {name: value for name, value in found.items() if value is not None}


def environment_of(
    use_fsdp: bool | None,
    use_mesh: bool | None,
    settings: Mapping[str, str],
    config: ClusterConfig,
    num_processes: int,
) -> dict[str, str]:
    """
    What the processes of a job are told; nothing where weights are not sharded. Options win over the file.

    Raises:
        LaunchError: settings without what switches them on.
        ConfigError, UnknownWordError, NotAvailableYet: a value that cannot be.
    """
    said = {block: {k: v for k, v in settings.items() if k.startswith(block)} for block in (FSDP, MESH)}
    blocks = (
        (FSDP, "--use-fsdp", use_fsdp or config.shards, config.fsdp_config, "ACCELERATE_USE_FSDP"),
        (MESH, "--use-parallelism-config", use_mesh or config.parallelism_config, config.parallelism_config,
         "ACCELERATE_USE_PARALLELISM_CONFIG"),
    )  # fmt: skip
    found: dict[str, str] = {}
    for block, option, on, of_file, switch in blocks:
        if said[block] and not on:
            name = next(iter(said[block]))
            raise LaunchError(f"--{name.replace('_', '-')} has no effect without {option}. Add that option.")
        if on:
            words = {**(of_file or {}), **checked(said[block], block, "the command line")}
            found |= {switch: "true", **variables(words, num_processes)}
    return found
