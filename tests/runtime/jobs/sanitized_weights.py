"""Weights of one rank change between two looks of the monitor; and those that are meant to differ."""

import torch
from torch import nn

from torchlift.runtime import Accelerator

accelerator = Accelerator()
model, probe = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), nn.Linear(2, 1)
optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.01) for one in (model, probe))
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(6):
    accelerator.backward(model(torch.ones(1, 2)).sum())
    if step == 3 and accelerator.process_index == 1:
        model[1].weight.grad.mul_(2)
    optimizer.step()  # weights
    with accelerator.unsynchronized(probe):
        probe(torch.full((1, 2), 1.0 + accelerator.process_index)).sum().backward()
        other.step()
accelerator.wait_for_everyone()
