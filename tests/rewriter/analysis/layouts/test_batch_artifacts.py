"""Sums of batch means that are divided by the number of samples."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]


@pytest.mark.parametrize(
    ("added", "findings"),
    [
        ("loss.item()", ["mean-of-batches"]),
        ("weight + loss.item()", ["mean-of-batches"]),
        ("weight", []),
    ],
)
def test_only_the_mean_of_a_loss_is_reported(added: str, findings: list[str], trained: Trained) -> None:
    text, found = trained(built="weight = 0.5", step=f"total += {added}", epoch="total /= len(data)\nprint(total)")
    assert f"total += {added.replace('loss.item()', REDUCED)}\n" in text
    assert found == findings


REDUCED = 'accelerator.reduce(loss.detach(), reduction="mean").item()'
