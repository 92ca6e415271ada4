"""The rule `grad_scaler`: the scaler goes as one unit, or stays as one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
args = parse()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 1).to(device)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = {scaler}
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16{enabled}):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
{end}
"""
SCALER = "torch.amp.GradScaler()"

STAYS = {
    "its state goes into a checkpoint": (SCALER, "", "torch.save({'scaler': scaler.state_dict()}, 'last.pt')"),
    "its scale is read": (SCALER, "", "scale = scaler.get_scale()"),
    "it is handed to code that is not known": (SCALER, "", "log(scaler)"),
    "another switch than the regions'": ("torch.amp.GradScaler(enabled=args.scale)", ", enabled=args.amp", ""),
    "there are two": (SCALER, "", "other = torch.amp.GradScaler()"),
    "it may be None": ("torch.amp.GradScaler() if args.amp else None", "", ""),
}


@pytest.mark.parametrize(("scaler", "enabled", "end"), STAYS.values(), ids=STAYS)
def test_left_alone(scaler: str, enabled: str, end: str, migrated: Callable[[str], str]) -> None:
    text = migrated(SCRIPT.format(scaler=scaler, enabled=enabled, end=end))
    assert f"scaler = {scaler}\n" in text
    assert "accelerator.backward(scaler.scale(loss))\n    scaler.step(optimizer)\n    scaler.update()\n" in text
    assert "mixed_precision" not in text


@pytest.mark.parametrize(
    ("scaler", "enabled", "setting"),
    [
        (SCALER, "", '"fp16"'),
        ("torch.cuda.amp.GradScaler()", "", '"fp16"'),
        ("torch.amp.GradScaler(enabled=args.amp)", ", enabled=args.amp", '"fp16" if args.amp else "no"'),
    ],
    ids=["always on", "the older name", "behind a switch"],
)
def test_the_scaler_goes(scaler: str, enabled: str, setting: str, migrated: Callable[[str], str]) -> None:
    text = migrated(SCRIPT.format(scaler=scaler, enabled=enabled, end=""))
    assert f"Accelerator(mixed_precision={setting})" in text
    assert "    accelerator.backward(loss)\n    optimizer.step()\n" in text
    assert "scaler" not in text


def test_it_leaves_the_parameters_that_carried_it(migrated: Callable[[str], str]) -> None:
    text = migrated(
        """\
import torch
from torch.utils.data import DataLoader


def train(model, loader, optimizer, scaler):
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler()
train(model, loader, optimizer, scaler=scaler)
"""
    )
    assert "def train(model, loader, optimizer):\n" in text
    assert "train(model, loader, optimizer)\n" in text
    assert "scaler" not in text
