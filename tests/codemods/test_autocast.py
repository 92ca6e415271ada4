"""The rule `autocast`: regions that become a setting, and those that stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate as migrate_all
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{imports}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(8, 1).to(device)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    with {region}:
        loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
{end}
"""
BF16 = "torch.autocast(device.type, dtype=torch.bfloat16)"


def migrate(migrated: Callable[[str], str], region: str, imports: str = "", end: str = "") -> str:
    return migrated(SCRIPT.format(region=region, imports=imports, end=end))


STAYS = {
    "a forward outside of the regions": (BF16, "out = model(torch.zeros(1, 8))"),
    "two precisions": (BF16, "with torch.autocast('cpu', dtype=torch.float16):\n    out = model(torch.zeros(1, 8))"),
    "fp16 without a scaler": ("torch.autocast('cuda', dtype=torch.float16)", ""),
    "a precision that is left to torch": ("torch.autocast(device.type)", ""),
    "a precision in a variable": ("torch.autocast('cpu', dtype=kind)", ""),
    "a switch that is computed": ("torch.autocast('cpu', dtype=torch.bfloat16, enabled=want())", ""),
    "a region with a name": (f"{BF16} as region", ""),
    "a context that is not torch's": ("autocast()", ""),
    "a switch by position that is computed": ("torch.cuda.amp.autocast(want())", ""),
    "a setting of its own": ("torch.autocast('cpu', dtype=torch.bfloat16, cache_enabled=False)", ""),
    "chosen by the device": (f"({BF16} if device.type == 'cuda' else nullcontext())", ""),
    "in place of another context": (f"({BF16} if args.amp else torch.no_grad())", ""),
}


@pytest.mark.parametrize(("region", "end"), STAYS.values(), ids=STAYS)
def test_left_alone(region: str, end: str, migrated: Callable[[str], str]) -> None:
    text = migrate(migrated, region, end=end)
    assert f"with {region.replace('device.type', 'accelerator.device.type')}:" in text
    assert "mixed_precision" not in text


@pytest.mark.parametrize(
    ("region", "imports"),
    [
        (BF16, ""),
        ("torch.amp.autocast('cuda', dtype=torch.bfloat16)", ""),
        ("torch.cuda.amp.autocast(dtype=torch.bfloat16)", ""),
        ("autocast('cuda', torch.bfloat16)", "from torch import autocast"),
        ("amp.autocast('cuda', dtype=torch.bfloat16, enabled=True)", "from torch import amp"),
    ],
)
def test_a_region_becomes_a_setting(region: str, imports: str, migrated: Callable[[str], str]) -> None:
    text = migrate(migrated, region, imports)
    assert 'accelerator = Accelerator(mixed_precision="bf16")' in text
    assert "    with accelerator.autocast():\n" in text
    assert region not in text


KEPT = "torch.autocast('cuda', dtype=torch.bfloat16)"


def test_a_region_that_an_object_of_others_keeps_stays(migrated: Callable[[str], str]) -> None:
    text = migrate(migrated, "holder.region", f"import holder\nholder.region = {KEPT}")
    assert "    with holder.region:\n" in text and "mixed_precision" not in text


@pytest.mark.parametrize(
    ("taken", "region"),
    [("from parts import region", "region"), ("from parts import *", "region"), ("import parts", "parts.region")],
)
def test_a_region_that_another_module_takes_stays(taken: str, region: str) -> None:
    text = SCRIPT.format(region=region, imports=taken, end="")
    parts = f"import torch\nregion = {KEPT}\ndef evaluate(model, x):\n    with region:\n        return model(x)\n"
    sources = [decode(text.encode(), Path("train.py")), decode(parts.encode(), Path("parts.py"))]
    train, other = (file.after.decode() for file in migrate_all(sources, CATALOGUE, Config()).files)
    assert f"region = {KEPT}\n" in other and f"    with {region}:\n" in train
    assert "accelerator.backward(loss)" in train


def test_a_region_in_a_variable_becomes_a_setting(migrated: Callable[[str], str]) -> None:
    text = migrate(migrated, "region", f"region = {KEPT}")
    assert "mixed_precision" in text and "region" not in text


def test_a_switch_becomes_a_condition(migrated: Callable[[str], str]) -> None:
    region = "torch.autocast('cuda', dtype=torch.bfloat16, enabled=args.amp)"
    text = migrate(migrated, region, "args = parse()")
    assert 'Accelerator(mixed_precision="bf16" if args.amp else "no")' in text


MADE = {
    "a variable": ("region = {region}", "region"),
    "a function": ("def region():\n    return {region}", "region()"),
    "a function that is told": ("def region(on):\n    return {told}", "region(args.amp)"),
    "a lambda": ("region = lambda: {region}", "region()"),
    "a partial": (
        "region = functools.partial(torch.autocast, 'cpu', dtype=torch.bfloat16, enabled=args.amp)",
        "region()",
    ),
    "a ternary": ("", "{region}"),
    "a ternary the other way round": (
        "",
        "nullcontext() if not args.amp else torch.autocast('cpu', dtype=torch.bfloat16)",
    ),
    "statements": (
        "if args.amp:\n    region = torch.autocast('cpu', dtype=torch.bfloat16)\nelse:\n    region = nullcontext()",
        "region",
    ),
}
HEAD = "import functools\nfrom contextlib import nullcontext\nargs = parse()\n"
CHOSEN = "torch.autocast('cpu', dtype=torch.bfloat16) if args.amp else nullcontext()"


