"""
What is asked of torch_xla: the one place that names it.

One process drives all devices (SPMD). A tensor on the device `xla` is laid over all of them, whole or in pieces, and
computes what it would compute on one device: how it is laid out changes the speed and the memory, never the values.
Operations are collected, and run when `sync` is called or when a value is read. A graph that was not seen before is
compiled first.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .available import is_available
from .errors import DeviceError, NotAvailableYet, UnknownTorchError

DEVICE_TYPE = "xla"
AXIS = "data"
"""The name of the one axis of the mesh."""
RUN_WITH = "2.9"
"""The series of torch_xla that the tests were run with. It is the last one, and needs torch of the same series."""
INSTALL = 'pip install "torch==2.9.*" "torch_xla[tpu]==2.9.0"'
_COMPILED = "UncachedCompile"
_READS = "aten::_local_scalar_dense"
"""Counted where the script reads a value (`.item()`): no operation that is missing."""


class _Session:
    """What this process has found out about its devices."""

    mesh: Any = None
    torch_xla: Any = None
    count = 0


def is_wanted(device: str | None, pjrt: str | None) -> bool:
    """
    Whether this process is to compute by torch_xla.

    Args:
        device: what the environment says about the device; None if nothing.
        pjrt: the variable PJRT_DEVICE, which torch_xla reads; None if it is not set.

    Raises:
        DeviceError: PJRT_DEVICE names a TPU, and nothing that could use one is installed.
    """
    if device is not None:
        kind = device.partition(":")[0]
        by_xla = kind == "tpu" and is_available("torch_xla") and not is_available("torch_tpu")
        return kind == DEVICE_TYPE or by_xla
    if is_available("torch_xla"):
        return bool(pjrt) or any(Path("/dev").glob("accel[0-9]*"))
    if pjrt and pjrt.upper() == "TPU" and not is_available("torch_tpu"):
        raise DeviceError(
            f"PJRT_DEVICE is {pjrt}, but torch_xla is not installed. Run: {INSTALL}. To stay off the TPU, unset it."
        )
    return False


def start(pjrt: str | None) -> torch.device:
    """
    Take all devices of this machine as one mesh. Returns the device whose tensors lie on them.

    Args:
        pjrt: the variable PJRT_DEVICE; None if it is not set, which means a TPU.

    Raises:
        UnknownTorchError: torch_xla is missing, or of a version that is not known.
        DeviceError: it finds no device.
        NotAvailableYet: there are several machines.
    """
    if _Session.mesh is None:
        _Session.torch_xla = _imported()
        _Session.mesh = _mesh(pjrt)
        torch.serialization.register_package(30, lambda _: None, _loaded)
    return torch.device(DEVICE_TYPE, 0)


def _imported() -> ModuleType:
    try:
        import torch_xla
    except ImportError as error:
        if is_available("torch_xla"):
            raise UnknownTorchError(
                f"torch_xla cannot be imported beside torch {torch.__version__}: {error}. Both must be of one series. "
                f"Run: {INSTALL}"
            ) from error
        raise UnknownTorchError(f"the device xla needs torch_xla, which is not installed. Run: {INSTALL}") from error
    if not torch_xla.__version__.startswith(f"{RUN_WITH}."):
        raise UnknownTorchError(
            f"torch_xla {torch_xla.__version__} is installed; torchlift knows {RUN_WITH}. Run: {INSTALL}"
        )
    found: ModuleType = torch_xla
    return found


def _mesh(pjrt: str | None) -> Any:
    import numpy as np
    import torch_xla.distributed.spmd as spmd
    import torch_xla.runtime as runtime

    try:
        runtime.use_spmd()
        count = int(runtime.global_runtime_device_count())
        machines = int(runtime.process_count())
    except (RuntimeError, OSError) as error:
        raise _nothing_there(pjrt, str(error).splitlines()[0]) from error
    if pjrt is None and runtime.device_type() != "TPU":  # it takes the CPU then, without a word
        raise _nothing_there(pjrt, f"it would take the {runtime.device_type()}")
    if machines > 1:
        raise NotAvailableYet(
            f"training on {machines} machines by torch_xla (a TPU pod)",
            "Use one machine with all its devices.",
        )
    _Session.count = count
    return spmd.Mesh(np.arange(count), (count,), (AXIS,))


def _nothing_there(pjrt: str | None, why: str) -> DeviceError:
    return DeviceError(
        f"torch_xla finds no {pjrt or 'TPU'} here: {why}. Start the script on a TPU machine, after {INSTALL}. For a "
        "trial without one, set PJRT_DEVICE=CPU; to stay off it, use Accelerator(cpu=True)."
    )


def _loaded(storage: Any, location: str) -> Any:
    """
    For `torch.load(..., map_location=accelerator.device)`: tensors stay on the CPU.

    A tensor of torch_xla has no storage that could be read into; `load_state_dict` copies from the CPU just as well.
    """
    return storage if location.partition(":")[0] == DEVICE_TYPE else None


def begun() -> bool:
    """This process computes by torch_xla."""
    return _Session.mesh is not None


def device_count() -> int:
    """How many devices there are."""
    return _Session.count


# ---------------------------------------------------------------- how tensors lie on the devices


@cache
def _spec(shape: tuple[str | None, ...]) -> Any:
    import torch_xla.distributed.spmd as spmd

    return spmd.ShardingSpec(_Session.mesh, shape)


class _Rows:
    """The layout of a batch: a run of rows for each device."""

    minibatch = False

    def xla_spec(self, tensor: torch.Tensor) -> Any:
        if not cuts(tensor.shape):
            return None
        return _spec((AXIS, *[None] * (tensor.dim() - 1))).xla_spec(tensor)


_ROWS = _Rows()


def cuts(shape: torch.Size, dim: int = 0) -> bool:
    """
    There is a row for each device. Fewer rows stay whole on all devices.

    Where rows do not divide evenly, torch_xla fills up the last pieces, and what it fills them with counts in nothing.
    """
    return len(shape) > dim and shape[dim] >= _Session.count > 1


def send_rows(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of the CPU on the devices, each device with its run of rows."""
    from torch_xla.core.xla_model import send_cpu_data_to_device

    if not tensors:
        return []
    sent: list[torch.Tensor] = send_cpu_data_to_device(tensors, torch.device(DEVICE_TYPE, 0), _ROWS)
    return sent


