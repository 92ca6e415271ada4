import json
import os

import torch


class AverageMeter:
    """The mean of what was seen so far."""

    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.sum = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean().item()


def save_checkpoint(state, folder, best):
    os.makedirs(folder, exist_ok=True)
    torch.save(state, os.path.join(folder, "last.pt"))
    if best:
        torch.save(state, os.path.join(folder, "best.pt"))


def write_history(history, folder):
    with open(os.path.join(folder, "history.json"), "w") as file:
        json.dump(history, file)


def log(text):
    print("[train]", text)
