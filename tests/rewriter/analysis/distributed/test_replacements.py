"""Programs that distribute themselves by hand, and such as only ask about it."""

from __future__ import annotations

from collections.abc import Callable

Trained = Callable[..., tuple[str, list[str]]]


def test_asking_whether_there_is_such_a_thing(trained: Trained) -> None:
    text, findings = trained(top="import torch.distributed as dist", end="print(dist.is_available())")
    assert "accelerator.print(dist.is_available())" in text
    assert findings == []


def test_batch_norms_that_could_be_synchronised(trained: Trained) -> None:
    line = "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)"
    text, findings = trained(built=line)
    assert line in text and "accelerator.backward(loss)" in text
    assert findings == []
