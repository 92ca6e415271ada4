import torch
from config import Config
from data import loaders
from models import Net
from trainer import Trainer


def main():
    config = Config()
    torch.manual_seed(0)
    device = torch.device(config.device)
    train_loader, test_loader = loaders(config.batch_size)
    model = Net().to(device)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    trainer = Trainer(model, criterion, optimizer, config, device, train_loader, test_loader)
    trainer.train()


if __name__ == "__main__":
    main()
