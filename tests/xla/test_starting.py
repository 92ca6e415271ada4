"""The ways to start: the launcher, its configuration file, a notebook; and training in bf16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRAINS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator


def train(precision=None):
    accelerator = Accelerator(mixed_precision=precision)
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(8):
        for inputs, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    kind, found = accelerator.distributed_type, accelerator.device.type
    print(f"{kind} {accelerator.num_processes} {found} {loss.item():.6f}")
"""
LAUNCHER = ("-m", "torchlift.runtime.launch.command", "launch")
Said = Callable[..., tuple[str, float]]


@pytest.fixture
def said(run_python: Callable[..., Any], tmp_path: Path) -> Said:
    """`said(script, *launcher, devices=2)`: what such a script says of its devices, and its last loss."""

    def run(script: str, *launcher: object, devices: int = 2, **variables: str) -> tuple[str, float]:
        (tmp_path / "script.py").write_text(TRAINS + script)
        done = run_python(tmp_path, devices, *launcher, "script.py", **variables)
        assert done.returncode == 0, done.stderr[-3000:]
        kind, _, loss = done.stdout.splitlines()[-1].rpartition(" ")
        return kind, float(loss)

    return run


@pytest.fixture
def plain(said: Said) -> float:
    """The last loss on the CPU."""
    return said("train()", devices=0)[1]


def test_the_launcher(said: Said, plain: float) -> None:
    kind, loss = said("train()", *LAUNCHER, "--tpu")
    assert kind.endswith("XLA 1 xla") and loss == pytest.approx(plain, abs=1e-5)


def test_a_configuration_file(said: Said, plain: float, tmp_path: Path) -> None:
    (tmp_path / "tpu.yaml").write_text("distributed_type: XLA\nnum_processes: 8\n")
    kind, loss = said("train()", *LAUNCHER, "--config-file", tmp_path / "tpu.yaml")
    assert kind.endswith("XLA 1 xla") and loss == pytest.approx(plain, abs=1e-5)


def test_a_notebook(said: Said, plain: float) -> None:
    kind, loss = said("from torchlift.runtime import notebook_launcher\nnotebook_launcher(train)")
    assert kind.endswith("XLA 1 xla") and loss == pytest.approx(plain, abs=1e-5)


def test_bf16_trains_nearly_as_fp32(said: Said, plain: float) -> None:
    loss = said('train("bf16")')[1]
    assert loss != pytest.approx(plain, abs=1e-7) and loss == pytest.approx(plain, rel=0.1, abs=0.01)


RELEASES = """
import weakref
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator

accelerator = Accelerator()
loader = accelerator.prepare(DataLoader(list(range(8)), 4))
first = next(iter(loader))
known = [weakref.ref(one) for one in (accelerator, loader)]
del accelerator, loader
print([one() is None for one in known])
"""


def test_a_loader_that_the_script_lets_go_is_gone(run_python: Callable[..., Any], tmp_path: Path) -> None:
    """It lived, with its data, until Python looked for circles."""
    (tmp_path / "script.py").write_text(RELEASES)
    ended = run_python(tmp_path, 2, "script.py")
    assert ended.stdout.splitlines()[-1:] == ["[True, True]"], ended.stderr
