"""What scripts ask about optional packages and devices, by the names under which Accelerate answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from importlib.metadata import version
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import torch

from ..available import is_available, need
from ..device.kinds import GPU, current, kind_of

Question = Callable[[], bool]
_OPERATORS = {"<": lt, "<=": le, "==": eq, "!=": ne, ">=": ge, ">": gt}


def _any_of(*packages: str) -> Question:
    def question() -> bool:
        """One of the packages is installed."""
        return any(is_available(package) for package in packages)

    return question


def _device(kind: str) -> Question:
    def question() -> bool:
        """Such a device can be used."""
        return kind_of(kind).present()

    return question


is_aim_available = _any_of("aim")
is_bnb_available = _any_of("bitsandbytes")
is_boto3_available = _any_of("boto3")
is_clearml_available = _any_of("clearml")
is_comet_ml_available = _any_of("comet_ml")
is_datasets_available = _any_of("datasets")
is_deepspeed_available = _any_of("deepspeed")
is_dvclive_available = _any_of("dvclive")
is_import_timer_available = _any_of("import_timer")
is_lomo_available = _any_of("lomo_optim")
is_matplotlib_available = _any_of("matplotlib")
is_megatron_lm_available = _any_of("megatron")
is_mlflow_available = _any_of("mlflow")
is_msamp_available = _any_of("msamp")
is_pandas_available = _any_of("pandas")
is_peft_available = _any_of("peft")
is_pippy_available = _any_of("pippy")
is_pytest_available = _any_of("pytest")
is_rich_available = _any_of("rich")
is_sagemaker_available = _any_of("sagemaker")
is_schedulefree_available = _any_of("schedulefree")
is_swanlab_available = _any_of("swanlab")
is_tensorboard_available = _any_of("tensorboard", "tensorboardX")
is_timm_available = _any_of("timm")
is_torchao_available = _any_of("torchao")
is_torchdata_available = _any_of("torchdata")
is_torchdata_stateful_dataloader_available = _any_of("torchdata")
is_torchvision_available = _any_of("torchvision")
is_tqdm_available = _any_of("tqdm")
is_trackio_available = _any_of("trackio")
is_transformer_engine_available = _any_of("transformer_engine")
is_transformers_available = _any_of("transformers")
is_triton_available = _any_of("triton")
is_wandb_available = _any_of("wandb")

is_4bit_bnb_available = is_8bit_bnb_available = is_bnb_available
is_bitsandbytes_multi_backend_available = is_bnb_available
is_amdsmi_available = _any_of("amdsmi")
is_numpy_available = _any_of("numpy")
is_pynvml_available = _any_of("pynvml")

is_cuda_available = _device("cuda")
is_hpu_available = _device("hpu")
is_mlu_available = _device("mlu")
is_musa_available = _device("musa")
is_neuron_available = _device("neuron")
is_npu_available = _device("npu")
is_sdaa_available = _device("sdaa")
is_xpu_available = _device("xpu")


def is_torch_xla_available(check_is_tpu: bool = False, check_is_gpu: bool = False) -> bool:
    """torch_xla is installed; with `check_is_tpu` (`check_is_gpu`), it is never used for one here."""
    return is_available("torch_xla") and not check_is_tpu and not check_is_gpu


def torchao_required(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a call without torchao is a MissingPackageError, which is an ImportError."""

    @wraps(func)
    def checked(*args: Any, **kwargs: Any) -> Any:
        need("torchao", func.__name__, "fp8")
        return func(*args, **kwargs)

    return checked


def is_rocm_available() -> bool:
    """The GPUs are AMD's."""
    return torch.version.hip is not None and is_cuda_available()


def is_torch_distributed_available() -> bool:
    """This build of torch can connect processes."""
    return torch.distributed.is_available()


def is_xccl_available() -> bool:
    """This build of torch can connect Intel's GPUs."""
    return is_torch_distributed_available() and torch.distributed.is_xccl_available()


def is_weights_only_available() -> bool:
    """torch reads files without running what is in them: always here."""
    return True


def is_habana_gaudi1() -> bool:
    """The first generation of a device that nothing here knows."""
    return False


def is_transformer_engine_mxfp8_available() -> bool:
    """A kind of fp8 that is not used here."""
    return False


def check_cuda_fp8_capability() -> bool:
    """The GPU computes in fp8."""
    return kind_of(GPU).multiplies_fp8()


def is_mps_available(min_version: str = "1.12") -> bool:
    """The GPU of a Mac can be used."""
    return is_torch_version(">=", min_version) and kind_of("mps").present()


def is_bf16_available(ignore_tpu: bool = False) -> bool:
    """The accelerator computes in bf16; a CPU does so always."""
    return torch.bfloat16 in current().autocasts()


def is_fp16_available() -> bool:
    """fp16 can be computed in."""
    return True


def is_fp8_available() -> bool:
    """A package for fp8 is installed."""
    return is_torchao_available() or is_transformer_engine_available() or is_msamp_available()


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.partition("+")[0].split(".")
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts[:3])


def _filled(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return numbers + (0,) * (width - len(numbers))


@cache
def compare_versions(library_or_version: str, operation: str, requirement_version: str) -> bool:
    """
    Compare the version of a package (or a version) with another, by its first three numbers.

    Raises:
        ValueError: no such operation.
    """
    if operation not in _OPERATORS:
        raise ValueError(f"`operation` must be one of {list(_OPERATORS)}, received {operation}")
    text = str(library_or_version)
    mine = _numbers(text if text[:1].isdigit() else version(text))
    other = _numbers(requirement_version)
    width = max(len(mine), len(other))
    return bool(_OPERATORS[operation](_filled(mine, width), _filled(other, width)))


def is_torch_version(operation: str, version: str) -> bool:
    """Compare the version of torch: `is_torch_version(">=", "2.6")`."""
    return compare_versions(str(torch.__version__), operation, version)
