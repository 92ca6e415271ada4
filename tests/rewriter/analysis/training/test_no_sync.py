"""Which backward passes of an accumulation that stays the script's own exchange no gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{top}
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    if (i + 1) % every == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("top", "waits"),
    [("every = 4", True), ("from settings import every", True), ("from settings import *", False)],
    ids=["a number", "imported", "of unknown origin"],
)
def test_only_a_condition_that_is_the_same_all_through_a_batch_is_asked_early(
    top: str, waits: bool, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    """Nothing is known of what a star imports: the module may count in it."""
    texts, _ = trained_project(train=SCRIPT.format(top=top))
    assert ("with nullcontext() if (i + 1) % every == 0 else accelerator.no_sync(model):" in texts["train"]) is waits