def cut_rows(tensor: torch.Tensor, dim: int = 0) -> None:
    """Lay the rows of a tensor over the devices, where it has no layout yet."""
    if cuts(tensor.shape, dim) and not layout(tensor):
        _mark(tensor, tuple(AXIS if i == dim else None for i in range(tensor.dim())))


def lay_weight(tensor: torch.Tensor, sharded: bool) -> bool:
    """
    Keep a weight whole on every device; or, `sharded`, a piece of it on each, cut along its longest dimension.

    Returns:
        It is cut: the number of devices divides its longest dimension.
    """
    longest = max(range(tensor.dim()), key=lambda i: tensor.shape[i], default=0)
    cut = sharded and tensor.dim() > 0 and tensor.shape[longest] % _Session.count == 0 and _Session.count > 1
    _mark(tensor, tuple(AXIS if cut and i == longest else None for i in range(tensor.dim())))
    return cut


def _mark(tensor: torch.Tensor, axes: tuple[str | None, ...]) -> None:
    import torch_xla.distributed.spmd as spmd

    spmd.mark_sharding(tensor, _Session.mesh, axes)


def layout(tensor: torch.Tensor) -> str:
    """How a tensor was laid over the devices, in words of XLA; empty where nothing was said."""
    import torch_xla

    return str(torch_xla._XLAC._get_xla_sharding_spec(tensor))


# ---------------------------------------------------------------- what runs, and what was compiled for it


def sync() -> None:
    """Run what has been asked for since the last time, and do not wait for it."""
    _Session.torch_xla.sync()


def compilations() -> int:
    """How many graphs were compiled so far."""
    from torch_xla.debug.metrics import counter_value

    return int(counter_value(_COMPILED) or 0)


def missing_operations() -> dict[str, int]:
    """Operations that torch_xla lacks, which ran on the CPU, and how often."""
    from torch_xla.debug.metrics import counter_names, counter_value

    names = [name for name in counter_names() if name.startswith("aten::") and name != _READS]
    return {name: int(counter_value(name) or 0) for name in names}


# ---------------------------------------------------------------- random numbers


def seed(number: int) -> None:
    """Draw from here on. `torch.manual_seed` does not reach the devices of torch_xla."""
    from torch_xla.core.xla_model import set_rng_state

    set_rng_state(number % 2**64)


def rng_state() -> int:
    """Where the random numbers of the devices are."""
    from torch_xla.core.xla_model import get_rng_state

    state = int(get_rng_state())
    return state - 2**64 if state >= 2**63 else state


# ---------------------------------------------------------------- values


def is_laid_out(value: object) -> bool:
    """A tensor of torch_xla."""
    return isinstance(value, torch.Tensor) and value.device.type == DEVICE_TYPE


class ToCpu:
    """Copies tensors to the CPU. One that is met twice, by whichever view of it, is one tensor there, too."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], torch.Tensor] = {}

    def __call__(self, leaf: Any) -> Any:
        """The copy of a tensor of torch_xla; anything else as it is."""
        if not is_laid_out(leaf):
            return leaf
        import torch_xla

        key = torch_xla._XLAC._xla_get_tensor_id(leaf), tuple(leaf.shape)
        if key not in self._known:
            self._known[key] = leaf.detach().cpu()
        return self._known[key]
