"""A training script that keeps house: a folder for each run, a log, samples, snapshots, the best weights in memory."""
import argparse
import copy
import json
import logging
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator
from torchlift.runtime.utils import broadcast_object_list


def snapshot(folder, epoch):
    return os.path.join(folder, f"epoch{epoch}.pt")


def show(model, loader, path):
    model.eval()
    images, labels = next(iter(loader))
    with torch.no_grad():
        guesses = model(images).argmax(1)
    if accelerator.is_main_process:
        np.save(path, np.stack([labels.cpu().numpy(), guesses.cpu().numpy()]))


def evaluate(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            labels = accelerator.gather_for_metrics(labels)
            correct += (accelerator.gather_for_metrics(model(images)).argmax(1) == labels).sum().item()
    return correct / len(loader.dataset)


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--keep", type=int, default=2)
args = parser.parse_args()

number = 0
accelerator = Accelerator()
while os.path.exists(f"run{number}"):
    number += 1
number = broadcast_object_list([number])[0]
run = f"run{number}"
if not os.path.exists(os.path.join(run, "samples")):
    os.makedirs(os.path.join(run, "samples"), exist_ok=True)

logging.basicConfig(level=logging.INFO if accelerator.is_local_main_process else logging.ERROR, format="%(message)s", stream=sys.stdout)
logger = logging.getLogger("digits")
logger.addHandler(logging.FileHandler(os.path.join(run, "log.txt")) if accelerator.is_main_process else logging.NullHandler())
table = open(os.path.join(run, "table.txt") if accelerator.is_main_process else os.devnull, "w")

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float64).reshape(-1, 64) / 16
labels = torch.tensor(digits.target)
train_set, test_set = TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
test_loader = DataLoader(test_set, batch_size=100)

model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).double()
optimizer = optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
model, optimizer, train_loader, test_loader = accelerator.prepare(
    model, optimizer, train_loader, test_loader
)

best, weights = 0.0, None
for epoch in range(args.epochs):
    model.train()
    for step, (x, y) in enumerate(train_loader):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if step % 10 == 0:
            if accelerator.is_local_main_process:
                sys.stdout.write(f"\repoch {epoch} step {step}")
    if accelerator.is_local_main_process:
        sys.stdout.write("\n")
    accuracy = evaluate(model, test_loader)
    logger.info("epoch %d accuracy %.4f", epoch, accuracy)
    print(epoch, f"{accuracy:.4f}", sep=",", file=table)
    show(model, test_loader, os.path.join(run, "samples", f"{epoch}.npy"))
    accelerator.save(accelerator.get_state_dict(model), snapshot(run, epoch))
    if epoch >= args.keep:
        if accelerator.is_main_process:
            os.remove(snapshot(run, epoch - args.keep))
    if accuracy > best:
        best, weights = accuracy, copy.deepcopy(model.state_dict())
table.close()

model.load_state_dict(weights)
accelerator.print(f"best accuracy {evaluate(model, test_loader):.4f}")
accelerator.save(accelerator.get_state_dict(model), os.path.join(run, "best.pt"))
if accelerator.is_main_process:
    with open(os.path.join(run, "summary.json"), "w") as file:
        json.dump({"best": best, "epochs": args.epochs}, file)
