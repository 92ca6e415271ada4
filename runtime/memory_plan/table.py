"""The estimate as a table of lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..config.fsdp import FullyShardedDataParallelPlugin
from ..errors import ConfigError, UnknownWordError
from .estimate import PRECISIONS, MemoryNeeds, figures
from .target import MeasuredModel, read_target

_STEP = 1024.0
_HEAD = ("precision", "processes", "weights", "gradients", "optimizer", "gathered", "in all")


def lines(
    target: str,
    precisions: Sequence[str],
    optimizer: str,
    shards: Sequence[int],
    blocks: str | None = None,
    min_num_params: int | None = None,
) -> Iterator[str]:
    """
    Estimate a model in several configurations.

    Args:
        target: see `read_target`.
        precisions: names in `PRECISIONS`.
        optimizer: a class of torch.optim.
        shards: among how many processes weights are sharded, each.
        blocks: the classes of the modules that are gathered by themselves, separated by commas.
        min_num_params: the same by their size.

    Raises:
        ConfigError, UnknownWordError: something of it cannot be.
    """
    for word in precisions:
        if word not in PRECISIONS:
            raise UnknownWordError("the precision", word, list(PRECISIONS))
    model = read_target(target)
    if model.module is None and (blocks or min_num_params):
        raise ConfigError("files say nothing about modules: --block and --min-num-params need MODULE:FACTORY.")
    plugin = FullyShardedDataParallelPlugin(
        transformer_cls_names_to_wrap=blocks,
        auto_wrap_policy="SIZE_BASED_WRAP" if min_num_params else None,
        min_num_params=min_num_params,
    )
    rows = [
        (word, str(count), *_row(figures(model, PRECISIONS[word], optimizer, count, plugin)))
        for word in precisions
        for count in shards
    ]
    yield from _head(model, optimizer)
    yield ""
    yield from _columns([_HEAD, *rows])
    yield ""
    yield "Bytes on one process. Activations, the allocator and the libraries of the device come on top."
    if any(count > 1 for count in shards):
        yield "gathered: the largest unit of a sharded model, whole, with its gradients."
    if model.module is None:
        yield "Files do not say what is trained, nor which modules are blocks: all floating-point tensors count as"
        yield "trained, and the whole model as one unit. MODULE:FACTORY says more."


def _head(model: MeasuredModel, optimizer: str) -> Iterator[str]:
    parameters = [one for one in model.weights if one.parameter]
    count = sum(_numbers(one.shape) for one in parameters)
    trained = sum(_numbers(one.shape) for one in parameters if one.trained)
    yield f"{model.name}: {count:,} parameters, {trained:,} of them trained, with {optimizer}"


def _numbers(shape: Sequence[int]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found


def _row(found: MemoryNeeds) -> tuple[str, ...]:
    sizes = (found.weights, found.gradients, found.optimizer, found.gathered, found.total)
    return tuple(map(readable, sizes))


def readable(size: float) -> str:
    """Bytes in the largest unit that gives a number from 1 on."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} TiB"


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        first, *rest = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  ".join([first.strip().ljust(widths[0]), *rest])
