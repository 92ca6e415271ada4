"""What `torchlift config` does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ..config.cluster import PRECISIONS, ClusterConfig, default_path, write_config


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


def basic(path: Path, mixed_precision: str) -> Iterator[str]:
    """Write what fits this machine: a process for every accelerator, or one on the CPU."""
    if path.exists():
        yield f"{path} already exists and was not changed. Run `torchlift config` to change it."
        return
    import torch

    count = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    config = ClusterConfig(num_processes=max(1, count), mixed_precision=mixed_precision, use_cpu=count == 0)
    write_config(config, path)
    yield f"written to {path}"


def write_basic_config(mixed_precision: str = "no", save_location: str | os.PathLike[str] | None = None) -> Path | bool:
    """
    Write a file for this machine without questions, from a script or a notebook.

    Args:
        mixed_precision: "no", "bf16" or "fp16".
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
