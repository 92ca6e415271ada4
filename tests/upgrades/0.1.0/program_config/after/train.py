"""Digits, by configuration: python train.py"""
from pathlib import Path

import torch

import archs
import loaders
import losses
import metrics as module_metrics
from configuration import Configuration
from trainer import Trainer
from torchlift.runtime import Accelerator


def main(config):
    torch.manual_seed(config["seed"])
    loader = config.init_obj("data", loaders)
    valid_loader = loader.split_validation()
    model = config.init_obj("arch", archs)

    accelerator = Accelerator()
    criterion = getattr(losses, config["loss"])
    metrics = [getattr(module_metrics, name) for name in config["metrics"]]

    params = filter(lambda p: p.requires_grad, model.parameters())
    optimizer = config.init_obj("optimizer", torch.optim, params)
    scheduler = config.init_obj("scheduler", torch.optim.lr_scheduler, optimizer)
    model, optimizer, valid_loader, loader = accelerator.prepare(
        model, optimizer, valid_loader, loader
    )

    trainer = Trainer(
        model, criterion, metrics, optimizer, config=config, accelerator=accelerator, loader=loader, valid_loader=valid_loader,
        scheduler=scheduler,
    )
    trainer.train()


if __name__ == "__main__":
    main(Configuration.from_file(Path(__file__).parent / "config.json"))
