import argparse
import json

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from trainer import Trainer
from torchlift.runtime import Accelerator


def loaders(batch_size):
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    train, test = TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])
    return DataLoader(train, batch_size=batch_size, shuffle=True), DataLoader(test, batch_size=batch_size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=50)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    accelerator = Accelerator(cpu=options.cpu)
    accelerator.print("settings", vars(options))

    torch.manual_seed(0)
    train_loader, test_loader = loaders(options.batch_size)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    train_loader, test_loader = accelerator.prepare(
        train_loader, test_loader
    )
    trainer = Trainer(options, model, train_loader, test_loader, accelerator)
    trainer.fit()

    accuracy = trainer.evaluate()
    accelerator.print("final accuracy", accuracy)
    accelerator.save(accelerator.get_state_dict(trainer.model), "model.pt")
    if accelerator.is_main_process:
        with open("result.json", "w") as out:
            json.dump({"accuracy": accuracy}, out)


if __name__ == "__main__":
    main()
