"""Which variables are handed to prepare."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_the_variable_that_held_the_wrapper(trained: Trained) -> None:
    loss = "loss = torch.nn.functional.cross_entropy(wrapped(x), y)"
    text, findings = trained(built="wrapped = torch.nn.DataParallel(model)", loss=loss)
    assert "wrapped = model\n" in text
    assert "wrapped, optimizer, loader = accelerator.prepare(\n    wrapped, optimizer, loader" in text
    assert findings == ["data_parallel"]
