"""What `torchlift env` says."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .options import config_of

_PACKAGES = ("torchlift", "torch", "numpy", "safetensors")
_VARIABLES = ("TORCHLIFT_", "ACCELERATE_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "CUDA_VISIBLE", "OMP_NUM")


def show(config_file: str | None, environment: Mapping[str, str]) -> Iterator[str]:
    """One line for each fact."""
    for name in _PACKAGES:
        yield f"- {name}: {_version(name)}"
    yield f"- Python: {platform.python_version()} ({sys.executable})"
    yield f"- Platform: {platform.platform()}"
    yield f"- Cores: {os.cpu_count()}"
    yield f"- Memory: {_memory()}"
    yield from _torch()
    set_here = {name: environment[name] for name in sorted(environment) if name.startswith(_VARIABLES)}
    yield "- Variables: " + (", ".join(f"{name}={value}" for name, value in set_here.items()) or "none")
    settings = config_of(config_file, environment).to_dict()
    yield "- Configuration: " + ", ".join(f"{name}={value}" for name, value in settings.items())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _memory() -> str:
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return "not known"
    return f"{int(meminfo.read_text().split()[1]) / 2**20:.1f} GiB"


def _torch() -> Iterator[str]:
    try:
        import torch
    except ModuleNotFoundError:
        return
    from ..device.kinds import current

    yield f"- Accelerator: {current().about()}"
    found = [name for name in ("gloo", "nccl", "mpi", "ucc") if torch.distributed.is_backend_available(name)]
    yield "- Back ends: " + ", ".join(found)
