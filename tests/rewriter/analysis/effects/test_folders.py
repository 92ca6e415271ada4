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


def test_in_shared_code_the_main_process_makes_them(trained_project: Project) -> None:
    """The guard asks for no accelerator, and the folder must be new as before."""
    texts, findings = trained_project(
        train=TRAIN, util=UTIL, other='from util import prepare_folder\n\nprepare_folder("y")\n'
    )
    guarded = "    if PartialState().is_main_process:\n        os.makedirs(name)\n"
    assert f'{guarded}        os.mkdir(name + "/x")\n' in texts["util"] and findings == []
