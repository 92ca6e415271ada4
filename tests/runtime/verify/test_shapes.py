"""Loops of many shapes, migrated by hand: all are compared on two processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
{imports}
torch.manual_seed(0)
x = torch.randn(45, 4)
y = x.sum(1, keepdim=True)
data = TensorDataset(x, y)
model = nn.Linear(4, 1)
{make}
{prepare}
{loop}
"""
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n"
LOADER = SGD + "loader = DataLoader(data, batch_size=8, shuffle=True)"
STREAM = (
    SGD
    + """
class Stream(IterableDataset):
    def __iter__(self):
        index = 0
        while {while_}:
            yield x[index % 45], y[index % 45]
            index += 1
loader = DataLoader(Stream(), batch_size=2)"""
)
LOOP = """
for epoch in range(2):
    for a, b in loader:
        optimizer.zero_grad()
        loss = (model(a) - b).square().mean()
        BACKWARD
        optimizer.step()
"""
SHAPES = {
    "batches are dicts": (
        SGD
        + """
class Named(Dataset):
    def __len__(self):
        return 45
    def __getitem__(self, index):
        return {"x": x[index], "y": y[index], "name": f"row {index}"}
loader = DataLoader(Named(), batch_size=8, shuffle=True)""",
        LOOP.replace("a, b in", "batch in").replace("model(a) - b", 'model(batch["x"]) - batch["y"]'),
    ),
    "a stream": (STREAM.replace("{while_}", "index < 45"), LOOP),
    "an endless stream": (STREAM.replace("{while_}", "True"), LOOP),
    "workers that persist": (LOADER[:-1] + ", num_workers=1, persistent_workers=True)", LOOP),
    "next(iter(loader))": (
        LOADER,
        """
batches = iter(loader)
for step in range(9):
    try:
        a, b = next(batches)
    except StopIteration:
        batches = iter(loader)
        a, b = next(batches)
    optimizer.zero_grad()
    loss = (model(a) - b).square().mean()
    BACKWARD
    optimizer.step()
""",
    ),
    "a closure": (
        "optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)\n"
        "loader = DataLoader(data, batch_size=45)",
        """
for epoch in range(2):
    for a, b in loader:
        def closure():
            optimizer.zero_grad()
            loss = (model(a) - b).square().mean()
            BACKWARD
            return loss
        optimizer.step(closure)
""",
    ),
    "recurrent, with attention": (
        """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.LSTM(1, 6, 2, dropout=0.5, batch_first=True)
        self.look = nn.MultiheadAttention(6, 2, dropout=0.3, batch_first=True)
        self.say = nn.Linear(6, 1)
    def forward(self, x):
        states, _ = self.read(x.unsqueeze(-1))
        return self.say(self.look(states, states, states)[0][:, -1])
model = Reader()
"""
        + LOADER,
        LOOP,
    ),
    "half way left": (
        LOADER,
        LOOP.replace("        optimizer.step()", "        optimizer.step()\n        if a.sum() > 1e9: break"),
    ),
    "compiled": (
        LOADER + '\ncompiled = torch.compile(model, backend="eager")',
        LOOP.replace("model(a)", "compiled(a)"),
    ),
}


def _write(folder: Path, make: str, loop: str) -> tuple[Path, Path]:
    before, after = folder / "before.py", folder / "after.py"
    before.write_text(HEAD.format(imports="", make=make, prepare="", loop=loop.replace("BACKWARD", "loss.backward()")))
    names = "model, optimizer, loader" if "loader =" in make else "model, optimizer"
    after.write_text(
        HEAD.format(
            imports="from torchlift.runtime import Accelerator\naccelerator = Accelerator()",
            make=make,
            prepare=f"{names} = accelerator.prepare({names})",
            loop=loop.replace("BACKWARD", "accelerator.backward(loss)"),
        )
    )
    return before, after


DAILY = ("batches are dicts", "an endless stream", "recurrent, with attention")


@pytest.mark.parametrize("shape", [pytest.param(s, marks=() if s in DAILY else pytest.mark.slow) for s in SHAPES])
def test_shape(shape: str, tmp_path: Path, verify: Callable[..., Any]) -> None:
    seen = verify(*_write(tmp_path, *SHAPES[shape]))
    assert seen.broken() == {}, seen.errors
    assert seen.untestable() == {"checkpoints"}
    assert seen.of("samples")["outcome"] == "held"


