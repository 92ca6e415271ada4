"""Exact mode on one machine: two half batches hold the rows of the whole one, whatever draws them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

SCRIPT = """
import random
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
{imports}
torch.manual_seed(0)


class Data(Dataset):
    def __len__(self):
        return 21

    def __getitem__(self, index):
        return torch.arange(4.0) + index + {sample}


model = nn.Sequential(nn.Linear(4, 8), {layer} nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Data(), batch_size=8, shuffle=True{loader})
{prepare}
for epoch in range(2):
    for x in loader:
        x = x / 20
        n = len(x)
        noise = {noise}
        assert len(noise) == n
        optimizer.zero_grad()
        loss = {loss}
        {backward}
        optimizer.step()
"""
PLAIN = {"imports": "", "prepare": "", "backward": "loss.backward()"}
OURS = {
    "imports": "from torchlift.runtime import Accelerator",
    "prepare": "accelerator = Accelerator()\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    "backward": "accelerator.backward(loss)",
}
DEFAULT = {
    "sample": "0",
    "layer": "",
    "loader": "",
    "noise": "torch.zeros(n, 1)",
    "loss": "(model(x) - noise).square().mean()",
}


@pytest.fixture
def both(tmp_path: Any, verify: Callable[..., Any]) -> Callable[..., Any]:
    """`both(noise="torch.randn(n, 1)")` verifies such a script on two processes."""

    def check(options: tuple[str, ...] = (), backward: str = OURS["backward"], **parts: str) -> Any:
        before, after = tmp_path / "before.py", tmp_path / "after.py"
        before.write_text(SCRIPT.format(**DEFAULT | PLAIN | parts))
        after.write_text(SCRIPT.format(**DEFAULT | OURS | parts | {"backward": backward}))
        return verify(before, after, options=("--procs", "2", *options))

    return check


NOISE = (
    "torch.randn(n, 1)",
    "torch.rand(n, 1)",
    "torch.randn_like(x)[:, :1]",
    "torch.zeros(n, 1).normal_(0, 2)",
    "torch.empty(n * 3).uniform_(-1, 1).view(n, 3)[:, :1]",
    "torch.randint(0, 5, (n, 1)).float()",
    "torch.randint(5, size=(n, 1)).float()",
    "torch.full((n, 1), float(torch.randint(5, ()) + torch.normal(0.0, 1.0, ())))",
    "torch.bernoulli(torch.full((n, 1), 0.5))",
    "torch.normal(torch.zeros(n, 1), torch.ones(n, 1))",
    "torch.distributions.Normal(0.0, 1.0).sample((n, 1))",
    "torch.multinomial(torch.ones(n, 4), 2, replacement=True).float()[:, :1]",
    "torch.multinomial(torch.ones(n, 4), 2).float()[:, :1]",
    "torch.as_tensor(np.random.normal(0, 1, (n, 1)), dtype=torch.float32)",
    "torch.as_tensor(np.random.rand(n, 1), dtype=torch.float32)",
    "F.gumbel_softmax(torch.zeros(n, 3))[:, :1]",
)


def _together(*parts: str) -> str:
    return f"sum(one.mean(1, keepdim=True) for one in ({', '.join(parts)},))"


def test_noise_has_the_rows_of_the_whole_batch(both: Callable[..., Any]) -> None:
    seen = both(noise=_together(*NOISE))
    assert seen.broken() == {}, seen.errors
    assert seen.of("weights")["outcome"] == "held"
    assert "noise drawn per row is a function of (step, call, row)" in seen.verdict["notes"]


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISE)
def test_each_kind_of_noise(noise: str, both: Callable[..., Any]) -> None:
    seen = both(noise=noise, options=("--double",))
    assert seen.broken() == {}, seen.errors


@pytest.mark.parametrize(
    ("sample", "loader"),
    [
        ("torch.rand(4) + random.random() + np.random.rand()", ""),
        pytest.param("torch.rand(4) + random.random()", ", num_workers=1", marks=pytest.mark.slow),
    ],
    ids=["in the process", "in workers"],
)
def test_samples_that_are_random_themselves(sample: str, loader: str, both: Callable[..., Any]) -> None:
    seen = both(sample=sample, loader=loader)
    assert seen.broken() == {}
    assert seen.of("samples")["outcome"] == "held"


def test_dropout_and_batch_norm_are_named(both: Callable[..., Any]) -> None:
    seen = both(layer="nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Dropout(0.1),")
    assert seen.broken() == {}
    assert {"dropout off: 2 layers", "BatchNorm: 1 layers on running statistics"} <= set(seen.verdict["notes"])


def test_a_summed_loss_needs_its_word(both: Callable[..., Any]) -> None:
    summed = "(model(x) - noise).square().sum() / 10"
    told = both(loss=summed, backward="accelerator.backward(loss, reduction='sum')")
    assert told.broken() == {}
    seen = both(loss=summed)
    assert "1/2 of it" in seen.broken()["losses"]


NEIGHBOURS = """
import torch
from torch import nn
from torch.utils.data import DataLoader
{imports}
torch.manual_seed(0)
table = torch.arange(40.0).view(10, 4) / 40


