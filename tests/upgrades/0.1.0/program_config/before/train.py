"""Digits, by configuration: python train.py"""
from pathlib import Path

import torch

import archs
import loaders
import losses
import metrics as module_metrics
from configuration import Configuration
from trainer import Trainer


def main(config):
    torch.manual_seed(config["seed"])
    loader = config.init_obj("data", loaders)
    valid_loader = loader.split_validation()
    model = config.init_obj("arch", archs)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model.to(device)
    criterion = getattr(losses, config["loss"])
    metrics = [getattr(module_metrics, name) for name in config["metrics"]]

    params = filter(lambda p: p.requires_grad, model.parameters())
    optimizer = config.init_obj("optimizer", torch.optim, params)
    scheduler = config.init_obj("scheduler", torch.optim.lr_scheduler, optimizer)

    trainer = Trainer(
        model, criterion, metrics, optimizer, config=config, device=device, loader=loader, valid_loader=valid_loader,
        scheduler=scheduler,
    )
    trainer.train()


if __name__ == "__main__":
    main(Configuration.from_file(Path(__file__).parent / "config.json"))
