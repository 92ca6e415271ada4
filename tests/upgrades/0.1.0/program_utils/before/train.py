import torch
import torch.nn as nn

from data import loaders
from models import Net
from utils import AverageMeter, accuracy, log, save_checkpoint, write_history


def train(model, loader, criterion, optimizer, device):
    losses = AverageMeter("loss")
    model.train()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item())
    return losses.avg


@torch.no_grad()
def validate(model, loader, device):
    hits = AverageMeter("accuracy")
    model.eval()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        output = model(x)
        hits.update(accuracy(output, y), len(y))
    return hits.avg


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader, test_loader = loaders(32)
    model = Net().to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    best, history = 0.0, []
    for epoch in range(2):
        loss = train(model, train_loader, criterion, optimizer, device)
        found = validate(model, test_loader, device)
        log(f"epoch {epoch} loss {loss:.4f} accuracy {found:.4f}")
        history.append(found)
        state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        save_checkpoint(state, "runs", found > best)
        best = max(best, found)
    write_history(history, "runs")


if __name__ == "__main__":
    main()
