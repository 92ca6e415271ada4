"""Losses of the rows that are largest, or smallest, among those of their batch."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from torchlift.rewriter.config import Config

Trained = Callable[..., tuple[str, list[str]]]
LOSSES = "losses = torch.nn.functional.cross_entropy(model(x), y, reduction='none')\n"
FUNCTION = """\
def hardest(losses, part):
    ordered = losses.sort(descending=True).values
    return ordered[: int(part * len(ordered))].mean()
"""
CHOSEN = {
    "topk": "loss = losses.topk(8).values.mean()",
    "topk of torch": "loss = torch.topk(losses, 8)[0].sum() / 8",
    "places": "places = losses.topk(8)[1]\nloss = losses[places].mean()",
    "sort": "ordered, _ = torch.sort(losses)\nloss = ordered[:8].mean()",
    "argsort": "order = losses.argsort(descending=True)\nloss = losses[order[:8]].mean()",
    "narrow": "loss = losses.sort(descending=True)[0].narrow(0, 0, 8).mean()",
    "flat": "flat = losses.view(-1)\nloss = flat.topk(flat.numel() // 2).values.mean()",
    "threshold": "limit = losses.sort()[0][-8]\nloss = (losses * (losses >= limit)).sum() / 8",
    "median": "loss = losses[losses > losses.median()].mean()",
    "kthvalue": "weight = (losses.detach() > losses.detach().kthvalue(8)[0]).float()\nloss = (weight * losses).mean()",
    "second pass": "hard = losses.detach().topk(8)[1]\nloss = torch.nn.functional.mse_loss(model(x[hard]), y[hard])",
    "function": "loss = hardest(losses, 0.5)",
}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("loss", CHOSEN.values(), ids=CHOSEN)
def test_the_hardest_rows_of_a_batch(trained: Trained, loss: str, split: bool) -> None:
    """Each process takes them from its own rows: eight of its shard are not the eight of the batch."""
    _, found = trained(top=FUNCTION, loss=LOSSES + loss, config=Config(keep_global_batch=split))
    assert "in-batch-pairs" in found
    assert "loss-reduction" not in found and "row-place" not in found[: found.index("in-batch-pairs")]


WHOLE = {
    "rows in the order of their length": """\
        length, order = y.sort(0, descending=True)
        loss = torch.nn.functional.cross_entropy(model(x[order])[:, :2], y[order])""",
    "classes": "loss = model(x).topk(2, dim=1).values.mean()",
    "an accuracy beside the loss": "loss = losses.mean()\nhits = model(x).topk(2)[1].eq(y[:, None]).any(1).sum()",
    "the losses of a figure": "loss = losses.mean()\nprint(losses.sort()[0][:3])",
}


@pytest.mark.parametrize("loss", WHOLE.values(), ids=WHOLE)
def test_what_takes_all_rows(trained: Trained, loss: str) -> None:
    _, found = trained(loss=LOSSES + dedent(loss))
    assert "in-batch-pairs" not in found
