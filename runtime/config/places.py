"""Who says which process this is: torchrun and our launcher, MPI, or SLURM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LauncherVariables:
    """The variables of one way of starting processes. Names are read in their order."""

    rank: str
    world_size: str
    local_rank: str
    local_world_size: str


SOURCES = (
    LauncherVariables("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    LauncherVariables(
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
    ),
    LauncherVariables("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    LauncherVariables(
        "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"
    ),
    # a batch script itself has SLURM_NTASKS, too, but is one process: only steps of srun have these
    LauncherVariables("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)
_PORT = 29500
_PORTS = 5000


def source_of(env: Mapping[str, str]) -> LauncherVariables:
    """Whoever says how many processes there are; the first one that does."""
    return next((source for source in SOURCES if env.get(source.world_size)), SOURCES[0])


def meeting_point(env: Mapping[str, str], source: LauncherVariables) -> tuple[str | None, str | None]:
    """
    Address and port of the main process, where the environment lets them be told.

    MASTER_ADDR and MASTER_PORT win. SLURM names its machines and its job. MPI processes of one machine meet there.
    """
    address, port = env.get("MASTER_ADDR") or None, env.get("MASTER_PORT") or None
    if source is SOURCES[0]:
        return address, port
    if source.rank == "SLURM_PROCID":
        job = env.get("SLURM_JOB_ID", "0")
        nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or ""
        return address or first_host(nodes), port or str(_PORT + int(job if job.isdigit() else 0) % _PORTS)
    here = env.get(source.local_world_size) == env.get(source.world_size)
    return address or ("127.0.0.1" if here else None), port or str(_PORT)


def first_host(nodes: str) -> str | None:
    """The first machine of a list in SLURM's notation: `gpu[003-005,9],login` gives `gpu003`."""
    found = re.match(r"([^\[,]+)(?:\[([^\]]+)\])?([^,]*)", nodes.strip())
    if not found:
        return None
    prefix, numbers, suffix = found.groups()
    return f"{prefix}{re.split('[-,]', numbers)[0]}{suffix}" if numbers else prefix
