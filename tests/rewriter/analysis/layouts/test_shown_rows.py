"""Files that show rows of a batch as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]


@pytest.mark.parametrize(
    ("step", "after", "findings"),
    [
        ("out = model(x)\ntable[len(table)] = out[0, 0].item()", "frame.to_csv('a.csv')", ["one-share"]),
        ("table[len(table)]['x'] = y[0].item()", "frame.to_csv('a.csv')", ["one-share"]),
        ("table[len(table)] = loss.item()", "frame.to_csv('a.csv')", []),
        ("table[len(table)] = 1.0", "frame.to_csv('a.csv')", []),
        ("table[len(table)] = y[0].item()", "print(len(frame))", []),
    ],
    ids=["an output", "an entry of an entry", "a loss", "a number", "not written"],
)
def test_a_table_of_rows_that_are_read_one_by_one(step: str, after: str, findings: list[str], trained: Trained) -> None:
    built = "import pandas as pd\ntable = {}"
    assert trained(built=built, step=step, epoch=f"frame = pd.DataFrame(table)\n{after}")[1] == findings


@pytest.mark.parametrize(
    ("drawn", "findings"), [("built", []), ("epoch", ["one-share"])], ids=["before it is prepared", "after it"]
)
def test_a_batch_that_is_drawn_before_the_loader_is_prepared(drawn: str, findings: list[str], trained: Trained) -> None:
    """It has the rows that the script asked for, on every process."""
    parts = {drawn: "x, y = next(iter(loader))\nsave_image(x, 'real.png')"}
    parts["built"] = f"from torchvision.utils import save_image\n{parts.get('built', '')}"
    assert trained(**parts)[1] == findings


@pytest.mark.parametrize(("shown", "findings"), [("x", ["one-share"]), ("picture", ["one-share"]), ("noise", [])])
def test_a_picture_of_what_is_no_batch(shown: str, findings: list[str], trained: Trained) -> None:
    built = "from torchvision.utils import make_grid, save_image\nnoise = torch.randn(4, 8)\npicture = make_grid(noise)"
    step = f"picture = make_grid(x)\npicture = make_grid({shown})\nsave_image(picture, 'a.png')"
    assert trained(built=built, step=step)[1] == findings


TRAINS = """\
import numpy as np
import torch
from torch.utils.data import DataLoader
from torchvision.utils import save_image

loader = DataLoader(data, batch_size=8)
held = DataLoader(other, batch_size=8)
net = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    out = net(x)
    torch.nn.functional.mse_loss(out, y).backward()
    optimizer.step()
    {step}
with torch.no_grad():
    for i, (x, y) in enumerate(held):
        out = net(x)
        {after}
"""


@pytest.mark.parametrize(
    ("step", "after", "told"),
    [
        ("save_image(out[:25], 'a.png')", "pass", ["note"]),
        ("np.save('a.npy', out.detach().numpy())", "pass", ["review"]),
        ("pass", "save_image(accelerator.gather(out), f'{i}.png')", []),
    ],
    ids=["a picture of a step", "rows of a step", "gathered"],
)
def test_a_picture_that_a_step_writes_is_a_sample(step: str, after: str, told: list[str]) -> None:
    """Each process has as many rows of a batch as the script: who looks at it sees as many pictures. Other files may
    be for what comes after."""
    text = TRAINS.format(step=step, after=after)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert [found.severity.value for found in file.diagnoses if found.id == "one-share"] == told
