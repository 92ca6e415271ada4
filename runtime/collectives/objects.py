"""Python objects over all processes (pickled)."""

from __future__ import annotations

import pickle
from typing import Any

import torch

from .world import World


def gather_objects(world: World, mine: list[Any]) -> list[Any]:
    """The lists of all ranks, joined in rank order. Alone, the list itself."""
    return mine if world.alone else [item for part in gather_object_lists(world, mine) for item in part]


def gather_object_lists(world: World, mine: list[Any]) -> list[list[Any]]:
    """
    The lists of all ranks, one per rank.

    Raises:
        ValueError: not a list.
    """
    if not isinstance(mine, (list, tuple)):
        raise ValueError(
            f"gathering objects needs a list; this is a {type(mine).__name__}. Wrap it: "
            "accelerator.gather_for_metrics([value], use_gather_object=True)."
        )
    if world.alone:
        return [list(mine)]
    world.note("gather of objects")
    packed = _pickled(world, list(mine))
    lengths, rows = world.gather_packs(
        [packed.numel()],
        lambda numbers: numbers[0],
        lambda length: torch.nn.functional.pad(packed, (0, length - len(packed))),
    )
    return [_unpickled(row[:length]) for row, (length,) in zip(rows.cpu(), lengths, strict=True)]


def broadcast_objects(world: World, objects: list[Any], source: int = 0) -> list[Any]:
    """Replace the contents of `objects` by those of rank `source`, in place; the same list is returned."""
    if not world.alone:
        world.note(f"broadcast of objects from {source}")
        packed = world.broadcast_bytes(_pickled(world, list(objects)) if world.rank == source else None, source)
        if world.rank != source:
            objects[:] = _unpickled(packed)
    return objects


def _pickled(world: World, value: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8).to(world.device)


def _unpickled(packed: torch.Tensor) -> Any:
    """From a process of this job, as trusted as this one."""
    return pickle.loads(packed.cpu().contiguous().numpy().tobytes())
