"""
Training on a GPU, beside plain torch there: one case a run.

    python on_a_gpu.py CASE [FOLDER]

Several processes share the GPU: their tensors travel by gloo.
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator, InitProcessGroupKwargs, find_executable_batch_size, set_seed

GPU = torch.device("cuda", 0)
ROWS, BATCH = 44, 8


def parts(dtype=torch.float32):
    set_seed(3)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 4)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    data = TensorDataset(torch.randn(ROWS, 16, dtype=dtype), torch.randint(4, (ROWS,)))
    return model, optimizer, scheduler, data


def shared(**more):
    return Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="cpu:gloo,cuda:gloo")], **more)


def plain(precision):
    """What one would write by hand for one GPU, two batches a step."""
    model, optimizer, scheduler, data = parts()
    model.to(GPU)
    dtype = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    losses = []
    for _ in range(3):
        batches = [(x.to(GPU), y.to(GPU)) for x, y in DataLoader(data, BATCH)]
        for number, (x, y) in enumerate(batches, 1):
            with torch.autocast("cuda", dtype, enabled=dtype is not None):
                out = model(x)
            loss = nn.functional.cross_entropy(out.float(), y)
            losses.append(loss.item())
            scaler.scale(loss / 2).backward()
            if number % 2 == 0 or number == len(batches):
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                scheduler.step()
    return losses, model.state_dict()


def ours(precision, accelerator=None):
    accelerator = accelerator or Accelerator(mixed_precision=precision, gradient_accumulation_steps=2)
    model, optimizer, scheduler, data = parts()
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, DataLoader(data, BATCH))
    losses = []
    for _ in range(3):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                losses.append(loss.item())
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    assert {one.device for one in model.parameters()} == {GPU} == {x.device}
    return losses, accelerator.unwrap_model(model).state_dict()


def alone(precision):
    losses, state = ours(precision)
    wanted, weights = plain(precision)
    return losses == wanted and all(torch.equal(state[name], one) for name, one in weights.items())


def overflow():
    accelerator = Accelerator(mixed_precision="fp16")
    model = nn.Linear(4, 4)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = model.weight.detach().clone()
    accelerator.backward(model(torch.full((2, 4), 1e4, device=GPU)).float().square().sum() * 1e30)
    optimizer.step()
    return optimizer.step_was_skipped and torch.equal(before, model.weight)


def continued(folder):
    """What is drawn on the GPU, and trained, after a state was loaded is what came after it was saved."""
    accelerator = Accelerator()
    model, optimizer, _, data = parts()
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, BATCH, shuffle=True))

    def step(x, y):
        loss = nn.functional.cross_entropy(model(x + torch.randn_like(x)), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        return loss.item()

    for x, y in loader:
        step(x, y)
    accelerator.save_state(folder / "state")
    after = [step(x, y) for x, y in loader]
    accelerator.load_state(folder / "state")
    accelerator.save(model.state_dict(), folder / "model.pt")
    read = torch.load(folder / "model.pt", weights_only=True, map_location="cpu")
    again = [step(x, y) for x, y in loader]
    return after == again and all(one.device.type == "cpu" for one in read.values())


def together():
    """Processes that share the GPU, in float64, beside one with the whole batch."""
    accelerator = shared(split_batches=True)
    model, optimizer, _, data = parts(torch.float64)
    single, other, _, _ = parts(torch.float64)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, BATCH))
    single.to(GPU)
    rows = []
    for (x, y), whole in zip(loader, DataLoader(data, BATCH), strict=True):
        optimizer.zero_grad()
        other.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        rows.append(accelerator.gather_for_metrics(x))
        nn.functional.cross_entropy(single(whole[0].to(GPU)), whole[1].to(GPU)).backward()
        optimizer.step()
        other.step()
    got = accelerator.unwrap_model(model).state_dict()
    distance = max(float((got[name] - one).abs().max()) for name, one in single.state_dict().items())
    words = accelerator.gather({"on": torch.full((2,), accelerator.process_index, device=GPU), "off": torch.ones(1)})
    assert words["on"].tolist() == [0, 0, 1, 1] and words["on"].device == GPU and words["off"].device.type == "cpu"
    assert torch.equal(torch.cat(rows).cpu(), data.tensors[0])
    return distance


def by_hand():
    accelerator = shared()
    set_seed(1)
    model = nn.Linear(3, 1).double()
    single = nn.Linear(3, 1).double().to(GPU)
    single.load_state_dict(model.state_dict())
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    other = torch.optim.SGD(single.parameters(), lr=0.1)
    for rows in (4, 5, 1):
        whole = torch.randn(rows, 3, dtype=torch.float64, device=GPU)
        whole = accelerator.gather(whole)[:rows]
        mine = accelerator.shard_batch(whole)
        optimizer.zero_grad()
        accelerator.backward(model(mine).square().mean())
        optimizer.step()
        other.zero_grad()
        single(whole).square().mean().backward()
        other.step()
    return float((accelerator.unwrap_model(model).weight - single.weight).detach().abs().max())


def compiled():
    accelerator = Accelerator(dynamo_backend="inductor")
    model, optimizer, _, data = parts()
    plain_model, other, _, _ = parts()
    model, optimizer = accelerator.prepare(model, optimizer)
    plain_model.to(GPU)
    x, y = (one[:8].to(GPU) for one in data.tensors)
    losses = []
    for _ in range(4):
        for net, steps, backward in (
            (model, optimizer, accelerator.backward),
            (plain_model, other, torch.Tensor.backward),
        ):
            loss = nn.functional.cross_entropy(net(x), y)
            steps.zero_grad()
            backward(loss)
            steps.step()
            losses.append(loss.item())
    return max(abs(a - b) for a, b in zip(losses[::2], losses[1::2], strict=True))


def fits():
    """Memory that is really not there."""
    tried = []

    @find_executable_batch_size(starting_batch_size=1 << 12)
    def allocate(batch_size):
        tried.append(batch_size)
        torch.empty(batch_size, 1 << 30, dtype=torch.uint8, device=GPU)

    allocate()
    total = torch.cuda.get_device_properties(GPU).total_memory
    return len(tried) > 1 and tried[-1] << 30 < total and torch.cuda.memory_allocated(GPU) < total // 100


def named():
    """Processes that share a GPU without saying so."""
    Accelerator()
    return "no error"


CASES = {
    "alone": alone,
    "overflow": overflow,
    "continued": lambda folder: continued(Path(folder)),
    "together": together,
    "by_hand": by_hand,
    "compiled": compiled,
    "fits": fits,
    "named": named,
}

if __name__ == "__main__":
    print("RESULT", json.dumps(CASES[sys.argv[1]](*sys.argv[2:])))
