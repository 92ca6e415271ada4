class BaseTrainer:
    def __init__(self, model, criterion, metrics, optimizer, config):
        self.model = model
        self.criterion = criterion
        self.metrics = metrics
        self.optimizer = optimizer
        self.config = config

    def train(self):
        best = 0.0
        for epoch in range(self.config["epochs"]):
            share = self._train_epoch(epoch)
            self.accelerator.print(f"epoch {epoch} right {share:.4f}")
            if share > best:
                best = share
                self._save(epoch)

    def _save(self, epoch):
        state = {"epoch": epoch, "state_dict": self.accelerator.get_state_dict(self.model), "optimizer": self.optimizer.state_dict()}
        self.accelerator.save(state, self.config["save"])
