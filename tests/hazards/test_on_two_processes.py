"""
What is silent when it is wrong, on two processes: rates of schedulers, batches drawn at random, gradients that wait for
the end of a window.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent

RATES = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = torch.nn.Linear(4, 1)
loader = DataLoader(data, batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
other = torch.nn.Linear(4, 1)
second = torch.optim.SGD(other.parameters(), lr=0.1)
decay = torch.optim.lr_scheduler.StepLR(second, 1, 0.5)
warm = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2 * len(loader))
for epoch in range(2):
    for x, y in loader:
        loss = (model(x) + other(x) - y).square().mean()
        optimizer.zero_grad()
        second.zero_grad()
        loss.backward()
        optimizer.step()
        second.step()
        warm.step()
    decay.step()
    print(epoch, decay.get_last_lr(), warm.get_last_lr())
"""
DRAWN = """\
import torch

torch.manual_seed(0)
rows = torch.arange(1000.0).view(-1, 1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-8)
for step in range(3):
    chosen = torch.randint(1000, (4,))
    x = rows[chosen]
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
RESULT
"""
RESULT = """\
accelerator.print([len(set(row)) for row in zip(*accelerator.gather_for_metrics([
    (tuple(chosen.tolist()), model.weight.item())], use_gather_object=True))])
"""

TOTALS = """\
import torch
import torch.nn.functional as F

torch.manual_seed(0)
points = torch.randn(103, 5)
kinds = (points[:, 0] > 0).long() + (points[:, 1] > 0.5).long()
net = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    order = torch.randperm(103)
    right = count = 0
    for i in range(0, 103, 8):
        rows = order[i : i + 8]
        x, y = points[rows], kinds[rows]
        out = net(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (out.argmax(1) == y).sum().item()
        count += x.shape[0]
    print(epoch, count, right / count)
"""

WINDOWS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(88, 4), torch.randn(88, 1))
model = torch.nn.Linear(4, 1)
loader = DataLoader(data, batch_size=8)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
STEP
torch.save(model.state_dict(), "model.pt")
"""
STEPS = {
    "carried": """\
        loss = (model(x) - y).square().mean() / 4
        loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
""",
    "dropped": """\
        if i == 0:
            optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
""",
    "pieces": """\
        optimizer.zero_grad()
        for k in range(4):
            loss = (model(x[k::4]) - y[k::4]).square().mean() / 4
            loss.backward()
        optimizer.step()
""",
}


def _run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHLIFT_", "ACCELERATE_"))}
    environment = {**kept, "TORCHLIFT_CPU": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.hazard("P6")
def test_rates_are_those_of_the_original(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RATES)
    alone = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert _run("migrate", "--write", "train.py", cwd=tmp_path).returncode == 0
    done = _run("torchlift", "launch", "--num_processes", "2", "train.py", cwd=tmp_path)
    assert done.stdout == alone.stdout, done.stderr


@pytest.mark.hazard("R1", "R2")
def test_every_process_trains_on_its_own_rows_of_a_draw(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DRAWN.replace("RESULT\n", ""))
    assert _run("migrate", "--write", "train.py", cwd=tmp_path).returncode == 0
    script.write_text(script.read_text() + RESULT)
    done = _run("torchlift", "launch", "--num_processes", "2", "train.py", cwd=tmp_path)
    assert "[2, 1]" in done.stdout, done.stderr


@pytest.mark.hazard("R2", "E1")
def test_totals_of_batches_that_are_cut_by_hand_are_those_of_the_original(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TOTALS)
    alone = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert _run("migrate", "--write", "train.py", cwd=tmp_path).returncode == 0
    done = _run("torchlift", "launch", "--num_processes", "2", "train.py", cwd=tmp_path)
    assert done.stdout == alone.stdout and alone.stdout.startswith("0 103 0."), done.stderr


@pytest.mark.hazard("B5", "X16")
@pytest.mark.parametrize(
    "step", [pytest.param(v, id=k, marks=[pytest.mark.slow] * (k != "pieces")) for k, v in STEPS.items()]
)
def test_gradients_wait_for_the_end_of_their_window(step: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WINDOWS.replace("STEP\n", step))
    done = _run("migrate", "--verify", "train.py", cwd=tmp_path)
    assert "accelerator.no_sync(model)" in done.stdout
    assert "\nHELD (" in done.stderr
    assert done.returncode == 0, done.stderr
