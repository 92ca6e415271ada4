"""What is remembered of the batches that are on their way through a script."""

from __future__ import annotations

import pytest
import torch

from torchlift.runtime.data.loss_batch import CURRENT, shares_of_loss
from torchlift.runtime.data.progress import Pass, Progress, memory_of
from torchlift.runtime.data.shares import ShardPlan, weighted
from torchlift.runtime.errors import UnclearBatchError


def handed_out(progress: Progress, plan: ShardPlan, rows: int) -> tuple[Pass, torch.Tensor]:
    """A pass with a batch in hand, three rows on the first process and so many on the second."""
    one, batch = Pass(None), torch.ones(3, 1)
    one.plan = plan
    progress.began(one)
    progress.yielded(one)
    one.advance(weighted((3, rows), (3, rows)), None)
    progress.handed_out(one, batch)
    return one, batch


def test_a_batch_that_was_moved_to_another_device_is_known_again() -> None:
    progress = Progress()
    progress.moved(torch.ones(2))  # nothing has been handed out yet
    one, batch = handed_out(progress, ShardPlan(), 3)
    moved = batch.clone()
    assert one.gave([batch]) and not one.gave([moved])
    progress.moved(moved)
    assert one.gave([moved[1:]]) and not one.gave([batch])


@pytest.mark.parametrize("even", [True, False])
def test_it_is_asked_which_batch_a_loss_is_of_where_shards_can_differ(even: bool) -> None:
    progress, weight = Progress(), torch.ones(1, requires_grad=True)
    plan = ShardPlan(even=even, full=even)
    held = [handed_out(progress, plan, rows) for rows in (3, 2)]
    loss = sum(((batch * weight).sum() for _, batch in held), torch.zeros(()))
    assert progress.asks is not even
    if even:
        assert shares_of_loss(progress, loss, CURRENT, False) == held[1][0].shares
    else:
        with pytest.raises(UnclearBatchError, match="the script holds batches of two loaders"):
            shares_of_loss(progress, loss, CURRENT, False)


def test_views_are_known_by_their_memory_and_other_tensors_are_not_taken_for_them() -> None:
    """Where memory has no address (sparse, another device), all tensors had the same answer: 0."""
    rows = torch.ones(3, 2)
    assert memory_of(rows) == memory_of(rows[1:].T) != memory_of(rows.clone())
    for one, other in ((rows.to_sparse(), rows.to_sparse()), (rows.to("meta"), rows.to("meta"))):
        assert memory_of(one) == memory_of(one) != memory_of(other)


def test_the_pass_that_hands_out_again_is_the_latest() -> None:
    """An evaluation inside its loop had ended: its last batch was taken for the one in hand, and rows were left out."""
    progress = Progress()
    training, _ = handed_out(progress, ShardPlan(), 3)
    evaluation, _ = handed_out(progress, ShardPlan(), 2)
    progress.finished(evaluation)
    assert progress.latest is evaluation
    progress.yielded(training)
    assert progress.latest is training
    assert next(iter(progress.candidates())) is training
