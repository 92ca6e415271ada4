"""What importing the runtime costs beyond torch. Wall time of whole processes, medians."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .measure import Row, in_turn, milliseconds, within

TITLE = "Importing the runtime"


def rows(rounds: int = 7) -> list[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory() as name:
        taken = in_turn(
            {
                "torch": [sys.executable, "-c", "import torch"],
                "ours": [sys.executable, "-c", "import torchlift.runtime; torchlift.runtime.Accelerator"],
                "package": [sys.executable, "-c", "import torchlift.runtime"],
                "pass": [sys.executable, "-c", "pass"],
            },
            Path(name),
            rounds,
        )
    torch = taken["torch"].wall
    return [
        within("torchlift.runtime and the name Accelerator", taken["ours"].wall, torch + 0.15),
        Row("beside: import torch", milliseconds(torch)),
        Row("beside: import torchlift.runtime, no name of it", milliseconds(taken["package"].wall)),
        Row("beside: python -c pass", milliseconds(taken["pass"].wall)),
    ]
