import torch
import wandb
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter
from torchlift.runtime import Accelerator, Inert

accelerator = Accelerator()
wandb.init(project="digits", mode=None if accelerator.is_main_process else "disabled")
writer = SummaryWriter("runs") if accelerator.is_main_process else Inert()
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
    writer.add_scalar("loss", loss.item(), step)
