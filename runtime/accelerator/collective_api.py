"""What all processes do together: gather, reduce, broadcast. The part of the facade that exchanges values."""

from __future__ import annotations

from typing import Any

import torch

from ..collectives import gather as gathering
from ..collectives.objects import broadcast_objects, gather_object_lists
from ..collectives.reduce import NEUTRAL, reduce
from ..collectives.trees import only_tensors, rebuild, tensors_of
from ..collectives.world import World
from ..data.remainder import real_rows
from ..types import Tree
from .process_api import Placed


class Collectives(Placed):
    """Methods of `Accelerator` that every process calls, each with its own values."""

    _world: World
    _trigger: bool

    def gather(self, tensor: Tree) -> Tree:
        """
        Join tensors of all processes along their first dimension, in order of the processes.

        Args:
            tensor: a tensor or a tree of them. First dimensions may differ; a scalar becomes a vector of N values.

        Raises:
            TypeError: a leaf is no tensor.
            CollectiveError: other dimensions differ.
        """
        return gathering.gather(self._world, tensor)

    def gather_for_metrics(self, input_data: Tree, use_gather_object: bool = False) -> Tree:
        """
        `gather` without the duplicated rows that completed a batch, in the order of the script's loader.

        Args:
            input_data: one row per row of the batch in hand, or of all batches of the pass so far when collected.
                Scalars give one value per process. What is no tensor is gathered as objects, from a list.
            use_gather_object: gather objects, whatever they are.

        Raises:
            RemainderError: there are duplicates, and the rows do not fit the batch.
        """
        if self._world.alone:
            return input_data
        if use_gather_object or not only_tensors(input_data):
            parts = gather_object_lists(self._world, input_data)
            segments = real_rows(self._progress, tuple(map(len, parts)))
            return [item for rank, start, end in segments for item in parts[rank][start:end]]
        tensors = tensors_of(input_data, "gather_for_metrics")
        gathered = gathering.gather_pieces(self._world, tensors)
        joined = []
        for index, (tensor, pieces) in enumerate(zip(tensors, gathered.pieces, strict=True)):
            if tensor.dim() == 0:
                joined.append(torch.cat(pieces))
            else:
                kept = real_rows(self._progress, gathered.rows(index), tensors)
                joined.append(torch.cat([pieces[0][:0], *(pieces[rank][start:end] for rank, start, end in kept)]))
        return rebuild(input_data, joined)

    def reduce(self, tensor: Tree, reduction: str = "sum", scale: float = 1.0) -> Tree:
        """
        Join tensors of equal shapes element by element; every process gets the result.

        The mean of a single number (a loss) that is taken while a batch is in hand counts each process by the rows of
        its share, so that it is the number of the whole batch also where shares differ. A number of a process that has
        no rows of the batch in hand counts in no reduction.

        Args:
            tensor: a tensor or a tree of them.
            reduction: "sum", "mean", "max", "min" or "product".
            scale: a factor for the result.

        Raises:
            UnknownWordError: no such reduction.
            CollectiveError: a mean of whole numbers, or shapes that differ.
        """
        if isinstance(tensor, torch.Tensor) and not tensor.dim() and tensor.is_floating_point():
            weight = self._progress.weight(self.process_index)
            if not weight and reduction in NEUTRAL:  # a process without rows has nothing to say
                tensor = torch.full_like(tensor.detach(), NEUTRAL[reduction])
            elif weight != 1.0 and reduction in ("mean", "avg"):
                tensor = tensor.detach() * weight
        return reduce(self._world, tensor, reduction, scale)

    def pad_across_processes(self, tensor: Tree, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Tree:
        """Fill tensors with `pad_index` up to the longest of all processes in dimension `dim`."""
        return gathering.pad_across_processes(self._world, tensor, dim, pad_index, pad_first)

    def broadcast(self, tensor: Tree, from_process: int = 0) -> Tree:
        """The tensors of one process, on all of them; shapes must be equal everywhere."""
        return gathering.broadcast(self._world, tensor, from_process)

    def broadcast_object_list(self, object_list: list[Any], from_process: int = 0) -> list[Any]:
        """Replace the contents of a list by those of one process, in place; they are pickled."""
        return broadcast_objects(self._world, object_list, from_process)

    def set_trigger(self) -> None:
        """Raise a flag on this process, for `check_trigger` on all of them."""
        self._trigger = True

    def check_trigger(self) -> bool:
        """Whether any process has raised the flag since the last check. Call it on all processes."""
        raised = torch.tensor(int(self._trigger), device=self.device)
        answer = bool(reduce(self._world, raised, "max").item())
        if answer:
            self._trigger = False
        return answer

    def check_breakpoint(self) -> bool:
        """The same as `check_trigger`."""
        return self.check_trigger()
