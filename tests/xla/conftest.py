"""Scripts on virtual devices of torch_xla, in processes of their own: each sees another number of devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FIXTURES = HERE.parent.parent / "fixtures"
SECONDS = 600
Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xla)
            if find_spec("torch_xla") is None:
                item.add_marker(pytest.mark.skip(reason="torch_xla is not installed: make test-xla"))


@pytest.fixture(scope="session")
def run_python() -> Run:
    """`run_python(folder, devices, *command, **variables)`: with so many virtual devices; 0 is the plain CPU."""

    def run(folder: Path, devices: int, *command: object, **variables: str) -> subprocess.CompletedProcess[str]:
        by_xla = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(devices), "TF_CPP_MIN_LOG_LEVEL": "2"} if devices else {}
        rest = {name: value for name, value in os.environ.items() if name not in ("PJRT_DEVICE", "CPU_NUM_DEVICES")}
        return subprocess.run(
            [sys.executable, *map(str, command)],
            cwd=folder,
            env={**rest, "OMP_NUM_THREADS": "1", **by_xla, **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def recorded(run_python: Run, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """
    `recorded(name, devices, passes, *arguments, **variables)`: the losses and compilations of a fixture; with no
    devices, of the script as it was, on the CPU. `folder` is where it ran.
    """
    known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def run(name: str, devices: int, passes: int, *arguments: str, **variables: str) -> dict[str, Any]:
        key = (name, devices, passes, arguments, tuple(sorted(variables.items())))
        if key not in known:
            folder = tmp_path_factory.mktemp(f"{name}-{devices}")
            script = FIXTURES / name / ("after.py" if devices else "before.py")
            command = (HERE / "recorded.py", script, "result.json", passes, *arguments)
            done = run_python(folder, devices, *command, **variables)
            assert done.returncode == 0, done.stderr[-3000:]
            said = json.loads((folder / "result.json").read_text())
            known[key] = {**said, "folder": folder, "stdout": done.stdout, "stderr": done.stderr}
        return known[key]

    return run
