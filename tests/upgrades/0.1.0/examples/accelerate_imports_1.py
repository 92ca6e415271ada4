import torch
from torchlift.runtime import Accelerator
from torchlift.runtime.utils import set_seed
from torch.utils.data import DataLoader

set_seed(1)
accelerator = Accelerator()
model = torch.nn.Linear(8, 2)
loader = DataLoader(train, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
