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
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    accelerator.save(accelerator.get_state_dict(model), "best.pt")
accelerator.wait_for_everyone()
model.load_state_dict(torch.load("best.pt", map_location=accelerator.device))
