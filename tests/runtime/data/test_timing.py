"""How fast a loop goes through a loader, and what it waits for."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.data import DataLoader

from torchlift.runtime import Accelerator
from torchlift.runtime.data import batches


def test_pace_tells_waiting_from_working(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(batches, "perf_counter", lambda: now[0])

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            now[0] += 3.0
            return torch.tensor(index)

    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(Slow(), batch_size=1))
    assert accelerator.pace(loader) == (0, 0.0, 0.0)
    for _ in loader:
        now[0] += 1.0
    assert accelerator.pace(loader) == (8, 4.0, 0.75)
    assert accelerator.pace(loader) == (0, 0.0, 0.0), "since it was asked last"
    for number, _ in enumerate(loader):
        now[0] += 9.0
        if number == 1:
            break
    now[0] += 1000.0  # between two passes
    pace = accelerator.pace(accelerator.skip_first_batches(loader, 2))
    assert (pace.batches, pace.seconds_per_batch) == (1, 12.0), "the batch in hand is not done with"
    with pytest.raises(TypeError, match="pace"):
        accelerator.pace(DataLoader(Slow()))
    again = pickle.loads(pickle.dumps(accelerator.prepare(DataLoader(range(4)))))
    assert accelerator.pace(again).batches == 0
