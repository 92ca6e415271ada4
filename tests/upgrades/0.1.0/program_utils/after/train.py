import torch
import torch.nn as nn

from data import loaders
from models import Net
from utils import AverageMeter, accuracy, log, save_checkpoint, write_history
from torchlift.runtime import Accelerator


def train(model, loader, criterion, optimizer, accelerator):
    losses = AverageMeter("loss")
    model.train()
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.update(accelerator.reduce(loss.detach(), reduction="mean").item())
    return losses.avg


@torch.no_grad()
def validate(model, loader, accelerator):
    hits = AverageMeter("accuracy")
    model.eval()
    for x, y in loader:
        output = model(x)
        output, y = accelerator.gather_for_metrics((output, y))
        hits.update(accuracy(output, y), len(y))
    return hits.avg


def main():
    torch.manual_seed(0)
    accelerator = Accelerator()
    train_loader, test_loader = loaders(32)
    model = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, train_loader, test_loader
    )
    best, history = 0.0, []
    for epoch in range(2):
        loss = train(model, train_loader, criterion, optimizer, accelerator)
        found = validate(model, test_loader, accelerator)
        log(f"epoch {epoch} loss {loss:.4f} accuracy {found:.4f}")
        history.append(found)
        state = {"epoch": epoch, "model": accelerator.get_state_dict(model), "optimizer": optimizer.state_dict()}
        save_checkpoint(state, "runs", found > best)
        best = max(best, found)
    write_history(history, "runs")


if __name__ == "__main__":
    main()
