"""Totals of an epoch that become an average: what is known to be the loss is reduced, other figures are not."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_the_loss_is_reduced(trained: Trained) -> None:
    text, findings = trained(step="value = loss.item()\ntotal += value", epoch="print(total / len(loader))")
    assert 'accelerator.reduce(loss.detach(), reduction="mean").item()' in text
    assert findings == []


def test_another_figure_that_is_read_off_is_not_taken_for_the_loss(trained: Trained) -> None:
    step = "norm = x.norm()\nvalue = norm.item()\ntotal += value"
    text, findings = trained(step=step, epoch="print(total / len(loader))")
    assert "reduce(" not in text
    assert findings == ["metrics_gather"]
