"""How long it takes to start two processes that do nothing. Wall time, medians."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .measure import COMMANDS, Row, in_turn, milliseconds, within

TITLE = "Starting two processes"


def rows(rounds: int = 5) -> list[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "nothing.py").write_text("pass\n")
        taken = in_turn(
            {
                "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "nothing.py"],
                "ours": [str(COMMANDS / "torchlift"), "launch", "--num-processes", "2", "nothing.py"],
            },
            Path(name),
            rounds,
        )
    torchrun = taken["torchrun"].wall
    return [
        within("torchlift launch --num-processes 2", taken["ours"].wall, torchrun + 0.3),
        Row("beside: torchrun --nproc_per_node=2", milliseconds(torchrun)),
    ]
