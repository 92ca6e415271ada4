from abc import abstractmethod

import torch


class BaseTrainer:
    def __init__(self, model, criterion, optimizer, config):
        self.config = config
        self.model = model
        self.criterion = criterion
        self.optimizer = optimizer
        self.start_epoch = 1
        if config.resume:
            self._resume(config.resume)

    @abstractmethod
    def _train_epoch(self, epoch):
        raise NotImplementedError

    def train(self):
        best = 0.0
        for epoch in range(self.start_epoch, self.config.epochs + 1):
            accuracy = self._train_epoch(epoch)
            self.accelerator.print("accuracy", accuracy)
            if accuracy > best:
                best = accuracy
                self._save(epoch)

    def _save(self, epoch):
        state = {"epoch": epoch, "state_dict": self.accelerator.get_state_dict(self.model), "optimizer": self.optimizer.state_dict()}
        self.accelerator.save(state, "model_best.pth")

    def _resume(self, path):
        checkpoint = torch.load(path, map_location=self.accelerator.device)
        self.start_epoch = checkpoint["epoch"] + 1
        self.model.load_state_dict(checkpoint["state_dict"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
