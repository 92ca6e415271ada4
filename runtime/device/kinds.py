"""
Kinds of devices: what the runtime asks of one, and the answers.

Nothing else in the runtime names a kind of device. Most answers are torch's own, for whatever registers itself with
`torch.accelerator`; a kind that differs in something has a class of its own here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import nn

from .. import torch_spmd
from ..available import is_available
from ..errors import DeviceError
from ..torch_internals import is_lost_to_forks
from ..types import DistributedType

_GIB = 2**30


class DeviceKind:
    """
    A kind of device that `torch.accelerator` knows, also one that a package has registered.

    Args:
        name: its type, as in `torch.device(name)`.
    """

    word: ClassVar[DistributedType] = DistributedType.MULTI_ACCELERATOR
    """How several processes on such devices are called."""
    replaced: ClassVar[Mapping[torch.dtype, torch.dtype]] = {}
    """Types of numbers that it does not have, and what stands for them."""
    numbered: ClassVar[bool] = True
    """A machine may have several, which have numbers."""
    copies_beside: ClassVar[bool] = False
    """Copies on a stream of their own are known to work."""
    tensor_float: ClassVar[bool] = False
    """It can multiply matrices of fp32 numbers faster, with fewer bits (TF32)."""
    drives_all: ClassVar[bool] = False
    """One process drives all of them: a tensor lies on all, and what is computed with it is compiled first."""
    in_files: ClassVar[bool | None] = None
    """Files with its tensors can be read on machines without it; None: not known."""
    package: ClassVar[str | None] = None
    """What registers it with torch, where that is not torch itself."""
    one_process: ClassVar[bool] = False
    """Its back end connects only processes that have such a device each for themselves."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def is_cpu(self) -> bool:
        """No accelerator: memory is the host's, and nothing runs beside Python."""
        return False

    @property
    def module(self) -> Any:
        """The functions for it, `torch.<name>`; None where it registers none."""
        try:
            return torch.get_device_module(self.name)
        except (RuntimeError, AttributeError):
            return None

    def _has(self, name: str) -> Any:
        return getattr(self.module, name, None)

    # ---------------------------------------------------------------- which one

    def present(self) -> bool:
        """There is one here, whether torch uses it or another accelerator."""
        ask = self._has("is_available")
        return ask is not None and bool(ask())

    def available(self) -> bool:
        """There is one here, and torch uses it."""
        if not torch.accelerator.is_available():
            return False
        current = torch.accelerator.current_accelerator()
        return current is not None and current.type == self.name

    def count(self) -> int:
        """How many there are on this machine for this process."""
        return torch.accelerator.device_count() if self.available() else 0

    def of_process(self, local_rank: int) -> torch.device:
        """The one with the number of a process on its machine."""
        if not self.numbered:
            return torch.device(self.name)
        return torch.device(self.name, local_rank % max(self.count(), 1))

    def identity(self, device: torch.device) -> str | None:
        """What tells one of them from all others, also on other machines; None where it does not say."""
        ask = self._has("get_device_properties")
        found = None if ask is None else getattr(ask(device), "uuid", None)
        return None if found is None else str(found)

    def select(self, device: torch.device) -> None:
        """Make it torch's current one."""
        if device.index is not None:
            choose = getattr(torch.accelerator, "set_device_index", None)  # torch 2.6 has the older name alone
            (choose or torch.accelerator.set_device_idx)(device.index)

    def begun(self) -> bool:
        """This process has used one already, so that a fork of it cannot."""
        begun = self._has("is_initialized")
        return self.available() and begun is not None and bool(begun())

    def lost_to_forks(self) -> bool:
        """A fork of this process could not use one, although none was used: for CUDA the question whether there is one
        may be enough."""
        return self.available() and is_lost_to_forks(self.module)

    def backend(self) -> str:
        """
        What the processes of a job exchange its tensors by, as `init_process_group` takes it.

        Raises:
            DeviceError: this build of torch lacks it, or nobody has registered one.
        """
        import torch.distributed as dist

        try:
            own = str(dist.get_default_backend_for_device(self.name))
        except ValueError:
            own = ""
        names = [name for name in own.split(",") if ":" not in name]
        if not own or not all(dist.is_backend_available(name) for name in names):
            needs = f"need the back end {own}, which this build of torch does not have" if own else "have no back end"
            raise DeviceError(
                f"several processes cannot exchange tensors on {self.name}: those {needs}. Install a build that has "
                "one, start one process, or stay on the CPU: Accelerator(cpu=True)."
            )
        return f"cpu:gloo,{self.name}:{own}"

    # ---------------------------------------------------------------- tensors

    @cached_property
    def keeps_parameters(self) -> bool:
        """
        A module that is moved there keeps its parameters as the objects they are.

        Where its tensors are of another make than those of the CPU, torch puts new parameters in their places, and an
        optimizer that was made before goes on with the old ones.
        """
        module = nn.Module()
        module.probe = before = nn.Parameter(torch.zeros(1))
        return module.to(self.name).probe is before

    def fit_for_files(self, tensor: torch.Tensor) -> bool:
        """Written to a file, the tensor can be read by machines that have no such device."""
        if self.in_files is not None:
            return self.in_files
        return address_of(tensor) != 0

    # ---------------------------------------------------------------- memory, streams

    def empty_cache(self) -> None:
        """Give memory that its allocator holds, but nobody uses, back."""
        empty = self._has("empty_cache")
        if empty is not None and self.available():
            empty()

    def memory(self, device: torch.device) -> tuple[int, int] | None:
        """Bytes that are free, and bytes in all; None where it does not say."""
        ask = self._has("mem_get_info")
        return None if ask is None else tuple(ask(device))

    def pins(self) -> bool:
        """Memory of the host can be page-locked for it."""
        return self.available()

    def stream(self, device: torch.device) -> torch.Stream | None:
        """A stream for copies alone; None where copies wait for their turn."""
        if not self.copies_beside:
            return None
        try:
            return torch.Stream(device)
        except (RuntimeError, AssertionError):  # there is none: verify pretends one
            return None

    def current_stream(self, device: torch.device) -> torch.Stream:
        """The stream on which the script computes now."""
        return torch.accelerator.current_stream(device)

    @contextmanager
    def on(self, stream: torch.Stream) -> Iterator[None]:
        """In the body, work is asked of a stream."""
        before = torch.accelerator.current_stream(stream.device)
        torch.accelerator.set_stream(stream)
        try:
            yield
        finally:
            torch.accelerator.set_stream(before)

    # ---------------------------------------------------------------- random numbers

    def random_states(self) -> list[torch.Tensor]:
        """
        The states of the generators of all its devices, in order, or of the current one where it does not give all;
        none where it has no generators.
        """
        every = self._has("get_rng_state_all")
        if every is not None:
            return list(every())
        index = getattr(torch.accelerator, "current_device_index", None) or torch.accelerator.current_device_idx
        one = self.random_state(torch.device(self.name, index()))
        return [] if one is None else [one]

    def random_state(self, device: torch.device) -> torch.Tensor | None:
        """The state of the generator of one device; None where there is none."""
        one = self._has("get_rng_state")
        if one is None:
            return None
        state: torch.Tensor = one(device) if self.numbered else one()
        return state

    def set_random_state(self, state: torch.Tensor, device: torch.device) -> None:
        """Draw on from a state; nothing where there is no generator."""
        put = self._has("set_rng_state")
        if put is None:
            return
        if self.numbered:
            put(state.cpu(), device)
        else:
            put(state.cpu())

    # ---------------------------------------------------------------- numbers

    def autocasts(self) -> Sequence[torch.dtype]:
        """The types in which forward passes can run under `torch.autocast`; none where there is no autocast."""
        if not torch.amp.is_autocast_available(self.name):
            return ()
        ask = self._has("get_amp_supported_dtype")
        return (torch.bfloat16, torch.float16) if ask is None else tuple(ask())

    def type_of(self, dtype: torch.dtype) -> torch.dtype:
        """The type that such numbers have there."""
        return self.replaced.get(dtype, dtype)

    def multiplies_fp8(self) -> bool:
        """Its matrix units take fp8; otherwise that is emulated."""
        return False

    def let_round(self, on: bool) -> None:
        """Products of matrices in fp32 may be rounded (TF32), or must not."""
        torch.set_float32_matmul_precision("high" if on else "highest")

    # ---------------------------------------------------------------- in words

    def about(self) -> str:
        """What there is, for `torchlift env`."""
        name, place = self._has("get_device_name"), self.of_process(0)
        memory = self.memory(place)
        parts = [f"{self.count()} x {self.name}", *([str(name())] if name is not None else [])]
        return ", ".join([*parts, *([f"{memory[1] / _GIB:.1f} GiB"] if memory is not None else [])])


