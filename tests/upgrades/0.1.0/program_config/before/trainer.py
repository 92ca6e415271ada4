import torch

from base_trainer import BaseTrainer


class Trainer(BaseTrainer):
    def __init__(self, model, criterion, metrics, optimizer, config, device, loader, valid_loader, scheduler=None):
        super().__init__(model, criterion, metrics, optimizer, config)
        self.device = device
        self.loader = loader
        self.valid_loader = valid_loader
        self.scheduler = scheduler

    def _train_epoch(self, epoch):
        self.model.train()
        for data, target in self.loader:
            data, target = data.to(self.device), target.to(self.device)
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(data), target)
            loss.backward()
            self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        return self._valid_epoch()

    def _valid_epoch(self):
        self.model.eval()
        total = 0
        with torch.no_grad():
            for data, target in self.valid_loader:
                data, target = data.to(self.device), target.to(self.device)
                output = self.model(data)
                for metric in self.metrics:
                    total += metric(output, target)
        return total / len(self.valid_loader.dataset)
