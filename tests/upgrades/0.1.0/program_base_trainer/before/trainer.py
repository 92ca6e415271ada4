import torch
from base_trainer import BaseTrainer


class Trainer(BaseTrainer):
    """Trains on one loader."""

    def __init__(self, model, criterion, optimizer, config, device, train_loader, test_loader=None):
        super().__init__(model, criterion, optimizer, config)
        self.device = device
        self.train_loader = train_loader
        self.test_loader = test_loader

    def _train_epoch(self, epoch):
        self.model.train()
        for batch, (x, y) in enumerate(self.train_loader):
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            if batch % 20 == 0:
                print(f"epoch {epoch} batch {batch} loss {loss.item():.3f}")
        return self._valid_epoch()

    def _valid_epoch(self):
        self.model.eval()
        hits = n = 0
        with torch.no_grad():
            for x, y in self.test_loader:
                x, y = x.to(self.device), y.to(self.device)
                out = self.model(x)
                hits += (out.argmax(1) == y).sum().item()
                n += len(y)
        return hits / n
