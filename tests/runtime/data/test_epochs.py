"""Orders that follow from a seed and the number of the epoch."""

from __future__ import annotations

import torch

from torchlift.runtime.data_loader import SeedableRandomSampler


def test_every_pass_over_a_seedable_sampler_is_the_next_epoch() -> None:
    rows = range(100)
    sampler, again = (SeedableRandomSampler(rows, data_seed=3) for _ in range(2))
    orders = [list(sampler) for _ in range(3)]
    assert sampler.epoch == 3 and len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == list(rows) for order in orders)
    again.set_epoch(2)
    torch.rand(7)  # nothing that the script draws changes the order
    assert list(again) == orders[2]
