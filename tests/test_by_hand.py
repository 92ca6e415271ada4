"""Scripts that distribute themselves: N processes of the migrated script compute what N of the original did."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from torchlift.runtime.process.system import get_free_port

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
COMMANDS = Path(sys.executable).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LAUNCH = [str(COMMANDS / "torchlift"), "launch"]

pytestmark = pytest.mark.xdist_group("by hand")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("by-hand")


@cache
def run(place: Path, name: str, script: str, *command: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """What one run of a fixture prints, and the weights that it saves."""
    import torch

    folder = place / f"{len(list(place.iterdir()))}"
    shutil.copytree(FIXTURES / name, folder)
    outside = ("TORCHLIFT_", "ACCELERATE_", "MASTER_", "RANK", "LOCAL_", "WORLD_SIZE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(outside)}
    environment = {**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "MASTER_PORT": str(get_free_port())}
    environment["PYTHONPATH"] = str(Path(__file__).with_name("by_hand"))
    path = folder / script
    ended = subprocess.run(
        [*command, path.name], cwd=path.parent, env=environment, capture_output=True, text=True, timeout=400
    )
    assert ended.returncode == 0, f"{' '.join(command)}: exit {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    saved = {p.name: torch.load(p, weights_only=True) for p in path.parent.glob("*.pt")}
    assert saved, "nothing is saved: nothing is shown"
    return tuple(ended.stdout.splitlines()), saved


def torchrun(processes: int) -> tuple[str, ...]:
    return (*TORCHRUN, "--nproc-per-node", str(processes), "--master-port", str(get_free_port()))


def launch(processes: int) -> tuple[str, ...]:
    return (*LAUNCH, "--num-processes", str(processes), "--cpu")


def same(one: dict[str, Any], other: dict[str, Any], tolerance: float) -> None:
    import torch

    assert list(one) == list(other)
    for name in one:
        assert list(one[name]) == list(other[name]), "a plain model's keys"
        for key, value in one[name].items():
            assert torch.allclose(other[name][key], value, rtol=0, atol=tolerance), key


@pytest.mark.parametrize(
    "start",
    [pytest.param(launch, id="torchlift launch"), pytest.param(torchrun, id="torchrun")],
)
@pytest.mark.slow
def test_two_processes_that_the_script_started_by_itself(start: Any, place: Path) -> None:
    lines, weights = run(place, "program_spawn", "before/train.py", sys.executable)
    printed, saved = run(place, "program_spawn", "after/train.py", *start(2))
    assert printed == lines
    same(weights, saved, 1e-6)


@pytest.mark.parametrize("name", ["torchrun_ddp", "torchrun_windows"])
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_as_many_processes_of_torchrun(name: str, processes: int, place: Path) -> None:
    """Where every process draws batches of its own, by a seed of its own, it draws the same ones."""
    lines, weights = run(place, name, "before.py", *torchrun(processes))
    printed, saved = run(place, name, "after.py", *torchrun(processes))
    assert printed == lines
    same(weights, saved, 1e-6)


@pytest.mark.slow
def test_without_a_launcher_it_is_one_process(place: Path) -> None:
    lines, weights = run(place, "torchrun_ddp", "before.py", *torchrun(1))
    printed, saved = run(place, "torchrun_ddp", "after.py", sys.executable)
    assert printed == lines
    same(weights, saved, 0)
