"""What forward passes can compute in, and where."""

from __future__ import annotations

import pytest
import torch

from torchlift.runtime import Accelerator, init_empty_weights
from torchlift.runtime.device.precision import Precision, let_round
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


@pytest.fixture
def as_torch_does():
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def test_tf32_is_set_where_a_device_has_it(as_torch_does, caplog):
    let_round(torch.device("cuda", 0), True)
    assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32
    let_round(torch.device("cuda", 0), False)
    assert torch.get_float32_matmul_precision() == "highest" and not torch.backends.cudnn.allow_tf32
    assert caplog.text == ""


@pytest.mark.parametrize("on", ["1", "0"])
def test_tf32_on_the_cpu_changes_nothing_and_is_said(monkeypatch, caplog, on):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")
    monkeypatch.setenv("TORCHLIFT_TF32", on)
    Accelerator()
    assert torch.get_float32_matmul_precision() == "highest"
    assert ("TF32 is asked for, and cpu has none" in caplog.text) is (on == "1")
