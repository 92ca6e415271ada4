import torch
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator

model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=100)
decay = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
accelerator = Accelerator()
model, optimizer, loader, warmup = accelerator.prepare(
    model, optimizer, loader, warmup
)
for epoch in range(30):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        warmup.step()
    decay.step()
