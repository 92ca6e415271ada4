"""Two replicas of a model in two shards each; a shard of one replica is changed, where that is asked for."""

import sys
import time

import torch
from torch import nn

from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin, ParallelismConfig


class Net(nn.Module):
    """With a scalar, which all processes have as a whole."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.ones(()))
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        return self.head(self.body(x)) * self.scale


accelerator = Accelerator(
    fsdp_plugin=FullyShardedDataParallelPlugin(),
    parallelism_config=ParallelismConfig(dp_replicate_size=2, dp_shard_size=2),
)
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(4):
    optimizer.zero_grad()
    accelerator.backward(model(torch.full((2, 4), 1.0 + accelerator.process_index)).square().mean())
    if step == 1 and sys.argv[1:] == ["apart"] and accelerator.process_index == 3:
        model.body.weight.grad.to_local().mul_(1.01)
    optimizer.step()  # weights
    time.sleep(0.2)
time.sleep(1.5)
accelerator.wait_for_everyone()
print("RESULT true")
