"""Batches on their way to the device."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator
from torchlift.runtime.data import transfer


class Recorded:
    """Stands in for the streams of CUDA: what was asked of them, in order."""

    def __init__(self, monkeypatch):
        self.asked = []
        monkeypatch.setattr(torch.cuda, "Stream", lambda _: "copies")
        monkeypatch.setattr(torch.cuda, "stream", self.stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: self)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda one, _: self.asked.append(("keep", int(one.sum()))))
        monkeypatch.setattr(transfer, "send_to_device", self.send)
        transfer.beside.cache_clear()

    @contextmanager
    def stream(self, which):
        self.asked.append(which)
        yield
        self.asked.append("back")

    def wait_stream(self, which):
        self.asked.append(f"wait for {which}")

    def send(self, batch, device, non_blocking):
        self.asked.append("copy")
        return batch


@pytest.fixture
def recorded(monkeypatch):
    yield Recorded(monkeypatch)
    transfer.beside.cache_clear()


CUDA = torch.device("cuda", 0)


def test_copies_go_beside_and_the_computing_waits_for_them(recorded):
    transfer.transfer({"x": torch.ones(2), "y": [torch.ones(3), "a word"]}, CUDA, False)
    assert recorded.asked == ["copies", "copy", "back", "wait for copies", ("keep", 2), ("keep", 3)]


class Opaque:
    """What it holds cannot be seen."""

    def to(self, device):
        return self


class Tokens(dict):
    def to(self, device):
        return self


@pytest.mark.parametrize(
    ("batch", "device"),
    [
        ([torch.ones(1), Opaque()], CUDA),
        (Tokens(x=torch.ones(1)), CUDA),
        ([torch.ones(1), torch.ones(1, device="meta")], CUDA),
        (torch.ones(2).to_sparse(), CUDA),
        (torch.ones(1), torch.device("cpu")),
        (torch.ones(1), torch.device("mps")),
    ],
    ids=["opaque", "moves itself", "on a device already", "sparse", "the CPU", "no CUDA"],
)
def test_what_is_not_known_is_copied_where_the_script_computes(recorded, batch, device):
    assert transfer.transfer(batch, device, False) is batch
    assert recorded.asked == ["copy"]


def test_a_device_that_is_only_pretended_has_no_streams(recorded, monkeypatch):
    def none(_):
        raise RuntimeError("No CUDA GPUs are available")

    monkeypatch.setattr(torch.cuda, "Stream", none)
    transfer.transfer(torch.ones(1), CUDA, False)
    assert recorded.asked == ["copy"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("pinned", [True, False])
def test_batches_are_whole_while_the_device_is_busy(pinned):
    accelerator = Accelerator()
    rows = torch.arange(64.0 * (1 << 16)).reshape(64, 1 << 16)
    loader = accelerator.prepare(DataLoader(TensorDataset(rows), 4, pin_memory=pinned))
    sums = []
    for (x,) in loader:
        torch.cuda._sleep(10_000_000)
        sums.append((x * 2).sum(1))
        del x
        torch.empty(4, 1 << 16, device=accelerator.device).fill_(-1.0)  # would take memory that is given away too early
    torch.testing.assert_close(torch.cat(sums).cpu(), (rows * 2).sum(1))
