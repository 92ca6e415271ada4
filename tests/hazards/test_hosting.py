"""What the script keeps on the CPU of a batch that the prepared loader yields on the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Migrated = Callable[[str], str]

SCRIPT = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from sklearn.metrics import f1_score
device = torch.device("cuda")
model = nn.Linear(8, 2).to(device)
loader, val_loader = DataLoader(data, batch_size=16), DataLoader(val, batch_size=16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    for x, y in val_loader:
        out = model(x.to(device))
        {use}
"""

TAKEN = {
    "compared with what was taken": ("hits = (out.argmax(1).cpu() == y).sum()", "(out.argmax(1).cpu() == y.cpu())"),
    "the other way round": ("hits = (y == out.argmax(1).cpu()).sum()", "(y.cpu() == out.argmax(1).cpu())"),
    "through a name": ("p = out.argmax(1).cpu()\n        hits = (p == y).sum()", "hits = (p == y.cpu()).sum()"),
    "through a name of two": (
        "_, p = torch.max(out.cpu(), 1)\n        hits = (p == y).sum()",
        "hits = (p == y.cpu()).sum()",
    ),
    "by a method": ("hits = out.argmax(1).cpu().eq(y).sum()", ".cpu().eq(y.cpu())"),
    "by a method, a part": ("hits = out.argmax(1).cpu().eq(y.view(-1)).sum()", ".eq(y.view(-1).cpu())"),
    "by a function of torch": (
        "hits = torch.eq(out.argmax(1).cpu(), y).sum()",
        "torch.eq(out.argmax(1).cpu(), y.cpu())",
    ),
    "by name": ("hits = (out.argmax(1).to('cpu') == y).sum()", "== y.cpu()"),
    "subtracted": ("off = (out.cpu()[:, 0] - y).abs().sum()", "out.cpu()[:, 0] - y.cpu()"),
    "read by numpy": ("a = y.numpy()", "a = y.cpu().numpy()"),
    "its data read by numpy": ("a = y.data.numpy()", "a = y.data.cpu().numpy()"),
    "read by numpy's function": ("a = np.asarray(y)", "a = np.asarray(y.cpu())"),
    "read by scikit-learn": ("s = f1_score(y, out.argmax(1).cpu())", "f1_score(y.cpu(), out.argmax(1).cpu())"),
    "moved for the loss alone": (
        "v = nn.functional.cross_entropy(out, y.to(device))\n        a = y.numpy()",
        "a = y.cpu().numpy()",
    ),
}


@pytest.mark.parametrize(("use", "wanted"), TAKEN.values(), ids=TAKEN)
def test_taken_to_the_cpu(use: str, wanted: str, migrated: Migrated) -> None:
    assert wanted in migrated(SCRIPT.format(use=use))


LEFT = {
    "both on the device": "hits = (out.argmax(1) == y.to(device)).sum()",
    "taken by the script": "hits = (out.argmax(1).cpu() == y.cpu()).sum()",
    "a number": "hits = out.argmax(1).cpu().sum() + len(y)",
    "moved and named so": "y = y.to(device)\n        hits = (out.argmax(1) == y).sum()",
    "numbers of numpy": "a = out.cpu().numpy() + 1",
    "a fresh tensor": "a = out.cpu() + torch.ones(2)",
}


@pytest.mark.parametrize("use", LEFT.values(), ids=LEFT)
def test_left_alone(use: str, migrated: Migrated) -> None:
    assert migrated(SCRIPT.format(use=use)).count(".cpu()") == use.count(".cpu()")