def sample(rows):
    drawn = [table[torch.randint(10, (3,))] for row in rows]
    return torch.cat([torch.zeros(len(rows), 3, 4), *[one[None] for one in drawn]]), torch.tensor(rows)


model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(range(24), batch_size=8, shuffle=True, collate_fn=sample)
{prepare}
for inputs, rows in loader:
    optimizer.zero_grad()
    loss = (model(inputs[-len(rows):]).mean((1, 2)) - rows).square().mean()
    {backward}
    optimizer.step()
"""


def test_what_a_batch_is_made_with_for_each_row_cannot_be_compared(tmp_path: Any, verify: Callable[..., Any]) -> None:
    """A collate function that draws for each row, as a sampler of neighbours does, was said to be a broken loader."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(NEIGHBOURS.format(**PLAIN))
    after.write_text(NEIGHBOURS.format(**OURS))
    seen = verify(before, after, options=("--procs", "2"))
    assert seen.broken() == {}, seen.errors
    why = "the script draws random numbers for each row, one by one: they differ between processes"
    assert seen.of("samples")["detail"] == seen.of("losses")["detail"] == why


def test_rows_that_are_mixed_cannot_be_compared(both: Callable[..., Any]) -> None:
    seen = both(noise="x[torch.randperm(n)][:, :1]")
    assert seen.status == 0
    assert seen.of("weights")["detail"] == "the script mixes the rows of a batch (randperm)"


BY_HAND = """
import numpy as np
import torch
from torch import nn
{imports}
torch.manual_seed(0)
np.random.seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.arange(84.0).view(21, 4) / 84
{prepare}
for epoch in range(2):
    order = torch.randperm(21)
    for start in range(0, 21, 8):
        x = data[{cut}({rows})]
        noise = torch.randn(len(x), 1) + torch.rand_like(x)[:, :1] + torch.as_tensor(np.random.rand(len(x), 1)).float()
        optimizer.zero_grad()
        loss = (model(x) - noise).square().mean()
        {backward}
        optimizer.step()
"""


@pytest.mark.parametrize("rows", ["order[start : start + 8]", "torch.randint(0, 21, (8,))"])
def test_rows_of_a_batch_that_is_cut(rows: str, tmp_path: Any, verify: Callable[..., Any]) -> None:
    """No loader says which rows are here; the original draws from torch's own generator. The rows of the next batch are
    drawn as a whole, also where they are a multiple of those in hand: such migrations were called broken."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(BY_HAND.format(**PLAIN, cut="", rows=rows))
    prepare = "accelerator = Accelerator()\nmodel, optimizer = accelerator.prepare(model, optimizer)"
    after.write_text(BY_HAND.format(**OURS | {"prepare": prepare}, cut="accelerator.shard_batch", rows=rows))
    seen = verify(before, after, options=("--procs", "2"))
    assert seen.broken() == {}, seen.errors
    assert seen.of("weights")["outcome"] == "held"
