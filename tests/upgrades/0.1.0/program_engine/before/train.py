"""Train a digit classifier; what it does in an epoch lives in engine.py."""
import torch

import data
import utils
from engine import evaluate, train_one_epoch
from models import Net


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader, test_loader = data.loaders(32)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        train_one_epoch(model, train_loader, optimizer, device, epoch)
        print("accuracy", evaluate(model, test_loader, device))
    utils.save(model, "net.pt")


if __name__ == "__main__":
    main()
