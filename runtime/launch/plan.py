"""What to start: a pure description of the processes of a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import LaunchError

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "ASCEND_RT_VISIBLE_DEVICES")
"""What devices a process sees: the driver of each kind reads its own."""
_SANITIZER = "torchlift.runtime.monitoring.sanitizer"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What was asked for."""

    num_processes: int
    command: tuple[str, ...]
    """The script and its arguments, verbatim."""
    module: bool = False
    cpu: bool = False
    all_devices: bool = False
    """One process drives all devices, by torch_xla."""
    mixed_precision: str | None = None
    split_batches: bool = False
    gradient_accumulation_steps: int | None = None
    address: str = "127.0.0.1"
    port: int = 0
    num_machines: int = 1
    machine_rank: int = 0
    gpu_ids: str | None = None
    """Numbers of GPUs with commas between; None for all."""
    no_python: bool = False
    """The command is a program of its own."""
    threads: int | None = None
    """Threads of each process on the CPU."""
    dynamo: Mapping[str, str] = field(default_factory=dict)
    """How models are compiled: the ends of variables, and their values."""
    sharding: Mapping[str, str] = field(default_factory=dict)
    """Variables that say how weights are sharded, and their values."""
    fp8: Mapping[str, str] = field(default_factory=dict)
    """How layers multiply in fp8: the ends of variables, and their values."""
    tf32: bool | None = None
    """Round products of matrices in fp32, where the device can; None: what torch does by itself."""
    restart: int = 0
    """How often the job has been started before."""
    sanitize: str | None = None
    """The folder for the records of the sanitizer; None when nobody asks for it."""

    @property
    def num_local(self) -> int:
        """Processes on this machine."""
        return self.num_processes // self.num_machines


@dataclass(frozen=True, kw_only=True)
class PlannedProcess:
    """One process: what is run, and in which environment."""

    rank: int
    command: tuple[str, ...]
    environment: Mapping[str, str]


def plan(job: Job, environment: Mapping[str, str], cores: int | None = None) -> list[PlannedProcess]:
    """
    The processes of a job, in order of their ranks.

    Args:
        job: what was asked for; its port must be a real one.
        environment: what the processes inherit.
        cores: of this machine, to be shared among the processes; counted when None.

    Raises:
        LaunchError: there is nothing to start.
    """
    if job.num_processes < 1:
        raise LaunchError(f"--num-processes is {job.num_processes}; it must be 1 or more.")
    if not job.command:
        raise LaunchError("there is no script to start. Write: torchlift launch --num-processes 2 script.py")
    _check(job)
    under = ("-m", _SANITIZER) if job.sanitize is not None else ()
    python = () if job.no_python else (sys.executable, "-u", *under, *(("-m",) if job.module else ()))
    command = (*python, *job.command)
    shared = {**environment, **_settings(job)}
    if job.threads is not None:
        shared["OMP_NUM_THREADS"] = str(job.threads)
    elif job.num_local > 1:
        threads = max(1, (cores or os.cpu_count() or 1) // job.num_local)
        shared.setdefault("OMP_NUM_THREADS", str(threads))
    if job.num_processes > 1:  # the words of a set come in one order in all of them
        shared.setdefault("PYTHONHASHSEED", "0")
    first = job.machine_rank * job.num_local
    return [
        PlannedProcess(rank=first + local, command=command, environment={**shared, **_place(job, first + local, local)})
        for local in range(job.num_local)
    ]


def _check(job: Job) -> None:
    if job.num_processes % job.num_machines:
        raise LaunchError(
            f"--num-processes is {job.num_processes}, which cannot be divided evenly over {job.num_machines} machines. "
            "It counts the processes of all machines."
        )
    if not 0 <= job.machine_rank < job.num_machines:
        raise LaunchError(
            f"--machine-rank is {job.machine_rank}, but --num-machines is {job.num_machines}: ranks go from 0 to "
            f"{job.num_machines - 1}."
        )
    if job.num_machines > 1 and (job.port == 0 or job.address in ("127.0.0.1", "localhost")):
        raise LaunchError(
            "several machines need --main-process-ip and --main-process-port: the address of machine 0, the same on "
            "all of them."
        )
    if job.module and job.no_python:
        raise LaunchError("--module and --no-python contradict each other. Leave one out.")


def _settings(job: Job) -> dict[str, str]:
    settings = {}
    if job.cpu:
        settings["TORCHLIFT_CPU"] = "1"
    if job.all_devices:
        settings["TORCHLIFT_DEVICE"] = "xla"
    if job.mixed_precision is not None:
        settings["TORCHLIFT_MIXED_PRECISION"] = job.mixed_precision
    if job.split_batches:
        settings["TORCHLIFT_SPLIT_BATCHES"] = "1"
    if job.gradient_accumulation_steps is not None:
        settings["TORCHLIFT_GRADIENT_ACCUMULATION_STEPS"] = str(job.gradient_accumulation_steps)
    if job.tf32 is not None:
        settings["TORCHLIFT_TF32"] = str(int(job.tf32))
    if job.gpu_ids not in (None, "all"):
        settings.update((name, str(job.gpu_ids)) for name in _VISIBLE)
    if job.sanitize is not None:
        settings.update(TORCHLIFT_SANITIZE="1", TORCHLIFT_SANITIZE_FOLDER=job.sanitize)
    settings.update((f"TORCHLIFT_DYNAMO_{name.upper()}", value) for name, value in job.dynamo.items())
    settings.update((f"ACCELERATE_FP8_{name.upper()}", value) for name, value in job.fp8.items())
    settings.update(job.sharding)
    if job.restart:
        settings["TORCHELASTIC_RESTART_COUNT"] = str(job.restart)
    return settings


def _place(job: Job, rank: int, local_rank: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(job.num_processes),
        "LOCAL_WORLD_SIZE": str(job.num_local),
        "MASTER_ADDR": job.address,
        "MASTER_PORT": str(job.port),
    }
