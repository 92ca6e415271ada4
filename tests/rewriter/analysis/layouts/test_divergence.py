"""What differs between processes, and what is the same on all of them."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_the_width_of_a_batch_is_the_same_everywhere(trained: Trained) -> None:
    text, findings = trained(step="width = x.shape[1]\nif width > 3:\n    break")
    assert "accelerator.backward(loss)" in text
    assert findings == []


def test_the_rows_of_a_batch_are_as_many_on_all_processes(trained: Trained) -> None:
    """A short last batch is filled up."""
    text, findings = trained(step="rows = x.shape[0]\nif rows > 3:\n    break")
    assert "accelerator.backward(loss)" in text
    assert findings == ["local-decision"]


def test_what_another_method_of_that_name_joins_is_a_process_s_own(trained: Trained) -> None:
    step = "worst = functools.reduce(max, (loss.item(), 3))\nif worst > 30:\n    break"
    text, findings = trained(top="import functools", step=step)
    assert 'functools.reduce(max, (accelerator.reduce(loss.detach(), reduction="mean").item(), 3))' in text
    assert findings == []
    text, findings = trained(step="if x.reduce(loss).item() > 3:\n    break")
    assert "accelerator" not in text
    assert findings == ["local-decision"]
