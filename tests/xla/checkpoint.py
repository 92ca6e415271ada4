"""Trains by all ways of saving; run by its test: ``python checkpoint.py train|resume|plain FOLDER [sharded]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin
from torchlift.runtime.torch_spmd import layout


class Tied(nn.Module):
    """Shares its table with its last layer, and normalizes batches."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 24)
        self.norm = nn.BatchNorm1d(24)
        self.inner = nn.Linear(24, 24)
        self.out = nn.Linear(24, 16, bias=False)
        self.out.weight = self.table.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(torch.tanh(self.inner(self.norm(self.table(words)))))
        return logits


def main() -> None:
    what, folder, *sharded = sys.argv[1:]
    torch.manual_seed(1)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2) if sharded else None
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    words = torch.randint(16, (70,))
    loader = DataLoader(TensorDataset(words, (words + 1) % 16), batch_size=16, shuffle=True)
    weights = list(model.parameters())
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    assert all(a is b for a, b in zip(weights, model.parameters(), strict=True))
    assert model.table.weight is model.out.weight
    losses = []
    for epoch in range(4):
        if what == "resume" and epoch < 2:
            continue
        if what == "resume" and epoch == 2:
            accelerator.load_state(Path(folder, "state"))
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append([accelerator.gather(loss).item(), norm.item()])
        if what == "train" and epoch == 1:
            accelerator.save_state(Path(folder, "state"))
    noise = torch.rand(3, device=accelerator.device).tolist()
    accelerator.save(accelerator.get_state_dict(model), Path(folder, f"{what}.pt"))
    accelerator.save(optimizer.state_dict(), Path(folder, f"{what}-optimizer.pt"))
    accelerator.save_model(model, Path(folder, f"{what}-model"))
    laid_out = {name: layout(one) for name, one in model.named_parameters()} if what != "plain" else {}
    said = {"losses": losses, "noise": noise, "layouts": laid_out, "type": str(accelerator.distributed_type)}
    Path(folder, f"{what}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
