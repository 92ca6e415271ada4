import torch
from torchlift.runtime import Accelerator

accelerator = Accelerator()
x, y = x.to(accelerator.device), y.to(accelerator.device)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(
    model, optimizer
)
for step in range(1000):
    rows = accelerator.shard_batch(torch.randint(len(x), (64,)))
    loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
