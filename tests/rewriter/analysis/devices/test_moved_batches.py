"""Batches that come on a device, or that the script moves there."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

class Scans(torch.utils.data.Dataset):
    def __init__(self):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return ROW

model = torch.nn.Conv2d(1, 1, 3, padding=1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model.to(device)
scale = torch.ones(1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader, held = DataLoader(Scans(), batch_size=2), DataLoader(Scans())
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x) * scale, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
right = 0
with torch.no_grad():
    for x, y in held:
        out = model(x)
        right += (out.argmax(1) == y).float().mean(dim=(1, 2)).sum().item()
print(right)
"""


@pytest.mark.parametrize(
    ("row", "come"),
    [
        ("torch.tensor(scan[index], device=self.device), torch.tensor(mask[index], device=self.device)", True),
        ("torch.as_tensor(scan[index]).cuda(), torch.as_tensor(mask[index]).cuda()", True),
        ("torch.tensor(scan[index]), torch.tensor(mask[index])", False),
        ("torch.tensor(scan[index], device='cpu'), torch.tensor(mask[index], device='cpu')", False),
    ],
    ids=["made there", "moved there", "on the CPU", "on the CPU, as it says"],
)
def test_rows_that_the_data_set_makes_on_the_device(row: str, come: bool) -> None:
    """Of an evaluation that stays whole it was said that nothing moves its batches."""
    (file,) = migrate([decode(SCRIPT.replace("ROW", row).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(loss)" in file.after
    (told,) = [found.message for found in file.diagnoses if found.id == "prepare"]
    assert ("nothing moves its batches" in told) is not come


@pytest.mark.parametrize(
    ("kind", "comes"),
    [
        ("torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor", True),
        ("kind", True),
        ("'torch.cuda.FloatTensor'", True),
        ("torch.FloatTensor", False),
        ("torch.float32", False),
    ],
)
def test_batches_that_go_to_the_gpu_by_their_type(kind: str, comes: bool) -> None:
    row = "torch.tensor(scan[index]), torch.tensor(mask[index])"
    text = SCRIPT.replace("ROW", row).replace("scale = torch", "kind = torch.cuda.FloatTensor\nscale = torch")
    text = text.replace("out = model(x)", f"out, y = model(x.type({kind})), y.type({kind})")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (told,) = [found.message for found in file.diagnoses if found.id == "prepare"]
    assert ("nothing moves its batches" in told) is not comes


WHOLE = """\
import torch
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Bilinear(4, 4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for {batch} in DataLoader(rows, batch_size=2):
    {moves}
    loss = {out}.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("batch", "moves", "out", "left"),
    [
        ("x, y", "x, y = [each.to(device) for each in (x, y)]", "model(x, y)", "\n    loss = model(x, y)"),
        ("x, y", "y, x = [each.to(device) for each in (x, y)]", "model(x, y)", "    y, x = (x, y)\n"),
        ("batch", "pass", "model(*[each.to(device) for each in batch])", "model(*batch)"),
        ("batch", "pass", "model(**{name: each.to(device) for name, each in batch.items()})", "model(**batch)"),
    ],
    ids=["the same names", "other names", "arguments", "named arguments"],
)
def test_a_move_of_a_whole_batch_leaves_nothing_behind(batch: str, moves: str, out: str, left: str) -> None:
    text = WHOLE.format(batch=batch, moves=moves, out=out)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert left in file.after.decode() and ("(x, y)\n" in file.after.decode()) is ("(x, y)\n" in left)
