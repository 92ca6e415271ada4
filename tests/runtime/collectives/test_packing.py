"""How tensors become one run of bytes, and again tensors."""

from __future__ import annotations

import torch

from torchlift.runtime.collectives.packing import pack, unpack

CPU = torch.device("cpu")


def test_one_tensor_that_is_only_read_is_not_copied() -> None:
    """Large gathers would hold every tensor twice."""
    tensor = torch.arange(12.0).reshape(3, 4)
    assert pack([tensor], CPU, may_alias=True).data_ptr() == tensor.data_ptr()
    for packed in (
        pack([tensor], CPU),
        pack([tensor], CPU, length=64, may_alias=True),
        pack([tensor.T], CPU, may_alias=True),
    ):
        assert packed.data_ptr() != tensor.data_ptr()
        assert packed[:48].view(torch.float32).sort().values.tolist() == list(range(12))


def test_nothing_and_several_tensors_are_packed() -> None:
    assert pack([], CPU, may_alias=True).tolist() == []
    tensors = [torch.arange(3), torch.ones(2, 2), torch.tensor([True]), torch.zeros(0, 5)]
    shapes, dtypes = [tuple(one.shape) for one in tensors], [one.dtype for one in tensors]
    for one, again in zip(tensors, unpack(pack(tensors, CPU, may_alias=True), shapes, dtypes), strict=True):
        assert torch.equal(one, again) and one.dtype is again.dtype