class _Cpu(DeviceKind):
    """The host itself."""

    word = DistributedType.MULTI_CPU
    numbered = False
    in_files = True

    @property
    def is_cpu(self) -> bool:
        return True

    def present(self) -> bool:
        return True

    def available(self) -> bool:
        return True

    def count(self) -> int:
        return 0

    def select(self, device: torch.device) -> None:
        return

    def begun(self) -> bool:
        return False

    def backend(self) -> str:
        return "gloo"

    def pins(self) -> bool:
        return False

    def empty_cache(self) -> None:
        return

    def memory(self, device: torch.device) -> tuple[int, int] | None:
        return None

    def random_states(self) -> list[torch.Tensor]:
        """None of its own: they are torch's, and saved as such."""
        return []

    def random_state(self, device: torch.device) -> torch.Tensor | None:
        return None

    def set_random_state(self, state: torch.Tensor, device: torch.device) -> None:
        return

    def about(self) -> str:
        return "none"


class _Cuda(DeviceKind):
    """GPUs of NVIDIA, and of AMD (ROCm), which torch calls alike."""

    word = DistributedType.MULTI_GPU
    copies_beside = True
    tensor_float = True
    in_files = True
    one_process = True

    def autocasts(self) -> Sequence[torch.dtype]:
        found = super().autocasts()
        return found if torch.cuda.is_bf16_supported() else tuple(one for one in found if one is not torch.bfloat16)

    def let_round(self, on: bool) -> None:
        super().let_round(on)
        torch.backends.cudnn.allow_tf32 = on

    def multiplies_fp8(self) -> bool:
        if not torch.cuda.is_available():
            return False
        at_least = (9, 4) if torch.version.hip is not None else (8, 9)
        return torch.cuda.get_device_capability() >= at_least

    def about(self) -> str:
        made = f"ROCm {torch.version.hip}" if torch.version.hip is not None else f"CUDA {torch.version.cuda}"
        return f"{super().about()}, {made}"


