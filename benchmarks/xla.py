"""Training by torch_xla on two virtual devices of the CPU, beside the same written by hand with raw torch_xla."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .measure import ROOT, Row

TITLE = "By torch_xla on two virtual devices of the CPU (an epoch of 24 batches, the devices waited for)"
BATCHES, ROWS, PAIRS = 24, 64, 9
LIMIT = 1.05
"""Of the time of raw torch_xla with the same layouts."""
OTHER = ROOT / ".venv-xla" / "bin" / "python"
"""What `make test-xla` has made."""
WIDTHS = {"an MLP of 2,762 parameters": 32, "an MLP of 2.1 million parameters": 1024}


def rows() -> list[Row]:
    """One row a model; none where torch_xla is not."""
    python = Path(sys.executable) if find_spec("torch_xla") else OTHER
    if not python.exists():
        return []
    found = []
    for what, width in WIDTHS.items():
        call = f"from benchmarks import xla; xla.measure({width})"
        variables = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "2", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = subprocess.run(
            [str(python), "-c", call],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        told = json.loads(done.stdout.splitlines()[-1])
        mine, raw, ratio = told["torchlift"], told["raw torch_xla"], told["ratio"]
        shown = f"{mine * 1e3:.2f} ms a step; raw torch_xla: {raw * 1e3:.2f} ms (median ratio {ratio:.3f} x)"
        compiled = f"; compiled after the first epoch: {told['compiled']} graphs"
        found.append(
            Row(
                what,
                shown + compiled,
                f"<= {LIMIT} x raw torch_xla",
                ratio <= LIMIT,
                {"torchlift": mine, "raw torch": raw},
            )
        )
    return found


def measure(width: int) -> None:
    """Print how long both take for a step: epochs in turn, in one process."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from torchlift.runtime import torch_spmd

    inputs = 32 if width <= 64 else width
    hidden = 64 if width <= 64 else width
    data = TensorDataset(torch.randn(BATCHES * ROWS, inputs), torch.randint(10, (BATCHES * ROWS,)))

    def model() -> nn.Module:
        layers = [nn.Linear(inputs, hidden), nn.ReLU()]
        layers += [nn.Linear(hidden, hidden), nn.ReLU()] if width > 64 else []
        return nn.Sequential(*layers, nn.Linear(hidden, 10))

    def loader() -> DataLoader[Any]:
        return DataLoader(data, batch_size=ROWS)

    epochs = {"torchlift": ours(model(), loader()), "raw torch_xla": by_hand(model(), loader())}
    for epoch in epochs.values():
        epoch()
        epoch()
    before = torch_spmd.compilations()
    taken: dict[str, list[float]] = {name: [] for name in epochs}
    for number in range(PAIRS):
        for name in sorted(epochs, reverse=bool(number % 2)):
            start = time.perf_counter()
            epochs[name]()
            taken[name].append((time.perf_counter() - start) / BATCHES)
    ratios = [a / b for a, b in zip(taken["torchlift"], taken["raw torch_xla"], strict=True)]
    told: dict[str, float] = {name: statistics.median(times) for name, times in taken.items()}
    told |= {"ratio": statistics.median(ratios), "compiled": torch_spmd.compilations() - before}
    print(json.dumps(told))


def ours(model: Any, loader: Any) -> Callable[[], None]:
    """An epoch of a migrated script."""
    import torch
    from torch_xla.core.xla_model import wait_device_ops

    from torchlift.runtime import Accelerator

    accelerator = Accelerator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def epoch() -> None:
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        wait_device_ops()

    return epoch


def by_hand(model: Any, loader: Any) -> Callable[[], None]:
    """The same with torch_xla alone: batches cut along their rows, weights whole on all devices."""
    import numpy as np
    import torch
    import torch_xla
    import torch_xla.distributed.spmd as spmd
    import torch_xla.runtime as runtime
    from torch_xla.core.xla_model import send_cpu_data_to_device, wait_device_ops

    runtime.use_spmd()
    count = runtime.global_runtime_device_count()
    mesh = spmd.Mesh(np.arange(count), (count,), ("data",))
    device = torch_xla.device()
    model = model.to(device)
    for weight in model.parameters():
        spmd.mark_sharding(weight, mesh, (None,) * weight.dim())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    of_inputs, of_targets = spmd.ShardingSpec(mesh, ("data", None)), spmd.ShardingSpec(mesh, ("data",))

    def epoch() -> None:
        for inputs, targets in loader:
            inputs = send_cpu_data_to_device([inputs], device, of_inputs)[0]
            targets = send_cpu_data_to_device([targets], device, of_targets)[0]
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            torch.autograd.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            torch_xla.sync()
        wait_device_ops()

    return epoch
