"""
Layers that multiply in eight bits, on several processes: as raw torchao with the same rows.

    python eight_bits.py fp8|int8 whole|sharded FOLDER
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from torchao.prototype.quantized_training import Int8MixedPrecisionTrainingConfig, Int8MixedPrecisionTrainingLinear
from torchao.prototype.quantized_training.int8_mixed_precision import _Int8MixedPrecisionTrainingLinearFunction
from torchao.quantization import quantize_

from torchlift.runtime import Accelerator, FullyShardedDataParallelPlugin, set_seed

kind, weights, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    _no_split_modules = ("Block",)

    def __init__(self):
        super().__init__()
        self.first, self.blocks, self.head = nn.Linear(16, 32), nn.Sequential(Block(), Block()), nn.Linear(32, 16)

    def forward(self, x):
        return self.head(self.blocks(self.first(x)))


def parts():
    set_seed(5)
    net = Net()
    rows = torch.randn(48, 16)
    return net, torch.optim.AdamW(net.parameters(), lr=0.01), TensorDataset(rows, rows.flip(1))


def inner(module, name):
    return isinstance(module, nn.Linear) and name not in ("first", "head")


def take_part_in_autocast(layer):
    """As torchao's other way, weights of a type of its own, does on a GPU."""

    def forward(x):
        x = x.bfloat16() if weights == "whole" else x
        product = _Int8MixedPrecisionTrainingLinearFunction.apply(x, layer.weight, None, layer.config)
        return product + layer.bias.to(product.dtype)

    layer.forward = forward


def raw(rank, size):
    """The same with torchao, and gradients that are averaged by hand or by `fully_shard`."""
    net, optimizer, data = parts()
    if kind == "fp8":
        config = Float8LinearConfig(pad_inner_dim=True, emulate=True)
        convert_to_float8_training(net, module_filter_fn=inner, config=config)
    else:
        quantize_(net, Int8MixedPrecisionTrainingConfig(module_swap=True), filter_fn=inner)
        for layer in (one for one in net.modules() if isinstance(one, Int8MixedPrecisionTrainingLinear)):
            take_part_in_autocast(layer)
    if weights == "sharded":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in net.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(net, mp_policy=replace(policy, output_dtype=torch.float32))
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for start in range(0, 48, 4 * size):
        x, y = data[start + 4 * rank : start + 4 * rank + 4]
        with torch.autocast("cpu", torch.bfloat16, enabled=weights == "whole"):
            out = net(x)
        loss = nn.functional.mse_loss(out.float(), y)
        optimizer.zero_grad()
        loss.backward()
        if weights == "whole":
            for one in net.parameters():
                dist.all_reduce(one.grad)
                one.grad /= size
        optimizer.step()
    return {name: one.full_tensor() if weights == "sharded" else one for name, one in net.state_dict().items()}


def ours():
    plugin = None if weights == "whole" else FullyShardedDataParallelPlugin()
    accelerator = Accelerator(mixed_precision=kind, fsdp_plugin=plugin)
    net, optimizer, data = parts()
    held = net.blocks[0].up
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data, 4))
    assert (held is net.blocks[0].up and "Float8" in repr(held)) or "Int8" in repr(held), held
    for x, y in loader:
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    state = accelerator.get_state_dict(net)
    accelerator.save(state, folder / "net.pt")
    accelerator.save_state(folder / "state")
    accelerator.load_state(folder / "state")
    return accelerator, state


accelerator, state = ours()
same = raw(accelerator.process_index, accelerator.num_processes)
plain = Net()
if accelerator.is_main_process:
    assert list(state) == list(same)
    distance = max(float((state[name].cpu() - one).abs().max()) for name, one in same.items())
    plain.load_state_dict(torch.load(folder / "net.pt", weights_only=True))
    print("RESULT", json.dumps(distance))
