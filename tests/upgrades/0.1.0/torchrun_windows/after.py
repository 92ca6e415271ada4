"""Next letters of a text, from windows that each process draws for itself: python before.py, or by torchrun."""
import math
import os
import time
from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F
from torchlift.runtime import Accelerator

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the old grey cat " * 12
letters = sorted(set(TEXT))
codes = torch.tensor([letters.index(letter) for letter in TEXT])
cut = int(0.9 * len(codes))
parts = {"train": codes[:cut], "test": codes[cut:]}

steps, micro_steps, batch_size, window = 12, 4, 8, 10

several = int(os.environ.get("RANK", -1)) != -1
accelerator = Accelerator()
if several:
    rank = accelerator.process_index
    world_size = accelerator.num_processes
    first = accelerator.is_main_process
    offset = rank
    micro_steps //= world_size
else:
    first, offset, world_size = True, 0, 1
if first:
    print(f"{micro_steps * world_size * batch_size * window} letters a step")
torch.manual_seed(7 + offset)  # every process draws windows of its own
kind = "cuda" if "cuda" in accelerator.device.type else "cpu"


class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.vectors = nn.Embedding(len(letters), 16)
        self.hidden = nn.Linear(16, 32)
        self.out = nn.Linear(32, len(letters))

    def forward(self, x, y):
        scores = self.out(torch.tanh(self.hidden(self.vectors(x))))
        return F.cross_entropy(scores.flatten(0, 1), y.flatten())

    def optimizer(self, lr, kind):
        fused = kind == "cuda"
        return torch.optim.AdamW(self.parameters(), lr=lr, **({"fused": True} if fused else {}))


def windows(part):
    rows = parts[part]
    starts = torch.randint(len(rows) - window - 1, (batch_size,))
    x = torch.stack([rows[start : start + window] for start in starts])
    y = torch.stack([rows[start + 1 : start + window + 1] for start in starts])
    return x.to(accelerator.device), y.to(accelerator.device)


def learning_rate(step):
    return 0.05 * 0.5 * (1 + math.cos(math.pi * step / steps))


model = Letters()
optimizer = model.optimizer(0.05, accelerator.device.type)
model, optimizer = accelerator.prepare(
    model, optimizer
)
plain = model


@torch.no_grad()
def tested():
    model.eval()
    found = torch.stack([model(*windows("test")) for _ in range(4)]).mean()
    model.train()
    return found.item()


x, y = windows("train")
began = time.time()
for step in range(steps):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
    if step % 5 == 0 and first:
        print(f"step {step}: {tested():.4f} on the test part")
    for micro_step in range(micro_steps):
        # gradients are exchanged once a step
        with nullcontext() if micro_step == micro_steps - 1 else accelerator.no_sync(model):
            with nullcontext():
                loss = model(x, y) / micro_steps
            x, y = windows("train")
            accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if first:
        print(f"step {step}: {loss.item() * micro_steps:.4f}")
if first:
    assert time.time() > began
    torch.save(plain.state_dict(), "letters.pt")

