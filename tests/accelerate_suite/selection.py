"""What of Accelerate's own tests is run, and why the rest is not."""

from __future__ import annotations

from dataclasses import dataclass

TESTS: dict[str, str] = {
    "tests/test_logging.py": "",
    "tests/test_optimizer.py": "",
    "tests/test_kwargs_handlers.py": "",
    "tests/test_memory_utils.py": "",
    # That test compares the free memory of the whole machine before and after: other programs decide.
    "tests/test_accelerator.py": "not test_free_memory_dereferences_prepared_components",
    "tests/test_data_loader.py": "",
    "tests/test_utils.py": "",
    "tests/test_tracking.py": "",
    "tests/test_state_checkpointing.py": "",
    # Only what the runtime has: the rest is device maps and offloading, which it refuses.
    "tests/test_modeling_utils.py": """
        dtype_byte_size or find_tied or compute_module_sizes or load_checkpoint_in_model or load_state_dict
        or convert_file_size or extract_model_from_parallel
    """,
    "tests/test_metrics.py": "",
    "tests/test_scheduler.py": "",
    "tests/test_cpu.py": "",
    "tests/test_grad_sync.py": "",
    "tests/test_dataclasses.py": "",
    # What needs no hub. Left out is what is meant to be otherwise here: settings of version 1 become those of 2,
    # gradients are added in fp32, nothing is pinned on the CPU; and what replaces private functions of Accelerate.
    "tests/fsdp/test_fsdp.py": """
        FSDP2PluginIntegration and (cpu_ram_efficient_loading or state_dict_type or buffer_autocast_override)
    """,
}
"""Files of tests; behind each which names in it, as pytest's -k has them, where not all."""
ANYWHERE = frozenset({"tests/fsdp/test_fsdp.py"})
"""Files that ask for an accelerator, and do not need one here: sharding works on the CPU, too."""

_OFFLOADING = "models spread over devices and disks come later"
_DEEPSPEED = "DeepSpeed is not supported yet"
_COMMANDS = "the insides of the accelerate command; torchlift has commands of its own"
_DEVICES = "needs two accelerators; its scripts are run here, on two processes"
_HUB = "needs models and data of a hub"
_FP8 = "asks for a GPU and models of a hub; tests/runtime/strategies/test_eight_bits.py has what can be computed here"

_E = "src/accelerate/test_utils/scripts/external_deps/"
LEFT_OUT: dict[str, str] = {
    "tests/test_big_modeling.py": _OFFLOADING,
    "tests/test_hooks.py": _OFFLOADING,
    "tests/test_offload.py": _OFFLOADING,
    "tests/test_load_checkpoint_and_dispatch_with_broadcast.py": _OFFLOADING,
    "tests/test_cli.py": _COMMANDS,
    "tests/test_launch.py": _COMMANDS,
    "tests/test_sagemaker.py": _COMMANDS,
    "tests/test_compile.py": "needs an accelerator and models of a hub",
    "tests/test_examples.py": f"compares Accelerate's examples with one another, or {_HUB}",
    "tests/test_fp8.py": _FP8,
    "tests/test_imports.py": "measures the time of imports; benchmarks/runtime_import.py does that for the runtime",
    "tests/test_multidevice.py": _DEVICES,
    "tests/test_quantization.py": "weights in few bits come later",
    "tests/test_tpu.py": "needs a TPU",
    "tests/tp/test_tp.py": "tensors that are shared out come later",
    "tests/deepspeed/test_alst_ulysses_sp.py": _DEEPSPEED,
    "tests/deepspeed/test_deepspeed.py": _DEEPSPEED,
    "tests/deepspeed/test_deepspeed_gradient_accumulation.py": _DEEPSPEED,
    "tests/deepspeed/test_deepspeed_multiple_model.py": _DEEPSPEED,
    "src/accelerate/test_utils/scripts/test_merge_weights.py": "saves by a private function of Accelerate",
    "src/accelerate/test_utils/scripts/test_ddp_comm_hook.py": "gives torch's DDP a device number: accelerators only",
    f"{_E}test_checkpointing.py": _HUB,
    f"{_E}test_peak_memory_usage.py": _HUB,
    f"{_E}test_performance.py": _HUB,
    f"{_E}test_pippy.py": "pipelines come later",
    f"{_E}test_ds_alst_ulysses_sp.py": _DEEPSPEED,
    f"{_E}test_ds_multiple_model.py": _DEEPSPEED,
    f"{_E}test_zero3_integration.py": _DEEPSPEED,
}
"""Everything else of the checkout, and the reason."""


