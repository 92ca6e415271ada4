"""
Faults that a sanitizer should report, and what looks like one and is none. The line of a fault ends with its name.

Usage: sanitized.py [FOLDER]; files are written to the folder.
"""

import logging
import math
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator

OUT = Path(sys.argv[1])
accelerator = Accelerator()
RANK = accelerator.process_index
logger = logging.getLogger("job")
logger.setLevel(logging.INFO)
logger.addHandler(logging.StreamHandler(sys.stdout))


class Tracker:
    """As trackers are: its methods are called on all ranks, and do something on one of them."""

    def add_scalar(self, name, value, step):
        pass


class Gate(nn.Module):
    """A decision inside of a forward pass follows the rows of a rank."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 1)

    def forward(self, x):
        return self.inner(x) * 2 if x.sum() > 0 else self.inner(x)


class Rows(TensorDataset):
    def __getitem__(self, index):
        row = super().__getitem__(index)
        return tuple(column * 2 for column in row) if row[0][0] > 0.5 else row


torch.manual_seed(0)
drawn = torch.Generator().manual_seed(1)
rows = Rows(torch.randn(16, 4, generator=drawn), torch.randn(16, 1, generator=drawn))
model = Gate()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows, batch_size=2))
best = 1e9


def train(epoch):
    """Nothing here is a fault, but for the loop that may be left."""
    total = 0.0
    since = time.time()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
        accelerator.print(f"step {step} loss {loss.item():.4f}")
        if loss.item() > 1e6:  # a loop that one rank may leave
            break
    accelerator.print(f"last {loss.item():.4f} in {time.time() - since:.2f} s")
    return total / len(loader)


def evaluate():
    wrong = torch.zeros(())
    for x, y in loader:
        for guess, target in zip(model(x), y, strict=True):
            if guess > target:
                wrong += 1
        if torch.isnan(wrong):
            break
    return accelerator.reduce(wrong, "sum").item()


for epoch in range(2):
    mean = train(epoch)
    wrong = evaluate()
    accelerator.print(f"epoch {epoch}: {mean:.4f} of {wrong}")  # a value that is printed
    logger.info("mean %.4f", mean)  # a value that a logger writes, and a line of all ranks
    if accelerator.is_main_process:
        print("once", mean)
    print(f"[rank {RANK}] every rank says whose mean it is: {mean}")
    Tracker().add_scalar("mean", mean, epoch)  # a value for a tracker
    accelerator.log({"wrong": wrong, "mean": mean, "time": time.time()}, step=epoch)  # a value among others
    if mean < best:  # a decision
        best = mean
    if mean < (0.5 if RANK else math.inf):  # this condition names the rank
        pass
    patience = int(mean * 1000)
    if patience > (patience - RANK):  # and this one
        pass
    middle = accelerator.reduce(torch.tensor(mean), "mean").item()
    with torch.no_grad():
        flag = torch.tensor(mean) > middle  # a decision about a tensor
        while flag:  # a condition that is a tensor
            flag = flag & False
    print("everybody")  # a line of all ranks
    with (OUT / "log.txt").open("a") as file:  # a file of all ranks
        file.write("text")
    (OUT / f"log{RANK}.txt").write_text("own")
    with tempfile.TemporaryFile(dir=OUT) as file:
        file.write(b"own")
    accelerator.save({"best": best, "weights": model.state_dict()}, OUT / "best.pt")  # a value that is saved
torch.save(model.state_dict(), OUT / "weights.pt")  # a file that torch writes
torch.save({"own": RANK}, OUT / f"own{RANK}.pt")
accelerator.wait_for_everyone()
