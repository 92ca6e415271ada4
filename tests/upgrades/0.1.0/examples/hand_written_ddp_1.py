import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchlift.runtime import Accelerator

accelerator = Accelerator()
sampler = DistributedSampler(data, num_replicas=accelerator.num_processes, rank=accelerator.process_index)
loader = DataLoader(data, batch_size=32, sampler=sampler)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(
    model, optimizer, loader
)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
loss = accelerator.reduce(loss, reduction="sum")
if accelerator.is_main_process:
    print(loss.item() / accelerator.num_processes)
    torch.save(model.state_dict(), "model.pt")
