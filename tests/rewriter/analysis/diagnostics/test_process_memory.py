"""What a process remembers of its own rows is told; what it collects to be looked at later is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]

BUFFER = """\
import random

class Buffer:
    def __init__(self):
        self.rows = []

    def exchange(self, new):
        out = []
        for row in new.detach():
            {keep}
            out.append({take})
        return torch.stack(out)

buffer = Buffer()
"""
LOSS = "loss = torch.nn.functional.cross_entropy(buffer.exchange(model(x)) + model(x), y)"


@pytest.mark.hazard("X25")
@pytest.mark.parametrize(
    ("keep", "take"),
    [
        ("self.rows.append(row)", "self.rows[0]"),
        ("self.rows[0] = row", "self.rows[-1].clone()"),
        ("self.rows.append(row)", "random.choice(self.rows)"),
    ],
    ids=["by an index", "in place", "at random"],
)
def test_a_buffer_of_earlier_rows(keep: str, take: str, trained: Trained) -> None:
    _, findings = trained(top=BUFFER.format(keep=keep, take=take), loss=LOSS)
    assert "process-memory" in findings


@pytest.mark.parametrize(
    ("keep", "take"),
    [("self.rows.append(row)", "row"), ("self.rows.append(row.sum().item())", "row * self.rows[-1]")],
    ids=["never read", "numbers"],
)
def test_no_buffer_of_rows(keep: str, take: str, trained: Trained) -> None:
    _, findings = trained(top=BUFFER.format(keep=keep, take=take), loss=LOSS)
    assert "process-memory" not in findings
