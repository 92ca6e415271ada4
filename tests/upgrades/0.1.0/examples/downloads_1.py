import torch
from torch.utils.data import DataLoader
from torchvision import datasets
from torchlift.runtime import Accelerator

accelerator = Accelerator()
with accelerator.main_process_first():
    data = datasets.MNIST("data", download=True)
model = torch.nn.Linear(784, 10)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(
    model, optimizer, loader
)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
