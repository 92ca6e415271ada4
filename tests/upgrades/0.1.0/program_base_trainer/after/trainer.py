import torch
from base_trainer import BaseTrainer


class Trainer(BaseTrainer):
    """Trains on one loader."""

    def __init__(self, model, criterion, optimizer, config, accelerator, train_loader, test_loader=None):
        self.accelerator = accelerator
        super().__init__(model, criterion, optimizer, config)
        self.device = accelerator.device
        self.train_loader = train_loader
        self.test_loader = test_loader

    def _train_epoch(self, epoch):
        self.model.train()
        for batch, (x, y) in enumerate(self.train_loader):
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            self.accelerator.backward(loss)
            self.optimizer.step()
            if batch % 20 == 0:
                self.accelerator.print(f"epoch {epoch} batch {batch} loss {loss.item():.3f}")
        return self._valid_epoch()

    def _valid_epoch(self):
        self.model.eval()
        hits = n = 0
        with torch.no_grad():
            for x, y in self.test_loader:
                out = self.model(x)
                out, y = self.accelerator.gather_for_metrics((out, y))
                hits += (out.argmax(1) == y).sum().item()
                n += len(y)
        return hits / n
