import os
import time
import torch
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator
from torchlift.runtime.utils import broadcast_object_list

accelerator = Accelerator()
folder = broadcast_object_list([os.path.join("runs", time.strftime("%Y%m%d-%H%M%S"))])[0]
if not os.path.exists(folder):
    os.makedirs(folder, exist_ok=True)
model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(
    model, optimizer, loader
)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
