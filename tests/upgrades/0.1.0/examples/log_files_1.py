import logging
import os
import torch
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator

accelerator = Accelerator()
logging.basicConfig(level=logging.INFO if accelerator.is_local_main_process else logging.ERROR)
losses = open("losses.csv" if accelerator.is_main_process else os.devnull, "a")
model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(
    model, optimizer, loader
)
for step, (x, y) in enumerate(loader):
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    losses.write(f"{loss.item()}\n")
    logging.info("step %d", step)
