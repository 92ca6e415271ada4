"""Trains for 50 steps in float64 with the global batch kept; prints the weights as exact numbers."""

import json
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator, set_seed

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 8)
        self.b = torch.nn.Linear(8, 1)
        self.never = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))

    def other_way(self, x):
        return self.b(torch.relu(self.a(x)))


def train(optimizer, rows, batch, path, window):
    set_seed(7)
    model = Net().double()
    opt = OPTIMIZERS[optimizer](model.parameters())
    x = torch.randn(rows, 4).double()
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=batch, shuffle=True)
    accelerator = Accelerator(split_batches=True, gradient_accumulation_steps=window)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    steps = 0
    while steps < 50:
        for features, target in loader:
            with accelerator.accumulate(model):
                call = model.other_way if path == "method" else model
                if path == "sum":
                    loss = ((call(features) - target) ** 2).sum()
                    accelerator.backward(loss * 0.01, reduction="sum")
                elif path == "retained":
                    loss = ((call(features) - target) ** 2).mean()
                    accelerator.backward(loss, retain_graph=True)
                    accelerator.backward(loss * 0.5)
                else:
                    accelerator.backward(((call(features) - target) ** 2).mean())
                opt.step()
                opt.zero_grad()
            steps += 1
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    everywhere = accelerator.gather(flat[None])
    assert all(torch.equal(row, flat) for row in everywhere), "the processes hold different weights"
    return flat.tolist()


CASES = [
    ("sgd", 23, 5, "forward", 1),
    ("adam", 16, 5, "forward", 1),
    ("adamw", 9, 4, "method", 1),
    ("adadelta", 13, 6, "retained", 1),
    ("sgd", 7, 1, "forward", 1),
    ("sgd", 11, 3, "sum", 1),
    ("adam", 22, 4, "forward", 4),
    ("sgd", 23, 5, "retained", 3),
]
if __name__ == "__main__":
    print("RESULT " + json.dumps([train(*case) for case in CASES]), flush=True)
    sys.exit(0)
