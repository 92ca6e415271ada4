"""Verifications as a user starts them, in a process of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

_DROPPED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TRAINS = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(44, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
for epoch in range(2):
    for a, b in loader:
        optimizer.zero_grad()
        loss = ((model(a) - b) ** 2).mean()
        loss.backward()
        optimizer.step()
print("trained")
"""
"""A script that trains for a moment; what a test is about is put behind it."""


@dataclass
class Seen:
    """What a verification said."""

    status: int
    verdict: dict[str, Any]
    errors: str

    def of(self, id: str, processes: int = 2) -> dict[str, Any]:
        """One promise."""
        found = [p for p in self.verdict["promises"] if p["id"] == id and p["processes"] == processes]
        assert len(found) == 1, f"{id} on {processes}: {found}"
        return found[0]

    def broken(self) -> dict[str, str]:
        """The broken promises, on any number of processes, with what is said about them."""
        return {p["id"]: p["detail"] for p in self.verdict["promises"] if p["outcome"] == "broken"}

    def untestable(self) -> set[str]:
        """The promises that could not be tested."""
        return {p["id"] for p in self.verdict["promises"] if p["outcome"] == "not testable"}


def run_verify(
    forks: Any,
    original: Path,
    migrated: Path,
    *arguments: str,
    options: tuple[str, ...] = (),
    cpu: bool = True,
    **env: str,
) -> Seen:
    kept = {k: v for k, v in os.environ.items() if k not in _DROPPED and not k.startswith("TORCHLIFT_")}
    argv = ["-m", "torchlift.runtime.verify", original.name, str(migrated), "--output-format", "json"]
    argv += [*(["--cpu"] if cpu else []), *options, "--", *arguments]
    running = forks.start(argv, original.parent, {**kept, **env, "TORCHLIFT_VERIFY_READY": "1"}, apart=True)
    status = running.wait(900)
    printed, errors = running.output()
    assert status is not None, f"no end after 900 s\n{errors}"
    verdict = json.loads(printed) if printed.startswith("{") else {"promises": []}
    return Seen(status, verdict, errors)


@pytest.fixture
def verify(forks: Any) -> Callable[..., Seen]:
    """`verify(original, migrated, *arguments, options=(...))`."""
    return partial(run_verify, forks)


@pytest.fixture
def identity(forks: Any, tmp_path: Path) -> Callable[..., Seen]:
    """`identity(source)` verifies a script against itself on one process."""

    def check(source: str, *arguments: str, options: tuple[str, ...] = (), trains: bool = True, **env: str) -> Seen:
        folder = tmp_path / "project" / "code"
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / "train.py"
        script.write_text((TRAINS if trains else "") + source)
        return run_verify(forks, script, script, *arguments, options=("--procs", "1", *options), **env)

    return check
