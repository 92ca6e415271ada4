import torch
from torch import nn


class Trainer:
    """Fits a classifier on the device that it finds."""

    def __init__(self, config, model, train_loader, test_loader):
        self.config = config
        self.device = torch.device("cuda" if torch.cuda.is_available() and not config.cpu else "cpu")
        self.model = model.to(self.device)
        self.train_loader, self.test_loader = train_loader, test_loader
        self.criterion = nn.CrossEntropyLoss().to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)

    def train_epoch(self, epoch):
        self.model.train()
        running = 0.0
        for images, labels in self.train_loader:
            images, labels = images.to(self.device), labels.to(self.device)
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            running += loss.item()
        print(f"epoch {epoch}: {running / len(self.train_loader):.4f}")

    def evaluate(self):
        self.model.eval()
        correct = total = 0
        with torch.no_grad():
            for images, labels in self.test_loader:
                images, labels = images.to(self.device), labels.to(self.device)
                predicted = self.model(images).argmax(dim=1)
                correct += (predicted == labels).sum().item()
                total += labels.size(0)
        return correct / total

    def fit(self):
        for epoch in range(self.config.epochs):
            self.train_epoch(epoch)
            self.scheduler.step()
            print("accuracy", self.evaluate())
