import torch


def reduce_mean(tensor, accelerator):
    total = tensor.clone()
    total = accelerator.reduce(total, reduction="sum")
    return total / accelerator.num_processes


def accuracy(model, loader, accelerator):
    model.eval()
    right, seen = torch.zeros(1, device=accelerator.device), torch.zeros(1, device=accelerator.device)
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum()
            seen += len(y)
    right = accelerator.reduce(right, reduction="sum")
    seen = accelerator.reduce(seen, reduction="sum")
    return (right / seen).item()
