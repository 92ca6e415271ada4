import torch
import torch.nn.functional as F
from utils import *
from torchlift.runtime import Accelerator


def train_one_epoch(model, loader, optimizer, accelerator, epoch):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
    log(f"epoch {epoch} done")


@torch.no_grad()
def evaluate(model, loader, device, accelerator=None):
    if accelerator is None:
        accelerator = Accelerator()
    model.eval()
    correct = total = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        out, y = accelerator.gather_for_metrics((out, y))
        correct += (out.argmax(1) == y).sum().item()
        total += len(y)
    return correct / total
