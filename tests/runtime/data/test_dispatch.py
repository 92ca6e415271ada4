"""What rank 0 reads for all: what it keeps itself, and what it tells of the rows."""

from __future__ import annotations

import pytest
import torch

from torchlift.runtime.collectives.world import World
from torchlift.runtime.data.dispatch import Dispatched


class Wire(World):
    """Rank 0 of a job whose other processes only listen."""

    def scatter_bytes(self, numbers, parts):
        return numbers, parts[0] if parts else torch.empty(0, dtype=torch.uint8)


def test_on_the_cpu_rank_0_keeps_its_rows_as_they_were_read():
    words, rows = object(), torch.arange(4)
    (batch, _), *_ = [(one.batch, one.shares) for one in Dispatched(iter([[rows, words]]), cpu(), True, False)]
    assert batch[0].tolist() == [0, 1] and batch[0].data_ptr() == rows.data_ptr()
    assert batch[1] is words, "what no pickle carries stays what it is"


def test_on_an_accelerator_rank_0_is_sent_its_rows_like_the_others():
    """They are on the device then."""
    rows = torch.arange(4)
    (one,) = Dispatched(iter([[rows]]), Wire(0, 2, torch.device("cuda", 0)), True, False)
    assert one.batch[0].tolist() == [0, 1] and one.batch[0].data_ptr() != rows.data_ptr()


def cpu():
    return Wire(0, 2, torch.device("cpu"))


@pytest.mark.parametrize("last", [2, 1])
def test_a_round_whose_rows_cannot_be_told_counts_as_even(last):
    """As for detection: a tensor of its own for each picture."""
    batches = [[torch.arange(rows), [torch.ones(3), torch.ones(5)]] for rows in (2, last)]
    (one,) = Dispatched(iter(batches), cpu(), False, False)
    assert one.shares.rows == one.shares.valid == (2, 2) and one.shares.weights == (1.0, 1.0)
    assert one.batch is batches[0]
