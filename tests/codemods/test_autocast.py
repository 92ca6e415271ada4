"""The rule `autocast`: regions that become a setting, and those that stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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


def test_a_switch_becomes_a_condition(migrated: Callable[[str], str]) -> None:
    region = "torch.autocast('cuda', dtype=torch.bfloat16, enabled=args.amp)"
    text = migrate(migrated, region, "args = parse()")
    assert 'Accelerator(mixed_precision="bf16" if args.amp else "no")' in text
