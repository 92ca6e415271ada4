import torch
from config import Config
from data import loaders
from models import Net
from trainer import Trainer
from torchlift.runtime import Accelerator


def main():
    config = Config()
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=config.device == "cpu")
    train_loader, test_loader = loaders(config.batch_size)
    model = Net()
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, train_loader, test_loader
    )
    trainer = Trainer(model, criterion, optimizer, config, accelerator, train_loader, test_loader)
    trainer.train()


if __name__ == "__main__":
    main()