@pytest.mark.parametrize(("made", "region"), MADE.values(), ids=MADE)
def test_a_region_that_is_made_elsewhere(made: str, region: str, migrated: Callable[[str], str]) -> None:
    told = CHOSEN.replace("args.amp", "on")
    text = migrate(migrated, region.format(region=CHOSEN), HEAD + made.format(region=CHOSEN, told=told))
    assert 'Accelerator(mixed_precision="bf16" if args.amp else "no")' in text
    assert "accelerator.autocast" in text
    assert "torch.autocast" not in text


IN_CLASS = """\
import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = torch.nn.Linear(8, 1).to(self.device)
        self.loader = DataLoader(data, batch_size=32)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    @property
    def precise(self):
        return {region}

    def fit(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            with {entered}:
                loss = torch.nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()

    def test(self):
        for x, y in self.loader:
            {test}


Trainer().fit()
Trainer().test()
"""
IN_WITH = "with torch.autocast('cpu', dtype=torch.bfloat16):\n                self.model(x)"


def test_regions_of_methods(migrated: Callable[[str], str]) -> None:
    region = "torch.autocast('cpu', dtype=torch.bfloat16)"
    text = migrated(IN_CLASS.format(region="None", entered=region, test=IN_WITH))
    assert 'Accelerator(mixed_precision="bf16")' in text
    assert text.count("with self.accelerator.autocast():") == 2


def test_a_method_without_a_region(migrated: Callable[[str], str]) -> None:
    region = "torch.autocast('cpu', dtype=torch.bfloat16)"
    text = migrated(IN_CLASS.format(region="None", entered=region, test="self.model(x)"))
    assert "mixed_precision" not in text and f"with {region}:" in text


def test_a_property_that_gives_the_region_stays(migrated: Callable[[str], str]) -> None:
    region = "torch.autocast('cpu', dtype=torch.bfloat16)"
    text = migrated(IN_CLASS.format(region=region, entered="self.precise", test=IN_WITH))
    assert "mixed_precision" not in text and f"return {region}" in text


LEFT = {
    "a region that is entered elsewhere, too": ("region = {region}\nstack.enter_context(region)", "region"),
    "a function that chooses": (
        "def region():\n    if args.amp:\n        return {region}\n    return other",
        "region()",
    ),
    "a function that is handed on": ("def region():\n    return {region}\nuse(region)", "region()"),
    "a variable that is made anew": ("region = {region}\nregion = other()", "region"),
    "a partial that is told more": (
        "region = functools.partial(torch.autocast, 'cpu', dtype=torch.bfloat16)",
        "region(enabled=args.amp)",
    ),
}


@pytest.mark.parametrize(("made", "region"), LEFT.values(), ids=LEFT)
def test_a_region_that_is_not_understood_stays(made: str, region: str, migrated: Callable[[str], str]) -> None:
    text = migrate(migrated, region, HEAD + made.format(region=CHOSEN))
    assert made.format(region=CHOSEN) in text
    assert f"with {region}:" in text
    assert "mixed_precision" not in text


def test_a_switch_by_position(migrated: Callable[[str], str]) -> None:
    scaler = "args = parse()\nscaler = torch.amp.GradScaler(enabled=args.amp)"
    text = SCRIPT.format(region="torch.cuda.amp.autocast(args.amp)", imports=scaler, end="")
    text = text.replace("loss.backward()", "scaler.scale(loss).backward()")
    text = migrated(text.replace("optimizer.step()", "scaler.step(optimizer)\n    scaler.update()"))
    assert 'Accelerator(mixed_precision="fp16" if args.amp else "no")' in text


def test_the_switch_is_what_the_home_calls_it(migrated: Callable[[str], str]) -> None:
    text = migrated(
        """\
import torch
from torch.utils.data import DataLoader

def train(model, device, loader, config, amp=False):
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()

options = parse()
device = torch.device("cuda")
train(torch.nn.Linear(8, 1), device, DataLoader(data, batch_size=32), options, amp=options.precision.amp)
"""
    )
    assert 'Accelerator(mixed_precision="bf16" if options.precision.amp else "no")' in text


def test_a_switch_that_calls_do_not_agree_on_stays(migrated: Callable[[str], str]) -> None:
    text = migrated(
        """\
import torch
from torch.utils.data import DataLoader
def step(model, x, y, amp):
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
        return torch.nn.functional.mse_loss(model(x), y)

args = parse()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    step(model, x, y, args.amp).backward()
    step(model, x, y, args.other).backward()
    optimizer.step()
"""
    )
    assert "enabled=amp" in text and "mixed_precision" not in text
