"""Folders that must be new, where nobody can say which process makes them."""

from __future__ import annotations

from collections.abc import Callable

Project = Callable[..., tuple[dict[str, str], list[str]]]


UTIL = """\
import os


def prepare_folder(name):
    os.makedirs(name)
    os.mkdir(name + "/x")
"""
TRAIN = """\
import torch
from torch.utils.data import DataLoader
from util import prepare_folder

prepare_folder("out")
model = torch.nn.Linear(4, 2)
loader = DataLoader(data, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def test_shared_code_makes_them_on_all_processes(trained_project: Project) -> None:
    texts, findings = trained_project(
        train=TRAIN, util=UTIL, other='from util import prepare_folder\n\nprepare_folder("y")\n'
    )
    assert "    os.makedirs(name, exist_ok=True)\n" in texts["util"]
    assert '    os.makedirs(name + "/x", exist_ok=True)\n' in texts["util"]
    assert findings == ["directories", "directories"]
