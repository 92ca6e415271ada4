"""The rule `shard_batch` where a step goes through the rows of its batch one by one."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

Migrated = Callable[[str], str]

READER = dedent(
    """\
    import random

    import numpy as np
    import torch
    from torch import nn

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.RNN(6, 8)
            self.out = nn.Linear(8, 3)

        def forward(self, line):
            _, state = self.rnn(line)
            return torch.log_softmax(self.out(state[0]), dim=1)

    lines = [(torch.tensor([i % 3]), torch.randn(2 + i % 5, 1, 6)) for i in range(40)]
    net = Reader()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    total = 0
    order = list(range(len(lines)))
    random.shuffle(order)
    for batch in np.array_split(order, 6):
        loss = 0
        for i in batch:
            label, line = lines[i]
            loss += nn.functional.nll_loss(net(line), label)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item() / len(batch)
    print(total / 6)
    """
)


def test_a_layer_that_is_given_one_row_gives_one_row(migrated: Migrated) -> None:
    """The terms of the rows are added up: a sum over the shard."""
    text = migrated(READER)
    assert "    batch = accelerator.shard_batch(batch)\n    loss = 0\n" in text
    assert 'accelerator.backward(loss, reduction="sum")' in text


def test_a_sum_that_is_divided_by_its_rows_is_averaged_as_a_quotient(migrated: Migrated) -> None:
    """Shards of seven rows differ: a mean of the sums, divided by the rows of one process, would be another figure."""
    quotient = "torch.tensor(loss.item() / len(batch), dtype=torch.float64)"
    assert f'total += accelerator.reduce({quotient}, reduction="mean").item()' in migrated(READER)
