"""The rule `grad_scaler`: the scaler goes as one unit, or stays as one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlift.rewriter.result import FileResult

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
    "it is passed to code that is not known": (SCALER, "", "log(scaler)"),
    "another switch than the regions'": ("torch.amp.GradScaler(enabled=args.scale)", ", enabled=args.amp", ""),
    "there are two": (SCALER, "", "other = torch.amp.GradScaler()"),
    "it may be None, and the regions are on": ("torch.amp.GradScaler() if args.amp else None", "", ""),
    "it has its own settings": ("torch.amp.GradScaler(init_scale=1024.0)", "", ""),
    "gradients are clipped before they are unscaled": (
        SCALER,
        "",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    ),
    "somebody else may hold it": (SCALER, "", "holder.scaler = scaler"),
    "it has two names": (f"other = {SCALER}", "", ""),
    "something else is in its line": (f"{SCALER}; count = 0", "", ""),
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
        ("torch.amp.grad_scaler.GradScaler()", "", '"fp16"'),
        ("torch.amp.GradScaler(enabled=args.amp)", ", enabled=args.amp", '"fp16" if args.amp else "no"'),
    ],
    ids=["always on", "the older name", "in its own module", "behind a switch"],
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


BRANCHES = """\
import torch
from torch.utils.data import DataLoader
args = parse()
model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{scaler}
for x, y in loader:
    optimizer.zero_grad()
    # forward and back
    if {test}:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    else:
        loss = torch.nn.functional.mse_loss(
            model(x), y
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), {norm})
        optimizer.step()
"""
SAME = {
    "a flag": ("scaler = torch.amp.GradScaler()", "args.amp"),
    "a flag that is compared": ("scaler = torch.amp.GradScaler()", "args.amp is True"),
    "whether there is a scaler": ("scaler = torch.amp.GradScaler() if args.amp else None", "scaler is not None"),
    "the scaler itself": ("scaler = None\nif args.amp:\n    scaler = torch.amp.GradScaler()", "scaler"),
    "none first": ("scaler = None if not args.amp else torch.amp.GradScaler()", "args.amp"),
}


@pytest.mark.parametrize(("scaler", "test"), SAME.values(), ids=SAME)
def test_code_that_stands_twice_is_kept_once(scaler: str, test: str, migrated: Callable[[str], str]) -> None:
    text = migrated(BRANCHES.format(scaler=scaler, test=test, norm="1.0"))
    assert 'Accelerator(mixed_precision="fp16" if args.amp else "no")' in text
    assert text.endswith(
        """\
    optimizer.zero_grad()
    # forward and back
    with accelerator.autocast():
        loss = torch.nn.functional.mse_loss(model(x), y)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""
    )
    assert "scaler" not in text


def test_a_step_that_only_scales_goes(migrated: Callable[[str], str]) -> None:
    text = migrated(
        BRANCHES.format(scaler="scaler = torch.amp.GradScaler()", test="args.amp", norm="1.0")
        + "    if args.amp:\n        scaler.update()\n"
    )
    assert "scaler" not in text and "if args.amp:" not in text


DIFFERENT = {
    "in more than precision": ("scaler = torch.amp.GradScaler()", "args.amp", "5.0"),
    "by a condition that changes": ("scaler = torch.amp.GradScaler()", "ready()", "1.0"),
    "by another condition than the scaler": ("scaler = torch.amp.GradScaler(enabled=args.amp)", "args.half", "1.0"),
}


@pytest.mark.parametrize(("scaler", "test", "norm"), DIFFERENT.values(), ids=DIFFERENT)
def test_branches_that_differ_stay(scaler: str, test: str, norm: str, migrated: Callable[[str], str]) -> None:
    text = migrated(BRANCHES.format(scaler=scaler, test=test, norm=norm))
    assert "accelerator.backward(scaler.scale(loss))" in text and "accelerator.backward(loss)" in text
    assert "mixed_precision" not in text


def test_a_difference_is_told(result: Callable[..., FileResult]) -> None:
    scaler = "scaler = torch.amp.GradScaler()"
    assert ids(result(BRANCHES.format(scaler=scaler, test="args.amp", norm="1.0"))) == []
    assert ids(result(BRANCHES.format(scaler=scaler, test="args.amp", norm="5.0"))) == ["grad_scaler", "autocast"]


def test_asked_for_on_the_command_line(result: Callable[..., FileResult]) -> None:
    text = SCRIPT.format(scaler=SCALER, enabled="", end="")
    assert b'mixed_precision="bf16")' in result(text, mixed_precision="bf16").after
    kept = SCRIPT.format(scaler=SCALER, enabled="", end="print(scaler.get_scale())")
    assert not result(kept).blocked
    assert result(kept, mixed_precision="fp16").blocked  # scaled twice


def ids(file: FileResult) -> list[str]:
    return [found.id for found in file.diagnoses]


def test_an_object_keeps_the_scaler(migrated: Callable[[str], str]) -> None:
    text = migrated(
        """\
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(8, 1).cuda()
        self.loader = DataLoader(data, batch_size=32)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler()

    def fit(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.mse_loss(self.model(x.cuda()), y.cuda())
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()


Trainer().fit()
"""
    )
    assert "scaler" not in text
    assert "self.accelerator.backward(loss)\n            self.optimizer.step()\n" in text
