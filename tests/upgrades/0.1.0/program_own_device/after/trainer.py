import torch
from torch import nn


class Trainer:
    """Fits a classifier on the device that it finds."""

    def __init__(self, config, model, train_loader, test_loader, accelerator):
        self.accelerator = accelerator
        self.config = config
        self.device = accelerator.device
        self.model = model
        self.train_loader, self.test_loader = train_loader, test_loader
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)
        self.model, self.optimizer = accelerator.prepare(
            self.model, self.optimizer
        )

    def train_epoch(self, epoch):
        self.model.train()
        running = 0.0
        for images, labels in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(images), labels)
            self.accelerator.backward(loss)
            self.optimizer.step()
            running += self.accelerator.reduce(loss.detach(), reduction="mean").item()
        self.accelerator.print(f"epoch {epoch}: {running / len(self.train_loader):.4f}")

    def evaluate(self):
        self.model.eval()
        correct = total = 0
        with torch.no_grad():
            for images, labels in self.test_loader:
                predicted = self.model(images).argmax(dim=1)
                predicted, labels = self.accelerator.gather_for_metrics((predicted, labels))
                correct += (predicted == labels).sum().item()
                total += labels.size(0)
        return correct / total

    def fit(self):
        for epoch in range(self.config.epochs):
            self.train_epoch(epoch)
            self.scheduler.step()
            self.accelerator.print("accuracy", self.evaluate())
