"""What places things on a device that the script chose."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]


@pytest.mark.parametrize("pin", ["torch.cuda.set_device(1)", "torch.cuda.set_device('cuda:0')"])
def test_a_process_is_not_pinned_to_one_gpu(pin: str, trained: Trained) -> None:
    text, findings = trained(built=f"{pin}\nmodel.cuda()")
    assert "set_device" not in text and findings == []


@pytest.mark.parametrize("flags", ["fast or other", "fast == 1"])
def test_a_flag_of_several_parts_is_negated_as_a_whole(flags: str, trained: Trained) -> None:
    top = f"fast = other = 1\ndevice = torch.device('cuda' if {flags} else 'cpu')"
    text, _ = trained(top=top, built="model.to(device)")
    assert f"Accelerator(cpu=not ({flags}))" in text
