"""Which loops train."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

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


ATTACK = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 2)
model.load_state_dict(torch.load("model.pt"))
fooled = 0
for x, y in DataLoader(data, batch_size=1):
    x.requires_grad = True
    out = model(x)
    if out.argmax(1).item() != y.item():
        continue
    torch.nn.functional.cross_entropy(out, y).backward()
    {change}
    fooled += int(model(x + 0.1 * x.grad.sign()).argmax(1).item() != y.item())
print(fooled)
"""
BY_HAND = {
    "all weights": "for p in model.parameters():\n        p.data -= 0.1 * p.grad",
    "one weight": "model.weight.data -= 0.1 * model.weight.grad",
}


@pytest.mark.unchanged
def test_gradients_of_rows_alone_are_no_training() -> None:
    """An attack on a model was refused, for a decision that no other process waits for."""
    source = decode(ATTACK.format(change="model.zero_grad()").encode(), Path("train.py"))
    (file,) = migrate([source], CATALOGUE, Config()).files
    assert not file.changed and file.diagnoses == ()


@pytest.mark.parametrize("change", BY_HAND.values(), ids=BY_HAND)
def test_weights_that_the_script_changes_by_hand_are_trained(change: str) -> None:
    source = decode(ATTACK.format(change=change).encode(), Path("train.py"))
    (file,) = migrate([source], CATALOGUE, Config()).files
    assert "local-decision" in {diagnosis.id for diagnosis in file.diagnoses}
