"""Next letters of a text, from windows that each process draws for itself: python before.py, or by torchrun."""
import math
import os
import time
from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the old grey cat " * 12
letters = sorted(set(TEXT))
codes = torch.tensor([letters.index(letter) for letter in TEXT])
cut = int(0.9 * len(codes))
parts = {"train": codes[:cut], "test": codes[cut:]}

steps, micro_steps, batch_size, window = 12, 4, 8, 10
device = "cuda" if torch.cuda.is_available() else "cpu"

several = int(os.environ.get("RANK", -1)) != -1
if several:
    init_process_group(backend="nccl" if torch.cuda.is_available() else "gloo")
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    if torch.cuda.is_available():
        device = f"cuda:{local_rank}"
        torch.cuda.set_device(device)
    first = rank == 0
    offset = rank
    micro_steps //= world_size
else:
    first, offset, world_size = True, 0, 1
if first:
    print(f"{micro_steps * world_size * batch_size * window} letters a step")
torch.manual_seed(7 + offset)  # every process draws windows of its own
kind = "cuda" if "cuda" in device else "cpu"


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
    return x.to(device), y.to(device)


def learning_rate(step):
    return 0.05 * 0.5 * (1 + math.cos(math.pi * step / steps))


model = Letters()
model.to(device)
optimizer = model.optimizer(0.05, kind)
if several:
    model = DDP(model, device_ids=[local_rank] if torch.cuda.is_available() else None)
plain = model.module if several else model


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
        if several:
            # gradients are exchanged once a step
            model.require_backward_grad_sync = micro_step == micro_steps - 1
        with nullcontext():
            loss = model(x, y) / micro_steps
        x, y = windows("train")
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if first:
        print(f"step {step}: {loss.item() * micro_steps:.4f}")
if first:
    assert time.time() > began
    torch.save(plain.state_dict(), "letters.pt")

if several:
    destroy_process_group()
