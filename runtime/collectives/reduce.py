"""Reducing trees: one collective for all tensors of a type."""

from __future__ import annotations

from math import inf
from typing import Any

import torch

from ..device.placement import map_tree
from ..errors import CollectiveError, UnknownWordError
from ..types import Reduction, Tree
from .trees import rebuild, tensors_of
from .world import World


def parse_reduction(word: str) -> Reduction:
    """
    Turn a word into a reduction ("avg" is "mean").

    Raises:
        UnknownWordError: for any other word.
    """
    word = "mean" if word == "avg" else word
    if word not in Reduction.list():
        raise UnknownWordError("reduction", word, Reduction.list())
    return Reduction(word)


def of_rows(tree: Tree, reduction: str, rank: int, *, weights: tuple[float, ...], of_means: float) -> Tree:
    """
    Tensors that were computed from the rows of a batch, as they count in a reduction.

    Those of a process without rows count in none: what stands for a row there is one of another process. The mean of
    single numbers becomes that over the rows.

    Args:
        tree: of this process.
        reduction: how they are going to be joined.
        rank: this process.
        weights: what a mean over the rows of each process counts; 0 for those without rows.
        of_means: what that of this process counts in a sum of the means of the script's batches.
    """
    word = parse_reduction(reduction)
    having = len([one for one in weights if one])

    def counted(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        exact = not (leaf.is_floating_point() or leaf.is_complex())
        if word is Reduction.SUM_OF_MEANS and not exact:
            return leaf.detach() * of_means if of_means else torch.zeros_like(leaf.detach())
        if not weights[rank]:
            return torch.full_like(leaf.detach(), _neutral(word, leaf.dtype))
        if word is not Reduction.MEAN or exact:
            return leaf
        factor = len(weights) / having if leaf.dim() else weights[rank]
        return leaf if factor == 1.0 else leaf.detach() * factor

    return map_tree(counted, tree)


def _neutral(word: Reduction, dtype: torch.dtype) -> float | bool:
    """What changes no result."""
    if word in (Reduction.SUM, Reduction.MEAN):
        return 0
    if word is Reduction.PRODUCT or dtype.is_complex:
        return 1
    least = word is Reduction.MAX
    if dtype is torch.bool:
        return not least
    if dtype.is_floating_point:
        return -inf if least else inf
    limits = torch.iinfo(dtype)
    return limits.min if least else limits.max


def reduce(world: World, tree: Tree, reduction: str = "sum", scale: float = 1.0) -> Tree:
    """
    Join the tensors of all ranks element by element; every rank gets the result, as new tensors.

    Args:
        world: the processes.
        tree: tensors of equal shapes everywhere. Booleans: "max" is "any", "min" is "all"; they cannot be added.
        reduction: "sum", "sum_of_means", "mean", "max", "min" or "product".
        scale: a factor for the result.

    Raises:
        UnknownWordError: no such reduction.
        CollectiveError: the mean of whole numbers or a sum of such means, the sum of booleans, or shapes that differ.
    """
    word = parse_reduction(reduction)
    tensors = tensors_of(tree, "reduce")
    for tensor in tensors:
        _check(tensor, word)
    reduced = [t.detach().clone() for t in tensors] if world.alone else _reduce_all(world, tensors, word)
    return rebuild(tree, reduced if scale == 1.0 else [tensor * scale for tensor in reduced])


def _check(tensor: torch.Tensor, word: Reduction) -> None:
    if word in (Reduction.MEAN, Reduction.SUM_OF_MEANS) and not (tensor.is_floating_point() or tensor.is_complex()):
        raise CollectiveError(
            f"reduce: the mean of a {tensor.dtype} tensor would be truncated to whole numbers. Reduce tensor.float()."
        )
    if tensor.dtype is torch.bool and word not in (Reduction.MAX, Reduction.MIN):
        raise CollectiveError(f"reduce: boolean tensors have no {word}. Reduce tensor.long(), or use 'max' or 'min'.")


def _reduce_all(world: World, tensors: list[torch.Tensor], word: Reduction) -> list[torch.Tensor]:
    world.note(f"reduce {word}", tensors)
    groups = {
        dtype: [i for i, tensor in enumerate(tensors) if tensor.dtype is dtype]
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors)
    }
    flats = [
        _travelling(torch.cat([tensors[i].detach().reshape(-1).to(world.device) for i in members]))
        for members in groups.values()
    ]
    counts = world.reduce(flats, word, [tensor.numel() for tensor in tensors])
    if any(row != counts[0] for row in counts):
        raise CollectiveError(
            f"reduce: the tensors have different sizes on the ranks (elements per rank: {counts}). Use "
            "accelerator.gather for rows, or accelerator.pad_across_processes first."
        )
    results: dict[int, torch.Tensor] = {}
    for (dtype, members), flat in zip(groups.items(), flats, strict=True):
        if word is Reduction.MEAN:
            flat /= world.size
        start = 0
        for i in members:
            end = start + tensors[i].numel()
            results[i] = flat[start:end].view(tensors[i].shape).to(tensors[i].device, dtype, copy=True)
            start = end
    return [results[i] for i in range(len(tensors))]


def _travelling(flat: torch.Tensor) -> torch.Tensor:
    """In a type that every back end can reduce, without loss."""
    if flat.dtype in (torch.bool, torch.int8, torch.int16):
        return flat.to(torch.int32)
    if flat.device.type == "cpu" and flat.dtype in (torch.bfloat16, torch.float16):
        return flat.float()
    return flat
