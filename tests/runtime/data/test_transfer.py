"""Batches on their way to the device."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator, skip_first_batches
from torchlift.runtime.collectives.world import World
from torchlift.runtime.data import transfer
from torchlift.runtime.data.loader import LoaderOptions, prepare_loader
from torchlift.runtime.data.progress import Progress
from torchlift.runtime.device import placement
from torchlift.runtime.device.placement import send_to_device, type_on


class Copies:
    """The stream that copies."""

    device = torch.device("cuda", 0)

    def __init__(self):
        self.events = 0

    def record_event(self):
        self.events += 1
        return f"copy {self.events}"


class Recorded:
    """Stands in for the streams of CUDA: what was asked of them, in order."""

    def __init__(self, monkeypatch):
        self.asked = []
        self.device = CUDA
        monkeypatch.setattr(torch, "Stream", lambda _: Copies())
        monkeypatch.setattr(torch.accelerator, "set_stream", self.set_stream)
        monkeypatch.setattr(torch.accelerator, "current_stream", lambda _: self)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda one, _: self.asked.append(("keep", int(one.sum()))))
        monkeypatch.setattr(transfer, "send_to_device", self.send)
        monkeypatch.setattr(transfer, "_SMALL", 0)
        transfer.beside.cache_clear()

    def set_stream(self, which):
        self.asked.append("copies" if isinstance(which, Copies) else "back")

    def wait_event(self, which):
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
    arrived = transfer.sent({"x": torch.ones(2), "y": [torch.ones(3), "a word"]}, CUDA, False)
    assert recorded.asked == ["copies", "copy", "back"]
    assert arrived()["y"][1] == "a word"
    assert recorded.asked[3:] == ["wait for copy 1", ("keep", 2), ("keep", 3)]


def test_a_small_batch_takes_no_way_of_its_own(recorded, monkeypatch):
    monkeypatch.setattr(transfer, "_SMALL", 64)
    transfer.sent([torch.ones(8), torch.ones(8), "a word"], CUDA, False)()
    assert recorded.asked == ["copy"]
    transfer.sent([torch.ones(8), torch.ones(9)], CUDA, False)()
    assert recorded.asked[1:4] == ["copies", "copy", "back"]


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
    ids=["opaque", "moves itself", "on a device already", "sparse", "the CPU", "no such streams"],
)
def test_what_is_not_known_is_copied_where_the_script_computes(recorded, batch, device):
    assert transfer.sent(batch, device, False)() is batch
    assert recorded.asked == ["copy"]


def test_a_device_that_is_only_pretended_has_no_streams(recorded, monkeypatch):
    def none(_):
        raise RuntimeError("No CUDA GPUs are available")

    monkeypatch.setattr(torch, "Stream", none)
    transfer.sent(torch.ones(1), CUDA, False)()
    assert recorded.asked == ["copy"]


class Lists(DataLoader):
    """What the loop gets is not what the iterator gives."""

    def __iter__(self):
        for (x,) in super().__iter__():
            yield x.tolist()


def on_cuda(loader):
    alone, progress = World(0, 1, torch.device("cpu")), Progress()
    options = LoaderOptions(world=alone, progress=progress, device=CUDA, non_blocking=False, split=False, even=True)
    return prepare_loader(loader, options)


def test_the_next_batch_is_on_its_way_before_this_one_goes_out(recorded):
    loader = on_cuda(DataLoader(TensorDataset(torch.arange(5)), 2, num_workers=1, persistent_workers=True))
    for _ in range(2):
        recorded.asked.clear()
        seen = []
        for (x,) in loader:
            recorded.asked.append("step")
            seen.append((x.tolist(), loader.end_of_dataloader))
        assert seen == [([0, 1], False), ([2, 3], False), ([4], True)]
        told = [one for one in recorded.asked if one in ("copy", "step") or "wait" in one]
        first = int(next(one for one in told if "wait" in one).split()[-1])
        waits = [f"wait for copy {first + number}" for number in range(3)]
        assert told == ["copy", "copy", waits[0], "step", "copy", waits[1], "step", waits[2], "step"]
    next(iter(loader))
    assert [x.tolist() for (x,) in skip_first_batches(loader, 1)] == [[2, 3], [4]]


@pytest.mark.parametrize(("kind", "workers"), [(DataLoader, 0), (Lists, 1)], ids=["no workers", "a loop of its own"])
def test_where_fetching_early_could_change_something_nothing_is(recorded, kind, workers):
    loader = on_cuda(kind(TensorDataset(torch.arange(4)), 2, num_workers=workers))
    count = 0
    for _ in loader:
        count += 1
        assert recorded.asked.count("copy") == count
    assert count == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pinned", [True, False])
def test_batches_are_whole_while_the_device_is_busy(pinned, workers):
    accelerator = Accelerator()
    rows = torch.arange(64.0 * (1 << 16)).reshape(64, 1 << 16)
    loader = accelerator.prepare(DataLoader(TensorDataset(rows), 4, pin_memory=pinned, num_workers=workers))
    sums = []
    for (x,) in loader:
        torch.cuda._sleep(10_000_000)
        sums.append((x * 2).sum(1))
        del x
        torch.empty(4, 1 << 16, device=accelerator.device).fill_(-1.0)  # would take memory that is given away too early
    torch.testing.assert_close(torch.cat(sums).cpu(), (rows * 2).sum(1))


def test_what_mps_has_no_type_for_becomes_the_next_one():
    """A script for MPS casts a batch first; what its loader yields is moved before that, and failed."""
    mps, cuda = torch.device("mps"), torch.device("cuda")
    assert type_on(mps, torch.float64) is torch.float32 and type_on(mps, torch.complex128) is torch.complex64
    assert type_on(mps, torch.int64) is torch.int64 and type_on(cuda, torch.float64) is torch.float64


def test_a_batch_is_cast_on_its_way(monkeypatch):
    """On the CPU, as if that were such a device."""
    monkeypatch.setattr(placement, "type_on", lambda device, dtype: torch.float32 if dtype is torch.float64 else dtype)
    rows, words = send_to_device((torch.ones(2, dtype=torch.float64), ["a"]), torch.device("cpu"))
    assert rows.dtype is torch.float32 and words == ["a"]
