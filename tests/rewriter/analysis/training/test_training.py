"""Which loops train."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 2)
loader = DataLoader(data, batch_size=32)
test_loader = DataLoader(test_data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def run(x, y, optimizer=None):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    if optimizer is not None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()
for x, y in loader:
    {call}
for x, y in test_loader:
    print(run(x, y))
"""


@pytest.mark.parametrize("call", ["run(x, y, optimizer)", "run(*(x, y, optimizer))", "run(x, y, optimizer=optimizer)"])
def test_a_helper_that_may_get_its_optimizer_trains(
    call: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    texts, findings = trained_project(train=SCRIPT.format(call=call))
    assert "        accelerator.backward(loss)\n" in texts["train"]
    assert "no-data-parallel-axis" not in findings
