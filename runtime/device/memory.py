"""Memory: letting go of it, and finding the batch size that fits."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch

from .kinds import current

_SIGNS = (
    " out of memory.",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.",
    "DefaultCPUAllocator: can't allocate memory",
    "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed",
)


def clear_device_cache(garbage_collection: bool = False) -> None:
    """Give memory that the accelerator's allocator holds, but nobody uses, back to the device."""
    if garbage_collection:
        gc.collect()
    current().empty_cache()


def release_memory(*objects: Any) -> list[None]:
    """
    Collect garbage and clear the cache of the device.

    Returns:
        As many Nones as there are arguments, for the names that held them: `a, b = release_memory(a, b)`.
    """
    count = len(objects)
    del objects
    clear_device_cache(garbage_collection=True)
    return [None] * count


def should_reduce_batch_size(exception: BaseException) -> bool:
    """The exception says that memory is short, on a device or on the host."""
    if isinstance(exception, torch.OutOfMemoryError):
        return True
    one = isinstance(exception, RuntimeError) and len(exception.args) == 1
    return one and any(sign in str(exception.args[0]) for sign in _SIGNS)


def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
) -> Callable[..., Any]:
    """
    Decorator: call a function with ever smaller batch sizes, until memory suffices.

    The size that was found is kept for later calls. On several processes, each looks for itself: let the function use
    `accelerator.reduce` where they must agree.

    Args:
        function: takes the batch size as its first argument, which callers leave out.
        starting_batch_size: the first to try.
        reduce_batch_size_fn: gives the next one; nine tenths of the last when None.

    Raises:
        RuntimeError: not even a batch of one fits.
        TypeError: a caller gave the batch size.
    """
    if function is None:
        return partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
        )
    size = starting_batch_size
    names = list(inspect.signature(function).parameters)
    called = getattr(function, "__name__", "function")

    @wraps(function)
    def attempt(*args: Any, **kwargs: Any) -> Any:
        nonlocal size
        if len(names) < len(args) + 1:
            given = ", ".join(f"{name}={value!r}" for name, value in zip(names[1:], args[1:], strict=False))
            raise TypeError(
                f"Batch size was passed into `{called}` as the first argument when called. "
                f"Remove this as the decorator already does so: `{called}({given})`"
            )
        while size > 0:
            clear_device_cache(garbage_collection=True)
            try:
                return function(size, *args, **kwargs)
            except RuntimeError as error:
                if not should_reduce_batch_size(error):
                    raise
            size = int(size * 0.9) if reduce_batch_size_fn is None else reduce_batch_size_fn()
        raise RuntimeError("No executable batch size found, reached zero.")

    return attempt
