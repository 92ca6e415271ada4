"""From options and a file to a job: an option wins over the file, the file over the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config.cluster import PRECISIONS, ClusterConfig, default_path, fp8_words, read_config
from ..errors import LaunchError, NotAvailableYet
from .plan import Job
from .sharding import environment_of

PRECISION_WORDS = PRECISIONS
_LATER = {
    "--use-deepspeed": "DeepSpeed",
    "--deepspeed-": "DeepSpeed",
    "--zero": "DeepSpeed",
    "--offload-": "DeepSpeed",
    "--gradient-clipping": "DeepSpeed",
    "--use-megatron-lm": "Megatron-LM",
    "--megatron-lm-": "Megatron-LM",
    "--fp8-": "fp8 by Transformer Engine or MS-AMP",
    "--vm": "a TPU pod",
    "--tpu-": "a TPU pod",
    "--no-tpu-cluster": "a TPU pod",
    "--enable-cpu-affinity": "binding processes to cores",
    "--mpirun-": "starting with mpirun",
    "--aws-": "SageMaker",
}
"""Options of Accelerate, or how they begin, that ask for what is not there."""


def check_option(name: str) -> None:
    """
    Look at an option that is not known.

    Raises:
        NotAvailableYet: Accelerate has it, and it asks for what is not there.
    """
    for begin, ability in _LATER.items():
        if name.startswith(begin):
            raise NotAvailableYet(f"{ability} ({name})", "Leave the option out.")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line says; None where it says nothing."""

    config_file: str | None = None
    num_processes: int | None = None
    cpu: bool | None = None
    multi_gpu: bool = False
    tpu: bool = False
    gpu_ids: str | None = None
    num_machines: int | None = None
    machine_rank: int | None = None
    main_process_ip: str | None = None
    main_process_port: int | None = None
    mixed_precision: str | None = None
    fp8_backend: str | None = None
    tf32: bool | None = None
    split_batches: bool | None = None
    gradient_accumulation_steps: int | None = None
    dynamo_backend: str | None = None
    dynamo_mode: str | None = None
    dynamo_use_fullgraph: bool | None = None
    dynamo_use_dynamic: bool | None = None
    dynamo_use_regional_compilation: bool | None = None
    num_cpu_threads_per_process: int | None = None
    rdzv_backend: str | None = None
    rdzv_conf: str | None = None
    role: str | None = None
    monitor_interval: float | None = None
    main_training_function: str | None = None
    same_network: bool = False
    debug: bool = False
    no_python: bool = False
    module: bool = False
    use_fsdp: bool | None = None
    use_parallelism_config: bool | None = None
    sharding: Mapping[str, str] = field(default_factory=dict)
    """The settings of these two, under the names that a file has for them."""


def config_of(named: str | None, environment: Mapping[str, str]) -> ClusterConfig:
    """The file that was named, or the one at the default place, or nothing."""
    path = Path(named) if named is not None else default_path(environment)
    return read_config(path) if named is not None or path.is_file() else ClusterConfig()


def job_of(
    options: Options, command: tuple[str, ...], environment: Mapping[str, str], default_processes: int = 1
) -> Job:
    """
    Join options and file.

    Raises:
        LaunchError: they contradict each other.
        ConfigError: the file cannot be read, or says what means nothing here.
    """
    config = config_of(options.config_file, environment)
    if options.cpu and (options.multi_gpu or options.gpu_ids):
        raise LaunchError("--cpu contradicts --multi-gpu and --gpu-ids. Leave one out.")
    if options.multi_gpu and options.num_processes is None and config.num_processes is None and not options.gpu_ids:
        raise LaunchError("--multi-gpu does not set the number of processes. Add --num-processes or --gpu-ids.")
    processes = _processes(options, config, default_processes)
    all_devices = options.tpu or config.by_xla
    if all_devices:
        _check_all_devices(options, config)
        processes = 1
    return Job(
        num_processes=processes,
        command=command,
        module=options.module,
        no_python=options.no_python,
        all_devices=all_devices,
        cpu=bool(options.cpu or config.use_cpu or config.distributed_type == "MULTI_CPU"),
        mixed_precision=_first(options.mixed_precision, config.mixed_precision),
        split_batches=bool(_first(options.split_batches, config.split_batches)),
        gradient_accumulation_steps=_first(options.gradient_accumulation_steps, config.gradient_accumulation_steps),
        address=_first(options.main_process_ip, config.main_process_ip, "127.0.0.1"),
        port=_first(options.main_process_port, config.main_process_port, 0),
        num_machines=_first(options.num_machines, config.num_machines),
        machine_rank=_first(options.machine_rank, config.machine_rank),
        gpu_ids=_first(options.gpu_ids, config.gpu_ids),
        threads=options.num_cpu_threads_per_process,
        dynamo=_dynamo(options, config),
        fp8=_fp8(options, config),
        tf32=options.tf32,
        sharding=environment_of(options.use_fsdp, options.use_parallelism_config, options.sharding, config, processes),
    )


def _check_all_devices(options: Options, config: ClusterConfig) -> None:
    """
    By torch_xla one process drives all devices of a machine.

    Raises:
        LaunchError: more is asked for, or the CPU.
    """
    if options.cpu or options.multi_gpu or options.gpu_ids:
        raise LaunchError("--tpu contradicts --cpu, --multi-gpu and --gpu-ids. Leave one out.")
    if (options.num_processes or 1) > 1:
        raise LaunchError(
            f"--num-processes is {options.num_processes}, but by torch_xla one process drives all devices. Leave the "
            "option out."
        )
    if (options.num_machines or config.num_machines) > 1:
        raise NotAvailableYet("a job on several machines by torch_xla (a TPU pod)", "Use one machine.")


def _dynamo(options: Options, config: ClusterConfig) -> dict[str, str]:
    names = ("backend", "mode", "use_fullgraph", "use_dynamic", "use_regional_compilation")
    said = {name: _first(getattr(options, f"dynamo_{name}"), getattr(config, f"dynamo_{name}")) for name in names}
    return {name: str(value).lower() for name, value in said.items() if value is not None}


def _fp8(options: Options, config: ClusterConfig) -> dict[str, str]:
    backend = {} if options.fp8_backend is None else {"backend": options.fp8_backend}
    return {**(config.fp8_config or {}), **fp8_words(backend, "--fp8-backend")}


def _processes(options: Options, config: ClusterConfig, default: int) -> int:
    if options.num_processes is not None:
        return options.num_processes
    if options.gpu_ids not in (None, "all"):
        return len(str(options.gpu_ids).split(","))
    if config.num_processes is not None:
        return config.num_processes
    return default * _first(options.num_machines, config.num_machines)  # type: ignore[no-any-return]


def _first(*values: Any) -> Any:
    """The first that says something; the last when none does."""
    return next((value for value in values if value is not None), None)
