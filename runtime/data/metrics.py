"""Gathering for metrics: trees of anything, leaf by leaf, without the rows that completed a batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..collectives.gather import gather_pieces
from ..collectives.objects import gather_object_lists
from ..collectives.world import World
from ..device.placement import is_container, map_items, map_tree, tensors_in
from ..errors import WrongKindError
from ..types import Tree
from .progress import Progress
from .remainder import Handed, Segment, real_rows

Hint = Callable[[tuple[int, ...]], str]
_SINGLE = (str, bytes, bool, int, float, complex)


@dataclass
class _Column:
    """A leaf that is no tensor: objects, one for each row, or one for all."""

    objects: Any
    """What is sent, a list or an array."""
    join: Callable[[list[Any]], Any]
    """Makes the leaf of the pieces of all processes."""
    rows: bool = True
    """There is one object for each row."""


def gather_for_metrics(world: World, progress: Progress, tree: Tree, as_objects: bool, hint: Hint) -> Tree:
    """
    The tree with the rows of all processes, each row of the data set once.

    Args:
        world: several processes.
        progress: the passes that rows may come from.
        tree: of this process; of the same structure on all.
        as_objects: it is a list of objects, whatever they are.
        hint: what more there is to say about so many rows that fit no batch.

    Raises:
        RemainderError: there are duplicates, and the rows do not fit the batch.
        WrongKindError: an object that cannot be cut into rows.
    """
    if as_objects:
        parts = gather_object_lists(world, tree)
        (segments,) = real_rows(progress, [Handed(tuple(map(len, parts)), "objects")], hint=hint)
        return [item for rank, start, end in segments for item in parts[rank][start:end]]
    tree, columns = _with_columns(world, progress, tree)
    return _gathered(world, progress, tree, columns, hint)


def _gathered(world: World, progress: Progress, tree: Tree, columns: list[_Column], hint: Hint) -> Tree:
    tensors = tensors_in(tree)
    pieces = gather_pieces(world, tensors).pieces if tensors else []
    handed = [
        Handed(tuple(map(len, of_ranks)), (tensor.shape[1:], tensor.dtype))
        for tensor, of_ranks in zip(tensors, pieces, strict=True)
        if tensor.dim()
    ]
    parts = gather_object_lists(world, [column.objects for column in columns]) if columns else []
    objects = [list(of_ranks) for of_ranks in zip(*parts, strict=True)]
    handed += [
        Handed(tuple(map(len, of_ranks)), number)
        for number, (column, of_ranks) in enumerate(zip(columns, objects, strict=True))
        if column.rows
    ]
    kept = iter(real_rows(progress, handed, tensors, hint))
    joined = iter(
        [
            _joined(of_ranks, next(kept)) if tensor.dim() else torch.cat(of_ranks)
            for tensor, of_ranks in zip(tensors, pieces, strict=True)
        ]
    )
    whole = {
        id(column): column.join([of_ranks[r][a:b] for r, a, b in next(kept)] if column.rows else of_ranks)
        for column, of_ranks in zip(columns, objects, strict=True)
    }

    def put(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return next(joined)
        return whole[id(leaf)] if isinstance(leaf, _Column) else leaf

    return map_tree(put, tree)


def _joined(pieces: list[torch.Tensor], segments: list[Segment]) -> torch.Tensor:
    return torch.cat([pieces[0][:0], *(pieces[rank][start:end] for rank, start, end in segments)])


# ---------------------------------------------------------------- what is no tensor


def _with_columns(world: World, progress: Progress, tree: Tree) -> tuple[Tree, list[_Column]]:
    """The tree with a column in the place of every leaf that is neither a tensor nor None; and these."""
    apart = {id(one) for one in _records(world, progress, tree)}
    columns: list[_Column] = []

    def walk(part: Any) -> Any:
        if part is None or isinstance(part, torch.Tensor):
            return part
        if id(part) not in apart and _is_tree(part):
            return map_items(walk, part)
        columns.append(_column(part))
        return columns[-1]

    return walk(tree), columns


def _records(world: World, progress: Progress, tree: Tree) -> list[Any]:
    """
    Lists of a tree that hold a dict, or a tuple, with tensors for each row: the boxes of every picture, for one.

    A list of as many as the batch has rows may be a part of the tree all the same, if its tensors have as many
    rows. One process cannot tell; all decide together, and as before in this pass where none of them can.
    """
    found: list[Any] = []
    _find_lists(tree, found)
    one = progress.latest
    if not found or one is None or one.shares is None:
        return []
    rows = one.shares.rows[world.rank]
    world.note("gather_for_metrics, lists with tensors in them")
    told = world.gather_numbers([2 * (len(each) == rows) + _surely_apart(each, rows) for each in found])
    chosen = []
    for number, (each, answers) in enumerate(zip(found, zip(*told, strict=True), strict=True)):
        fits, certain = all(answer >= 2 for answer in answers), any(answer % 2 for answer in answers)
        if fits and certain:
            one.records.add(number)
        if fits and (certain or number in one.records):
            chosen.append(each)
    return chosen


def _find_lists(tree: Any, found: list[Any]) -> None:
    if isinstance(tree, torch.Tensor) or not is_container(tree):
        return
    dicts = type(tree) in (list, tuple) and all(isinstance(one, Mapping) for one in tree)
    if (dicts or (type(tree) is list and all(map(is_container, tree)))) and tensors_in(tree):
        found.append(tree)
    else:
        for part in tree.values() if isinstance(tree, Mapping) else tree:
            _find_lists(part, found)


def _surely_apart(each: Any, rows: int) -> bool:
    """What is in a list is no part of a tree: a dict for each row, or tensors whose rows are not those of the batch."""
    if all(isinstance(one, Mapping) for one in each):
        return True
    return any(not tensor.dim() or len(tensor) != rows for tensor in tensors_in(each))


def _is_tree(part: Any) -> bool:
    """It is walked on. A list without any tensor in it holds one object for each row."""
    if not is_container(part):
        return False
    return isinstance(part, Mapping) or hasattr(part, "_fields") or bool(tensors_in(part))


def _column(part: Any) -> _Column:
    numpy = sys.modules.get("numpy")
    if isinstance(part, _SINGLE):
        return _Column([part], lambda pieces: [one for piece in pieces for one in piece], rows=False)
    if type(part) in (list, tuple):
        return _Column([_sendable(one) for one in part], lambda pieces: type(part)(_chained(pieces, part)))
    if numpy is not None and isinstance(part, numpy.ndarray) and part.ndim:
        return _Column(part, lambda pieces: numpy.concatenate([part[:0], *pieces]))
    if hasattr(part, "to_data_list") and hasattr(type(part), "from_data_list"):  # a batch of graphs
        return _Column(part.to_data_list(), lambda pieces: type(part).from_data_list(_chained(pieces, None)))
    raise WrongKindError(
        f"gather_for_metrics was given a {type(part).__name__}, which it cannot cut into rows and join. "
        f"{_fields_of(part)}"
    )


def _sendable(record: Any) -> Any:
    """Tensors in it bring their own elements alone, not the whole batch that they are views of."""
    return map_tree(lambda leaf: leaf.detach().cpu().clone() if isinstance(leaf, torch.Tensor) else leaf, record)


def _chained(pieces: list[Any], like: Any) -> list[Any]:
    """The objects of all processes; tensors in them are on the device of those that this process handed in."""
    device = next((one.device for one in tensors_in(like)), None)
    found = [one for piece in pieces for one in piece]
    if device is None or device.type == "cpu":
        return found
    return [map_tree(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, one) for one in found]


def _fields_of(part: Any) -> str:
    """What to hand over instead."""
    held = getattr(part, "__dict__", None) or {name: getattr(part, name, None) for name in _slots_of(part)}
    store = held.get("_store")
    held = {**held, **store} if isinstance(store, Mapping) else held
    names = [name for name, value in held.items() if isinstance(value, torch.Tensor) and value.dim()]
    if not names:
        return "Hand over tensors, or a list with one object for each row of the batch."
    return (
        f"Hand over those of its tensors that have one row for each row of the batch; it has: {', '.join(names)}. For "
        f"one of them: accelerator.gather_for_metrics(batch.{names[0]})."
    )


def _slots_of(part: Any) -> list[str]:
    return [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
