import torch
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear(8, 1)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(
    model, optimizer, loader
)
for x, y in loader:
    x = x.view(len(x), -1)
    noise = torch.randn(len(x), 8).to(accelerator.device)
    optimizer.zero_grad()
    loss = (model(x + noise) - y).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
