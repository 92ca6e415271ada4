"""Names of a module that nothing of the program reads any more: they stay where another file imports the module."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Project = Callable[..., tuple[dict[str, str], list[str]]]

PARTS = """\
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
unread = 3

def hits(net, loader):
    found = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        found += (net(x).argmax(1) == y).sum().item()
    return found
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader
from data import rows
from parts import device, hits

net = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(rows, batch_size=8):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
print(hits(net, DataLoader(rows, batch_size=8)))
"""
CHECKS = {
    "test_parts": "import parts\n\ndef test_device():\n    assert parts.device.type\n",
    "test_all": "from parts import *\n\ndef test_device():\n    assert device.type\n",
}


def test_a_name_goes_that_only_the_program_read(trained_project: Project) -> None:
    after, _ = trained_project(train=TRAIN, parts=PARTS)
    assert "device =" not in after["parts"] and "unread = 3" in after["parts"]
    assert "from parts import hits\n" in after["train"]


@pytest.mark.parametrize("name", CHECKS)
def test_a_name_stays_that_a_test_may_read(name: str, trained_project: Project) -> None:
    after, _ = trained_project(train=TRAIN, parts=PARTS, **{name: CHECKS[name]})
    assert "device = torch.device(" in after["parts"]
