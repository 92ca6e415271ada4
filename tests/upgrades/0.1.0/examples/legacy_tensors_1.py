import numpy as np
import torch
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator

model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(
    model, optimizer, loader
)
for x, y in loader:
    x = x.float()
    start = torch.empty(len(x), 1, device=accelerator.device).fill_(1.0)
    scale = torch.as_tensor(np.arange(8), dtype=torch.float32, device=accelerator.device)
    optimizer.zero_grad()
    loss = (model(x * scale) * start - y).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
