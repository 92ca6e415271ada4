"""What `torchlift config` does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ..config.cluster import PRECISIONS, ClusterConfig, default_path, write_config
from ..config.sharding_keys import FSDP, MESH, checked
from ..errors import ConfigError


def place(named: str | None, environment: Mapping[str, str]) -> Path:
    """Where the file goes."""
    return Path(named) if named is not None else default_path(environment)


def ask(path: Path) -> Iterator[str]:
    """Ask, and write."""
    machines = click.prompt("How many machines?", type=click.IntRange(min=1), default=1)
    more: dict[str, Any] = {}
    if machines > 1:
        more["machine_rank"] = click.prompt(
            "What is the number of this machine?", type=click.IntRange(0, machines - 1), default=0
        )
        more["main_process_ip"] = click.prompt("What is the address of machine 0?", type=str)
        more["main_process_port"] = click.prompt(
            "Which port does it use?", type=click.IntRange(1, 65535), default=29500
        )
    cpu = click.confirm("Stay on the CPU, even if there is an accelerator?", default=False)
    processes = click.prompt(
        "How many processes, on all machines?", type=click.IntRange(min=machines), default=machines
    )
    precision = click.prompt("Which precision do forward passes use?", type=click.Choice(PRECISIONS), default="no")
    split = click.confirm(
        "Keep the global batch size: split every batch of the script over the processes?", default=False
    )
    if processes > 1:
        more |= _sharding(processes)
    config = ClusterConfig(
        num_processes=processes,
        num_machines=machines,
        mixed_precision=precision,
        use_cpu=cpu,
        split_batches=split,
        **more,
    )
    write_config(config, path)
    yield f"written to {path}"


def _sharding(processes: int) -> dict[str, Any]:
    """Ask how weights are sharded."""
    if not click.confirm("Shard the weights of models over the processes (FSDP)?", default=False):
        return {}
    found: dict[str, Any] = {"fsdp_version": 2}
    found["fsdp_reshard_after_forward"] = click.confirm(
        "Give up gathered weights between forward and backward, which saves memory?", default=True
    )
    chosen = click.prompt(
        "Which modules are gathered by themselves? Those that the model names, some classes, large ones, none?",
        type=click.Choice(list(_WRAPPED)),
        default="model",
    )
    found |= {} if _WRAPPED[chosen] is None else {"fsdp_auto_wrap_policy": _WRAPPED[chosen]}
    if chosen == "classes":
        found["fsdp_transformer_layer_cls_to_wrap"] = click.prompt("Which classes, separated by commas?", type=str)
    if chosen == "size":
        found["fsdp_min_num_params"] = click.prompt(
            "How many parameters does such a module have at least?", type=click.IntRange(min=1), default=100_000_000
        )
    found["fsdp_offload_params"] = click.confirm("Keep shards in the memory of the CPU?", default=False)
    found["fsdp_activation_checkpointing"] = click.confirm(
        "Compute activations again in the backward pass, which saves memory?", default=False
    )
    replicas = click.prompt("How many replicas of the model?", type=click.IntRange(1, processes), default=1)
    if processes % replicas:
        raise ConfigError(f"{replicas} replicas do not divide {processes} processes evenly.")
    mesh = {f"{MESH}dp_replicate_size": replicas, f"{MESH}dp_shard_size": processes // replicas}
    return {
        "distributed_type": "FSDP",
        "fsdp_config": checked(found, FSDP, "fsdp_config"),
        "parallelism_config": checked(mesh, MESH, "parallelism_config") if replicas > 1 else None,
    }


_WRAPPED = {
    "model": None,
    "classes": "TRANSFORMER_BASED_WRAP",
    "size": "SIZE_BASED_WRAP",
    "none": "NO_WRAP",
}


def basic(path: Path, mixed_precision: str) -> Iterator[str]:
    """Write what fits this machine: a process for every accelerator, or one on the CPU."""
    if path.exists():
        yield f"{path} already exists and was not changed. Run `torchlift config` to change it."
        return
    from ..device.kinds import current

    count = current().count()
    config = ClusterConfig(num_processes=max(1, count), mixed_precision=mixed_precision, use_cpu=count == 0)
    write_config(config, path)
    yield f"written to {path}"


def write_basic_config(mixed_precision: str = "no", save_location: str | os.PathLike[str] | None = None) -> Path | bool:
    """
    Write a file for this machine without questions, from a script or a notebook.

    Args:
        mixed_precision: "no", "bf16", "fp16", "fp8" or "int8".
        save_location: the file; the place that `torchlift launch` reads when None.

    Returns:
        The file; False when there is one already, which stays as it is.
    """
    from ..config.environment import foreign

    path = place(None if save_location is None else str(save_location), foreign("XDG_CACHE_HOME"))
    if path.exists():
        return False
    for _ in basic(path, mixed_precision):
        pass
    return path
