"""Models that are large enough for their gradients to be exchanged during the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchlift.runtime.strategies.during import SMALL_BYTES

from .conftest import TRAINS

WIDTH = SMALL_BYTES // (4 * 5)


def test_the_end_of_an_exchange_is_no_loss(tmp_path: Path, verify: Callable[..., Any]) -> None:
    large = f"torch.nn.Sequential(torch.nn.Linear(4, {WIDTH}), torch.nn.Linear({WIDTH}, 1))"
    before = TRAINS.replace("torch.nn.Linear(4, 1)", large).replace("lr=0.1", "lr=1e-6")
    after = (
        before.replace("import torch\n", "import torch\nfrom torchlift.runtime import Accelerator\n", 1)
        .replace("loss.backward()", "accelerator.backward(loss)")
        .replace(
            "for epoch in",
            "accelerator = Accelerator()\n"
            "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
            "for epoch in",
        )
        .replace("print(", "accelerator.print(")
    )
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text(before)
    new.write_text(after)
    seen = verify(old, new, options=("--procs", "2", "--double"))
    assert seen.broken() == {}, seen.errors
    assert seen.of("losses")["outcome"] == "held"
