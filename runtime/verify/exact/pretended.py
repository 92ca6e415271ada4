"""
A pretended accelerator: tensors stay on the CPU, and know on which device they would be.

Where a script that runs on a machine without an accelerator would mix devices on one with, the same error comes here.
What runs inside one operation is not looked at, and memory, speed and half precision are those of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cuda", 0)
"""What is pretended: the device that most scripts name."""

_MARK = "_pretended"
_TO = frozenset({"to", "cuda", "cpu", "type", "data", "copy_", "set_"})
_ANY_INDEX = frozenset({"__getitem__", "__setitem__", "index_put_"})
_HOST_ONLY = frozenset({"numpy", "__array__"})
_MAY_MIX = frozenset(
    {"_pack_padded_sequence", "pack_padded_sequence", "_has_compatible_shallow_copy_type", "swap_tensors"}
)


class MixedDevices(RuntimeError):
    """What torch says on an accelerator when an operation is given tensors of several devices."""


class NotOnHost(TypeError):
    """What torch says when a tensor of an accelerator is read as if it were in the memory of the CPU."""


class Pretended(TorchFunctionMode):
    """While it is active, `cuda` is a device that every tensor can be moved to."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operation of torch on the CPU, and keep the books."""
        named = dict(kwargs or {})
        name = _name(func)
        if name == "device":
            return DEVICE if _pretended(args[0]) else func(*args)
        if name == "is_cuda":
            return _pretended(args[0])
        if name == "get_device":
            return 0 if _pretended(args[0]) else func(*args)
        if name in _HOST_ONLY and _pretended(args[0]):
            raise NotOnHost(f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() first.")
        if name == "__deepcopy__":  # beside it are the copies that were made before
            return mark(func(*args, **named), _pretended(args[0]))
        if name in _TO and args and isinstance(args[0], torch.Tensor):
            return _moved(func, name, args, named)
        return _computed(func, name, args, named)


def _name(func: Any) -> str:
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return str(name)


def _pretended(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and getattr(value, _MARK, False)


def there(value: Any) -> bool:
    """Whether something is a tensor on the pretended device."""
    return _pretended(value)


def mark(value: Any, there: bool = True) -> Any:
    """Say of every tensor of a tree that it is on the pretended device, or not."""
    for tensor in _tensors((value,)):
        if there or hasattr(tensor, _MARK):
            setattr(tensor, _MARK, there)
    return value


def _tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, Mapping):
            yield from _tensors(value.values())


def _is_pretended_device(value: Any) -> bool:
    if isinstance(value, str):
        return value.startswith(DEVICE.type)
    return isinstance(value, torch.device) and value.type == DEVICE.type


def _moved(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A move, or what may cross devices."""
    tensor, there = args[0], _pretended(args[0])
    if name == "copy_":
        return func(*args, **named)
    if name == "data" and len(args) == 1:
        return mark(func(*args), there)
    if name in ("data", "set_"):
        result = func(*args, **named)
        mark(tensor, _pretended(args[1]))
        return result
    if name == "cuda":
        return tensor if there else mark(tensor.clone())
    if name == "cpu":
        return mark(tensor.clone(), False) if there else func(*args, **named)
    wanted, rest = there, []
    for value in args[1:]:
        if isinstance(value, torch.Tensor):
            wanted = _pretended(value)
        elif isinstance(value, (str, torch.device)) and name == "to":
            wanted = _is_pretended_device(value)
            value = "cpu"
        elif name == "type" and isinstance(value, _Legacy):
            wanted, value = True, value.plain
        elif name == "type" and not isinstance(value, torch.dtype):  # a type of the CPU, or the name of a type
            wanted = str(value).startswith("torch.cuda.")
            value = value.replace("torch.cuda.", "torch.") if isinstance(value, str) else value
        rest.append(value)
    if named.get("device") is not None:
        wanted, named["device"] = _is_pretended_device(named["device"]), "cpu"
    result = func(tensor, *rest, **named)
    if wanted != there and result is tensor:
        result = tensor.clone()
    return mark(result, wanted) if isinstance(result, torch.Tensor) else result


def _computed(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    wanted = None
    if named.get("device") is not None:
        wanted, named["device"] = _is_pretended_device(named["device"]), "cpu"
    given = list(_tensors((args, named)))
    there = any(map(_pretended, given))
    if there and name not in ("__repr__", "__str__", "__format__"):
        _check(name, args, given)
    result = func(*args, **named)
    on = wanted if wanted is not None else there
    return mark(result, on) if on else result


def _check(name: str, args: tuple[Any, ...], given: list[torch.Tensor]) -> None:
    if name in _MAY_MIX:
        return
    if name in _ANY_INDEX and (_pretended(args[0]) or not any(_pretended(t) and t.dim() > 0 for t in given)):
        return  # an index may be on the CPU, and a single number anywhere
    home = [t for t in given if not _pretended(t) and t.dim() > 0]
    if home:
        raise MixedDevices(
            f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE} and cpu! "
            f"(in {name})"
        )


class _Legacy:
    """A tensor type of the accelerator, `torch.cuda.FloatTensor`."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def __call__(self, *args: Any) -> Any:
        """Make a tensor as the type of the CPU does."""
        return mark(self.plain(*args))


class _Stream:
    """A queue of work that is always done."""

    def is_capturing(self) -> bool:
        """No graph is ever captured."""
        return False

    def synchronize(self) -> None:
        """Wait for nothing."""


def install() -> None:
    """Pretend, from here to the end of the process, that it has one accelerator."""
    answers: dict[tuple[Any, str], Any] = {
        (torch.cuda, "is_available"): True,
        (torch.cuda, "device_count"): 1,
        (torch.cuda, "current_device"): 0,
        (torch.cuda, "is_bf16_supported"): True,
        (torch.cuda, "get_device_name"): "pretended",
        (torch.cuda, "synchronize"): None,
        (torch.cuda, "empty_cache"): None,
        (torch.cuda, "set_device"): None,
        (torch.cuda, "memory_allocated"): 0,
        (torch.cuda, "max_memory_allocated"): 0,
        (torch.cuda, "reset_peak_memory_stats"): None,
        (torch.cuda, "manual_seed"): None,
        (torch.cuda, "manual_seed_all"): None,
        (torch.accelerator, "is_available"): True,
        (torch.accelerator, "device_count"): 1,
        (torch.accelerator, "current_accelerator"): torch.device(DEVICE.type),
        (torch.accelerator, "current_device_index"): 0,
        (torch.accelerator, "set_device_index"): None,
        (torch.accelerator, "set_device_idx"): None,
        (torch.accelerator, "synchronize"): None,
        (torch.accelerator, "current_stream"): _Stream(),
        (torch.cuda, "current_stream"): _Stream(),
        (torch.cuda, "is_current_stream_capturing"): False,
    }
    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"):
        setattr(torch.cuda, f"{name}Tensor", _Legacy(getattr(torch, f"{name}Tensor")))
    for (module, name), answer in answers.items():
        setattr(module, name, _always(answer))
    # Loaders pin in a thread of their own, where no mode is active.
    torch.Tensor.pin_memory = lambda tensor, *_: tensor  # type: ignore[method-assign]
    torch.Tensor.record_stream = lambda tensor, *_: None  # type: ignore[method-assign]
    made = torch.nn.Parameter.__new__

    def made_there(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:  # of a copied module, too
        return mark(made(cls, data, requires_grad), _pretended(data))

    setattr(torch.nn.Parameter, "__new__", made_there)  # noqa: B010
    load = torch.load

    def load_there(file: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
        there = _is_pretended_device(map_location)
        return mark(load(file, "cpu" if there else map_location, *args, **options), there)

    setattr(torch, "load", load_there)  # noqa: B010
    mode: Any = Pretended()
    mode.__enter__()


def _always(answer: Any) -> Callable[..., Any]:
    def given(*args: object, **options: object) -> Any:
        return answer

    return given