@dataclass(frozen=True)
class Script:
    """A script that Accelerate's tests start on several processes."""

    name: str
    path: str
    start: tuple[str, ...] = ()
    """What comes before the script on the command line, behind the name of Python."""
    variables: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()
    """Checks in it that are passed over, so that what comes after them is run."""


def _launch(processes: int) -> tuple[str, ...]:
    """What Accelerate's `get_launch_command` gives, said to our command."""
    words = ("launch", "--cpu", "--num-processes", str(processes), "--monitor-interval", "0.1")
    return ("-m", "torchlift.runtime.launch.command", *words)


_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_SCRIPTS = "src/accelerate/test_utils/scripts"
# (file, how many processes) as their own tests have it
_LAUNCHED = (
    (f"{_SCRIPTS}/test_cli.py", 1),
    (f"{_SCRIPTS}/test_cli.py", 2),
    (f"{_SCRIPTS}/test_script.py", 1),
    (f"{_SCRIPTS}/test_script.py", 2),
    (f"{_SCRIPTS}/test_sync.py", 2),
    (f"{_SCRIPTS}/test_ops.py", 2),
    (f"{_SCRIPTS}/test_distributed_data_loop.py", 2),
    (f"{_E}test_metrics.py", 1),
    (f"{_E}test_metrics.py", 2),
    ("tests/test_kwargs_handlers.py", 2),
    ("tests/test_multidevice.py", 2),
)
_WITHOUT = (
    # looks in a prepared loader for an object of Accelerate's around the batch sampler: here a loader keeps its own
    ("test_script.py", ("check_seedable_sampler_in_batch_sampler_shard",)),
    (
        "test_distributed_data_loop.py",
        (
            # the same
            "test_join_can_override_even_batches",
            "test_join_can_override_for_mixed_type_dataloaders",
            # says that the job is one of sharded weights, which there is none of here, and waits for a warning
            "test_join_raises_warning_for_non_ddp_distributed",
            # compares the private dict of a state with that of its copy
            "test_pickle_accelerator",
        ),
    ),
)
_BY_TORCHRUN = ("test_script.py", "test_sync.py", "test_ops.py", "test_distributed_data_loop.py")


def _name(path: str, how: str) -> str:
    return f"{path.rpartition('/')[2]} ({how})"


SCRIPTS: tuple[Script, ...] = (
    *(Script(_name(path, f"torchlift launch, {n}"), path, _launch(n)) for path, n in _LAUNCHED),
    *(Script(_name(file, "torchrun, 2"), f"{_SCRIPTS}/{file}", _TORCHRUN) for file in _BY_TORCHRUN),
    *(
        Script(_name(file, "torchlift launch, 2, the rest"), f"{_SCRIPTS}/{file}", _launch(2), without=checks)
        for file, checks in _WITHOUT
    ),
    Script(
        _name("test_notebook.py", "notebook_launcher, 2"),
        f"{_SCRIPTS}/test_notebook.py",
        variables=(("ACCELERATE_NUM_PROCESSES", "2"),),
        # a race: who takes the last entry of a queue waits for the other process, which may have ended on finding none
        without=("test_fault_tolerant",),
    ),
)
"""Files of tests among them are started as scripts by their own tests, too."""
ON_XLA = (
    "tests/test_logging.py",
    "tests/test_optimizer.py",
    "tests/test_kwargs_handlers.py",
    "tests/test_memory_utils.py",
    "tests/test_accelerator.py",
    "tests/test_data_loader.py",
    "tests/test_state_checkpointing.py",
    "tests/test_grad_sync.py",
)
"""Files of `TESTS` that also say something where one process drives all devices."""
SCRIPTS_ON_XLA = tuple(
    Script(_name(file, "torch_xla"), f"{_SCRIPTS}/{file}") for file in ("test_script.py", "test_sync.py", "test_ops.py")
)
"""Accelerate starts them on TPUs, too, as many processes; here it is one."""
