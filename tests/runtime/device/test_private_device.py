"""A device that only this test knows: trained on, and its files read where there is none."""

from __future__ import annotations

import torch
from safetensors.torch import load_file


def test_training_on_a_device_that_registers_itself(job, tmp_path):
    assert job("private_device.py", 1, tmp_path, TORCHLIFT_CPU="0") == [True]
    weights = torch.load(tmp_path / "weights.pt", weights_only=True)
    states = torch.load(tmp_path / "optimizer.pt", weights_only=True)["optimizer"]["state"]
    assert states[0]["exp_avg"].device.type == "cpu"
    for other in (
        load_file(tmp_path / "state" / "model.safetensors"),
        load_file(tmp_path / "model" / "model.safetensors"),
        torch.load(tmp_path / "pickled" / "pytorch_model.bin", weights_only=True),
    ):
        assert {one.device.type for one in other.values()} == {"cpu"}
        assert all(torch.equal(other[name], weights[name]) for name in other)


def test_two_processes_on_such_a_device(job, tmp_path):
    """Its back end counts no calls, and its memory has no addresses."""
    distances = job("private_device.py", 2, tmp_path, "together", TORCHLIFT_CPU="0")
    assert max(distances) < 1e-12
