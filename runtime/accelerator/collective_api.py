"""What all processes do together: gather, reduce, broadcast. The part of the facade that exchanges values."""

from __future__ import annotations

from typing import Any

import torch

from ..collectives import gather as gathering
from ..collectives.objects import broadcast_objects
from ..collectives.reduce import of_rows, reduce
from ..collectives.world import World
from ..data.hand_batches import HandBatches
from ..data.metrics import gather_for_metrics
from ..types import Tree
from .process_api import Placed
from .raw_loaders import unprepared_loader


class Collectives(Placed):
    """Methods of `Accelerator` that every process calls, each with its own values."""

    _world: World
    _trigger: bool
    _hand_batches: HandBatches

    def shard_batch(self, batch: Tree, dim: int = 0) -> Tree:
        """
        This process's rows of a batch that the script makes without a loader.

        The batch can be drawn at random, sliced from a table, or be the whole data at once. That of rank 0 counts, so
        that a random draw needs no common seed; all processes call this alike. Its rows are cut into one run for each
        process, as evenly as possible. `backward` weights the losses of uneven shards, so that N processes compute
        what one process computes. A process for which there is no row gets one of another process, which counts
        nothing.

            for step in range(1000):
                rows = accelerator.shard_batch(torch.randint(len(x), (64,)))
                loss = criterion(model(x[rows]), y[rows])
                accelerator.backward(loss)

        Args:
            batch: a tensor, an array, a list with one thing for each row, or a tree of them. All have the same length
                along `dim`; numbers and texts beside them stay. Things that are lists or tuples themselves are given
                as a tuple of columns.
            dim: the dimension of the rows. The columns of a text, `(steps, batch)`, are `dim=1`.

        Returns:
            The same tree with the rows of this process: new tensors of the same type, on the device on which they
            were. On one process the batch itself.

        Raises:
            BatchShapeError: no rows, different numbers of them, a list whose lists may be rows or columns, or a tensor
                that was computed from weights.
        """
        return self._hand_batches.shard(batch, dim)

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

        Trees are gathered leaf by leaf: tensors as tensors; lists of other things (texts, ids, a dict for each row) and
        arrays as objects, one for each row; a text or a number of its own gives a list with one for each process.
        Batches of graphs that can be taken apart and put together (`to_data_list`) are.

        Args:
            input_data: one row per row of the batch in hand, or several; or those of all batches of the pass so far
                when collected. Scalars give one value per process.
            use_gather_object: gather a list of objects, whatever they are.

        Raises:
            RemainderError: there are duplicates, and the rows do not fit the batch.
            WrongKindError: an object that cannot be cut into rows; the message says what to hand over.
        """
        if self._world.alone:
            return input_data
        return gather_for_metrics(self._world, self._progress, input_data, use_gather_object, unprepared_loader)

    def reduce(self, tensor: Tree, reduction: str = "sum", scale: float = 1.0) -> Tree:
        """
        Join tensors of equal shapes element by element; every process gets the result.

        In a loop over a prepared loader the tensors are taken to be those of the batch in hand. The mean of a single
        number (a loss) counts each process by the rows of its shard, so that it is the number of the whole batch also
        where shards differ. Tensors of a process that has no rows of the batch count in no reduction: the row that it
        computes with there is another process's. What was collected over many batches is reduced after the loop.

        "sum_of_means" is what the means of the script's batches add up to, to go on with as the script does: the sum
        where every process has a batch of its own, without those that only complete a round, and the mean where one
        batch is split. It is a word of torchlift's, not of Accelerate's.

        Args:
            tensor: a tensor or a tree of them.
            reduction: "sum", "sum_of_means", "mean", "max", "min" or "product".
            scale: a factor for the result.

        Raises:
            UnknownWordError: no such reduction.
            CollectiveError: a mean of whole numbers, or shapes that differ.
        """
        shares = self._progress.in_hand()
        if shares is not None:
            tensor = of_rows(
                tensor,
                reduction,
                self.process_index,
                weights=shares.weights,
                of_means=shares.part_of_means(self.process_index),
            )
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
