"""`--verify --device xla`: the promises on virtual devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
VERIFY = ("-m", "torchlift.runtime.verify", "--device", "xla", "--procs", "2", "--output-format", "json")


def test_noise_that_is_drawn_on_the_device_is_that_of_the_original(
    run_python: Callable[..., Any], tmp_path: Path
) -> None:
    scripts = [FIXTURES / "gan" / name for name in ("before.py", "after.py")]
    done = run_python(tmp_path, 0, *VERIFY, "--steps", "4", *scripts, "--", "--n_epochs", "1")
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    verdict = json.loads(done.stdout)
    outcomes = {one["id"]: one["outcome"] for one in verdict["promises"]}
    assert {outcomes[id] for id in ("losses", "weights", "numbers", "files", "checkpoints")} == {"held"}
    assert {one["processes"] for one in verdict["promises"]} == {2}


def test_a_loss_that_is_scaled_is_found(run_python: Callable[..., Any], tmp_path: Path) -> None:
    original = FIXTURES / "resume_checkpoint" / "before.py"
    migrated = tmp_path / "after.py"
    text = original.with_name("after.py").read_text()
    migrated.write_text(text.replace("accelerator.backward(loss)", "accelerator.backward(loss * 1.001)"))
    done = run_python(tmp_path, 0, *VERIFY, "--steps", "3", original, migrated, "--", "--epochs", "1")
    assert done.returncode == 1, done.stderr[-2000:]
    broken = {one["id"] for one in json.loads(done.stdout)["promises"] if one["outcome"] == "broken"}
    assert {"losses", "weights"} <= broken
