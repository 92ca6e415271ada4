"""The vocabulary that every part of the runtime shares."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, EnumMeta
from typing import Any, TypeAlias

Tree: TypeAlias = Any
"""A tensor, or dicts, lists, tuples, named tuples of trees, or anything else (a leaf that is left alone)."""

Decorated: TypeAlias = Callable[..., Any]


class _WordsMeta(EnumMeta):
    """Lets a plain word be asked for: ``"bf16" in PrecisionType``."""

    def __contains__(cls, word: object) -> bool:
        return word in {member.value for member in cls} or isinstance(word, cls)  # type: ignore[var-annotated]


class Words(str, Enum, metaclass=_WordsMeta):
    """An enum whose members are their words: they compare with, and print as, plain strings."""

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def list(cls) -> list[str]:
        """All words, in order."""
        return [str(member.value) for member in cls]


class DistributedType(Words):
    """How the processes of a job work together, and on what."""

    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    MULTI_GPU = "MULTI_GPU"
    MULTI_XPU = "MULTI_XPU"
    MULTI_NPU = "MULTI_NPU"
    MULTI_MLU = "MULTI_MLU"
    MULTI_MUSA = "MULTI_MUSA"
    MULTI_HPU = "MULTI_HPU"
    MULTI_ACCELERATOR = "MULTI_ACCELERATOR"
    """Several processes on a kind of device that has no word of its own."""
    # Words that scripts ask about, and that nothing here answers with yet.
    MULTI_SDAA = "MULTI_SDAA"
    MULTI_NEURON = "MULTI_NEURON"
    FSDP = "FSDP"
    XLA = "XLA"
    TPU = "XLA"
    DEEPSPEED = "DEEPSPEED"
    MEGATRON_LM = "MEGATRON_LM"


class PrecisionType(Words):
    """What the forward pass computes in. Weights and gradients stay in the precision that the script gave them."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    """Linear layers multiply in fp8, all else computes in bf16."""
    INT8 = "int8"
    """The same with int8. Accelerate has no such word."""


class DDPCommunicationHookType(Words):
    """How gradients are compressed on their way between processes."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"


class ComputeEnvironment(Words):
    """Where the processes of a job run."""

    LOCAL_MACHINE = "LOCAL_MACHINE"
    AMAZON_SAGEMAKER = "AMAZON_SAGEMAKER"
    """A word that scripts ask about, and that nothing here answers with yet. So are the words of the next two."""


class SageMakerDistributedType(Words):
    """How the processes of a job on SageMaker work together."""

    NO = "NO"
    DATA_PARALLEL = "DATA_PARALLEL"
    MODEL_PARALLEL = "MODEL_PARALLEL"


class FP8BackendType(Words):
    """What computes in fp8."""

    NO = "NO"
    TE = "TE"
    MSAMP = "MSAMP"
    AO = "AO"


class DynamoBackend(Words):
    """Back ends of `torch.compile`."""

    NO = "no"
    EAGER = "eager"
    AOT_EAGER = "aot_eager"
    INDUCTOR = "inductor"
    AOT_TS_NVFUSER = "aot_ts_nvfuser"
    NVPRIMS_NVFUSER = "nvprims_nvfuser"
    CUDAGRAPHS = "cudagraphs"
    OFI = "ofi"
    FX2TRT = "fx2trt"
    ONNXRT = "onnxrt"
    TENSORRT = "tensorrt"
    AOT_TORCHXLA_TRACE_ONCE = "aot_torchxla_trace_once"
    TORCHXLA_TRACE_ONCE = "torchxla_trace_once"
    TVM = "tvm"

    @classmethod
    def _missing_(cls, value: object) -> DynamoBackend | None:
        """Accelerate's words are in capitals."""
        word = str(value).lower()
        return cls(word) if word != value and word in cls.list() else None


class RNGType(Words):
    """Random numbers that can be made equal on all processes at the start of a pass over the data."""

    TORCH = "torch"
    CUDA = "cuda"
    MLU = "mlu"
    MUSA = "musa"
    NPU = "npu"
    XLA = "xla"
    XPU = "xpu"
    HPU = "hpu"
    SDAA = "sdaa"
    NEURON = "neuron"
    GENERATOR = "generator"


class Reduction(Words):
    """How `Accelerator.reduce` joins one tensor of every process."""

    SUM = "sum"
    SUM_OF_MEANS = "sum_of_means"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    PRODUCT = "product"


class LossReduction(Words):
    """How the script computed its loss from the rows of a batch."""

    MEAN = "mean"
    SUM = "sum"


class LoggerType(Words):
    """The trackers that come along. "all": those whose packages are installed."""

    ALL = "all"
    JSONL = "jsonl"
    AIM = "aim"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    TRACKIO = "trackio"
    COMETML = "comet_ml"
    MLFLOW = "mlflow"
    CLEARML = "clearml"
    DVCLIVE = "dvclive"
    SWANLAB = "swanlab"