class _Xpu(DeviceKind):
    """GPUs of Intel."""

    word = DistributedType.MULTI_XPU
    in_files = True
    copies_beside = True
    tensor_float = True


class _Mps(DeviceKind):
    """The GPU of a Mac: one, without a number."""

    numbered = False
    in_files = True
    replaced: ClassVar[Mapping[torch.dtype, torch.dtype]] = {
        torch.float64: torch.float32,
        torch.complex128: torch.complex64,
    }

    def present(self) -> bool:
        return torch.backends.mps.is_available()

    def pins(self) -> bool:
        return False


class _Npu(DeviceKind):
    word = DistributedType.MULTI_NPU
    package = "torch_npu"


class _Mlu(DeviceKind):
    word = DistributedType.MULTI_MLU
    package = "torch_mlu"


class _Musa(DeviceKind):
    word = DistributedType.MULTI_MUSA
    package = "torch_musa"


class _Hpu(DeviceKind):
    word = DistributedType.MULTI_HPU
    package = "habana_frameworks.torch"


class _Tpu(DeviceKind):
    """TPUs by torch_tpu: processes of torch.distributed as on any other device."""

    package = "torch_tpu"


class _Xla(DeviceKind):
    """All devices of torch_xla as one."""

    word = DistributedType.XLA
    numbered = False
    drives_all = True
    in_files = False
    package = "torch_xla"

    def present(self) -> bool:
        return is_available("torch_xla")

    def available(self) -> bool:
        return torch_spmd.begun()

    def count(self) -> int:
        return torch_spmd.device_count()

    def of_process(self, local_rank: int) -> torch.device:
        return torch.device(self.name, 0)

    def select(self, device: torch.device) -> None:
        return

    def begun(self) -> bool:
        return torch_spmd.begun()

    def backend(self) -> str:
        return f"torch_xla, {self.count()} devices"

    def pins(self) -> bool:
        return False

    def random_states(self) -> list[torch.Tensor]:
        return [torch.tensor(torch_spmd.rng_state())]

    def random_state(self, device: torch.device) -> torch.Tensor | None:
        return self.random_states()[0]

    def set_random_state(self, state: torch.Tensor, device: torch.device) -> None:
        torch_spmd.seed(int(state))

    def autocasts(self) -> Sequence[torch.dtype]:
        return (torch.bfloat16,)


class _Meta(DeviceKind):
    """Tensors without memory: nothing computes there."""

    in_files = True


def address_of(tensor: torch.Tensor) -> int:
    """Where the memory of a tensor begins; 0 where it has none that Python could name."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return 0


GPU = "cuda"
"""The type of the devices that scripts mean by a GPU."""

_KINDS: dict[str, type[DeviceKind]] = {
    "cpu": _Cpu,
    GPU: _Cuda,
    "xpu": _Xpu,
    "mps": _Mps,
    "npu": _Npu,
    "mlu": _Mlu,
    "musa": _Musa,
    "hpu": _Hpu,
    "tpu": _Tpu,
    torch_spmd.DEVICE_TYPE: _Xla,
    "meta": _Meta,
}


_made: dict[str, DeviceKind] = {}


def kind_of(device: torch.device | str) -> DeviceKind:
    """The kind that a device, or a type of devices, is of."""
    name = device if isinstance(device, str) else device.type
    if name not in _made:
        _made[name] = _KINDS.get(name, DeviceKind)(name)
    return _made[name]


def accelerators() -> list[str]:
    """The types of accelerators that have answers of their own here."""
    return [name for name in _KINDS if name not in ("cpu", "meta")]


def current() -> DeviceKind:
    """The accelerator of this machine; the CPU where there is none."""
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return kind_of("cpu" if kind is None else kind)
