"""What a loss is over the rows of a batch: read through what it is computed from, by itself as well."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_a_loss_that_becomes_its_own_root(trained: Trained) -> None:
    text, _ = trained(loss="loss = torch.nn.functional.cross_entropy(model(x), y)\nloss = loss.sqrt()")
    assert "accelerator.backward(loss)" in text
