"""Train a digit classifier; what it does in an epoch lives in engine.py."""
import torch

import data
import utils
from engine import evaluate, train_one_epoch
from models import Net
from torchlift.runtime import Accelerator


def main():
    torch.manual_seed(0)
    accelerator = Accelerator()
    train_loader, test_loader = data.loaders(32)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, train_loader, test_loader
    )
    for epoch in range(2):
        train_one_epoch(model, train_loader, optimizer, accelerator, epoch)
        accelerator.print("accuracy", evaluate(model, test_loader, accelerator.device, accelerator=accelerator))
    utils.save(model, "net.pt", accelerator)


if __name__ == "__main__":
    main()
