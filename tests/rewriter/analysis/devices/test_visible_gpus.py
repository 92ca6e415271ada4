"""Scripts that choose their GPUs by themselves."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_alone_in_its_line(trained: Trained) -> None:
    text, findings = trained(top='import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"')
    assert "CUDA_VISIBLE_DEVICES" not in text
    assert findings == ["launcher"]


def test_beside_something_else_in_its_line(trained: Trained) -> None:
    text, _ = trained(top='import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"; print(3)')
    assert 'os.environ["CUDA_VISIBLE_DEVICES"] = "0"; accelerator.print(3)' in text