def test_a_last_batch_with_fewer_rows_than_processes(tmp_path: Path, verify: Callable[..., Any]) -> None:
    """The third process reads a row that does not count, and all go on to the next pass together."""
    rows = LOADER.replace("data, batch", "TensorDataset(x[:18], y[:18]), batch")
    seen = verify(*_write(tmp_path, rows, LOOP), options=("--procs", "3"))
    assert seen.broken() == {}, seen.errors
    assert seen.of("samples", 3)["detail"] == "36 rows"
    assert seen.of("weights", 3)["outcome"] == "held"


def test_batches_made_by_hand_cannot_be_compared(tmp_path: Path, verify: Callable[..., Any]) -> None:
    loop = """
for step in range(9):
    rows = torch.randint(0, 45, (8,))
    optimizer.zero_grad()
    loss = (model(x[rows]) - y[rows]).square().mean()
    BACKWARD
    optimizer.step()
"""
    seen = verify(*_write(tmp_path, SGD, loop))
    assert seen.status == 0
    assert seen.of("weights", 1)["outcome"] == "held"
    assert seen.of("weights")["detail"].startswith("batches are made by hand, not by a loader")
    assert seen.of("ranks")["outcome"] == "held"


ACCELERATE = {
    "__init__.py": "from .accelerator import Accelerator\n",
    "accelerator.py": """
import torch.distributed as dist
from torch.utils.data import BatchSampler
from .data_loader import DataLoaderConfiguration, DataLoaderShard, Share
class Accelerator:
    def __init__(self, dataloader_config=None):
        self.config = dataloader_config or DataLoaderConfiguration()
        dist.init_process_group("gloo")
    def prepare(self, model, optimizer, loader):
        share = Share(loader.batch_sampler, self.config.split_batches)
        shard = DataLoaderShard(loader.dataset, batch_sampler=share)
        return torch_ddp(model), optimizer, shard
    def backward(self, loss):
        loss.backward()
def torch_ddp(model):
    from torch.nn.parallel import DistributedDataParallel
    return DistributedDataParallel(model)
""",
    "data_loader.py": """
import torch.distributed as dist
from torch.utils.data import DataLoader
class DataLoaderConfiguration:
    split_batches = False
class Share:
    def __init__(self, batches, split):
        self.batches, self.split = batches, split
    def __iter__(self):
        for number, batch in enumerate(self.batches):
            if self.split:
                yield batch[dist.get_rank() :: dist.get_world_size()]
            elif number % dist.get_world_size() == dist.get_rank():
                yield batch
class DataLoaderShard(DataLoader):
    def __iter__(self):
        batches = super().__iter__()
        ahead = next(batches)
        for batch in batches:
            yield ahead
            ahead = batch
        yield ahead
""",
}
"""As much of Accelerate as scripts and our hooks touch: a loader that fetches ahead, a setting, a wrapper."""


def test_accelerate_is_told_to_keep_the_batch(tmp_path: Path, verify: Callable[..., Any]) -> None:
    package = tmp_path / "accelerate"
    package.mkdir()
    for name, text in ACCELERATE.items():
        (package / name).write_text(text)
    before, after = _write(tmp_path, LOADER.replace("data, batch", "TensorDataset(x[:40], y[:40]), batch"), LOOP)
    after.write_text(after.read_text().replace("torchlift.runtime", "accelerate"))
    seen = verify(before, after, options=("--procs", "2"))
    assert seen.broken() == {}, seen.errors
    assert seen.of("samples")["detail"] == "80 rows"
    assert seen.of("weights")["outcome"] == "held"


def test_what_cannot_be_told_to_keep_the_batch_is_not_blamed(tmp_path: Path, verify: Callable[..., Any]) -> None:
    before, after = _write(tmp_path, LOADER, LOOP)
    text = before.read_text().replace(
        "\nfor epoch",
        "\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "model = nn.parallel.DistributedDataParallel(model)\n\nfor epoch",
        1,
    )
    after.write_text(text)
    seen = verify(before, after, options=("--procs", "2"))
    assert seen.of("weights")["outcome"] in ("held", "not testable")
    assert seen.of("samples")["detail"] == "the runtime cannot keep the global batch here"
    assert seen.of("ranks")["outcome"] == "held"
