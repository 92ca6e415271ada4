"""What earlier versions of `migrate` have written trains as its original does, with the runtime of today."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KEPT = Path(__file__).resolve().parents[2] / "upgrades"
ARGUMENTS = {
    "mnist_functions": ("--epochs", "2", "--save-model"),
    "gan": ("--n_epochs", "2"),
    "legacy_gan": ("--n_epochs", "2", "--sample_interval", "7"),
    "bf16_autocast": ("--epochs", "2"),
    "fp16_scaler": ("--epochs", "2", "--fp16"),
    "grad_accumulation": ("--epochs", "2"),
    "resume_checkpoint": ("--epochs", "2"),
    "best_model": ("--epochs", "12"),
    "scheduler_per_step": ("--epochs", "2"),
    "torchrun_ddp": ("--epochs", "1"),
}
DISTRIBUTED = {"torchrun_ddp", "torchrun_windows", "program_spawn"}
"""Their originals start processes themselves."""
TOLD = {"run_folder": {"files"}}
"""What its findings say that two processes do otherwise: a picture of the rows of one process."""
DAILY = {"gan", "program_base_trainer"}
TRAINED = [
    pytest.param(after.parent, id=f"{after.parent.parent.name}-{after.parent.name}", marks=marks)
    for after in sorted(KEPT.glob("*/*/after*"))
    if after.suffix != ".ipynb"
    for marks in [() if after.parent.name in DAILY else pytest.mark.slow]
]


@pytest.mark.parametrize("kept", TRAINED)
def test_what_an_earlier_version_wrote_trains_equally(kept: Path, tmp_path: Path, verify: Callable[..., Any]) -> None:
    folder = Path(shutil.copytree(kept, tmp_path / kept.name))
    before, after = (
        folder / f"{name}.py" if (folder / f"{name}.py").exists() else folder / name / "train.py"
        for name in ("before", "after")
    )
    options = ("--steps", "4", *(["--distributed"] if kept.name in DISTRIBUTED else []))
    seen = verify(before, after, *ARGUMENTS.get(kept.name, ()), options=options)
    assert set(seen.broken()) == TOLD.get(kept.name, set()), seen.errors
    assert seen.of("weights", 2)["outcome"] == "held"
