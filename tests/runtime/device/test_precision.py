"""What forward passes can compute in, and where."""

from __future__ import annotations

import pytest
import torch

from torchlift.runtime import Accelerator, init_empty_weights
from torchlift.runtime.device.precision import Precision
from torchlift.runtime.errors import DeviceError
from torchlift.runtime.types import PrecisionType


@pytest.mark.parametrize("word", [PrecisionType.BF16, PrecisionType.FP16])
def test_a_device_without_autocast_is_named(word):
    with pytest.raises(
        DeviceError, match=f'"{word}" needs autocast in .*, which meta does not have: use mixed_pre.*"no"'
    ):
        Precision(word, "meta")
    assert not Precision(PrecisionType.NO, "meta").mixed and not Precision(word, "meta", enabled=False).mixed


def test_a_gpu_without_bf16_has_fp16(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with pytest.raises(DeviceError, match=r"torch\.bfloat16, which cuda does not have: use one of: no, fp16, or stay"):
        Precision(PrecisionType.BF16, "cuda")
    assert Precision(PrecisionType.FP16, "cuda").dtype is torch.float16


def test_a_model_without_data_is_named(monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")
    with init_empty_weights():
        model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    words = r"the weights of the Sequential \(0\.weight, for one\) are on the meta device and hold no data: load them"
    with pytest.raises(DeviceError, match=words):
        Accelerator().prepare(model)
