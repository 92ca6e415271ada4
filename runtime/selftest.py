"""
Trains on all processes of this job, and compares with one.

`torchlift test` runs it. It needs no files, and says in one line what was found.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from .accelerator.facade import Accelerator
from .device.placement import type_on
from .process.rng import set_seed

_ROWS, _BATCH, _EPOCHS = 23, 4, 2


def _parts() -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    set_seed(7)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    rows = torch.randn(_ROWS, 3).double()
    data = TensorDataset(rows, rows.sum(1, keepdim=True))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    return net, optimizer, DataLoader(data, batch_size=_BATCH, shuffle=True, generator=torch.Generator().manual_seed(1))


def _train_alone() -> list[torch.Tensor]:
    net, optimizer, loader = _parts()
    for _ in range(_EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return [p.detach() for p in net.parameters()]


def _train(accelerator: Accelerator) -> tuple[nn.Module, int]:
    net, optimizer, loader = accelerator.prepare(*_parts())
    seen = 0
    for _ in range(_EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(net(x), y))
            optimizer.step()
            seen += len(accelerator.gather_for_metrics(y))
    return net, seen


def main() -> None:
    """
    Check collectives, training and checkpoints.

    Raises:
        AssertionError: something is not as it should be.
    """
    accelerator = Accelerator(split_batches=True, mixed_precision="no")
    ranks = accelerator.gather(torch.tensor([accelerator.process_index], device=accelerator.device)).tolist()
    if ranks != list(range(accelerator.num_processes)):
        raise AssertionError(f"gather gave the ranks {ranks}")
    if type_on(accelerator.device, torch.float64) is not torch.float64:
        accelerator.print(f"torchlift: {accelerator.device.type} has no double precision; training was not compared.")
        return
    net, seen = _train(accelerator)
    if seen != _EPOCHS * _ROWS:
        raise AssertionError(f"{seen} rows were read instead of {_EPOCHS * _ROWS}")
    weights = [p.detach().cpu() for p in net.parameters()]
    distance = max(float((a - b).abs().max()) for a, b in zip(weights, _train_alone(), strict=True))
    if distance > 1e-9:
        raise AssertionError(f"the weights differ from those of one process by {distance}")
    (folder,) = accelerator.broadcast_object_list([tempfile.mkdtemp() if accelerator.is_main_process else None])
    accelerator.save_state(folder)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    accelerator.load_state(folder)
    if accelerator.is_main_process:
        shutil.rmtree(folder)
    if any(not torch.equal(a.detach().cpu(), b) for a, b in zip(net.parameters(), weights, strict=True)):
        raise AssertionError("a checkpoint did not restore the weights")
    count, kind = accelerator.num_processes, accelerator.device.type
    accelerator.print(
        f"torchlift: {count} process{'es' if count > 1 else ''} on {kind} trained like one (largest difference "
        f"{distance:.1e}), saw every row once, and loaded what they had saved. Test is a success!"
    )


if __name__ == "__main__":
    main()
