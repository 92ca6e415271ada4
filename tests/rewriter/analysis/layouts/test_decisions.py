"""What is decided on values that each process has of its own."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_a_rate_that_nobody_sets(trained: Trained) -> None:
    """The function is never called: what it would set the learning rate to stops nothing."""
    unused = 'def unused():\n    for g in optimizer.param_groups:\n        g["lr"] = model(x).mean().item()'
    text, findings = trained(built=unused, epoch='for g in optimizer.param_groups:\n    g["lr"] = 0.1 * loss.item()')
    assert 'g["lr"] = 0.1 * accelerator.reduce(loss.detach(), reduction="mean").item()' in text
    assert findings == []
