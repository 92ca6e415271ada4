"""Learning rates at every optimizer step, for schedules of many kinds; and gradients of windows."""

import json

import torch
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from torchlift.runtime import Accelerator
from torchlift.runtime.config.handlers import GradientAccumulationPlugin

EPOCHS, BATCHES = 4, 16
METRICS = [1.0, 0.9, 0.9, 0.9]


def loader():
    return DataLoader(TensorDataset(torch.ones(BATCHES * 2, 1)), batch_size=2)


def make(kind, opt, steps):
    if kind == "epoch":
        return lr_scheduler.StepLR(opt, 1, gamma=0.5)
    if kind == "plateau":
        return lr_scheduler.ReduceLROnPlateau(opt, patience=0, factor=0.5, threshold=0.01)
    if kind == "onecycle":
        return lr_scheduler.OneCycleLR(opt, 1.0, total_steps=steps)
    return lr_scheduler.CosineAnnealingLR(opt, steps)


def curve(kind, window):
    """The rate of every step, and the last one."""
    own = Accelerator(gradient_accumulation_steps=window)
    net = torch.nn.Linear(1, 1)
    opt = torch.optim.SGD(net.parameters(), lr=1.0)
    batches = loader()
    sched = None if kind == "cosine after" else make(kind, opt, EPOCHS * len(batches) // window)
    if sched is None:
        net, opt, batches = own.prepare(net, opt, batches)
        sched = own.prepare(make("cosine", opt, EPOCHS * len(batches) // window))
    else:
        sched, net, opt, batches = own.prepare(sched, net, opt, batches)
    rates = []
    for epoch in range(EPOCHS):
        for (x,) in batches:
            with own.accumulate(net):
                own.backward(net(x).mean())
                if own.sync_gradients:
                    rates.append(opt.param_groups[0]["lr"])
                opt.step()
                if kind not in ("epoch", "plateau"):
                    sched.step()
                opt.zero_grad()
        if kind == "epoch":
            sched.step()
        if kind == "plateau":
            spread = 0.05 * own.process_index - 0.025 * (own.num_processes - 1)
            sched.step(METRICS[epoch] + spread)
    return [*rates, opt.param_groups[0]["lr"]]


def gradients(window, plugin=None, items=None, sized=True):
    """Of a weight whose gradient is the value of the row, with one row a batch, batches kept."""
    own = Accelerator(
        split_batches=True,
        **({"gradient_accumulation_plugin": plugin} if plugin else {"gradient_accumulation_steps": window}),
    )
    rows = torch.arange(1.0, 13.0)[:, None]
    net = torch.nn.Linear(1, 1, bias=False)
    net, opt, batches = own.prepare(
        net, torch.optim.SGD(net.parameters(), lr=0.0), DataLoader(TensorDataset(rows), batch_size=2)
    )
    seen = []
    for (x,) in batches:
        with own.accumulate(net):
            if items is None:
                own.backward(net(x).mean())
            else:
                own.backward((net(x) * x).sum(), num_items=int(x.sum()))  # x items of gradient x each
            opt.step()
            if own.sync_gradients:
                seen.append(net.weight.grad.item())
            opt.zero_grad()
    return seen


def main():
    kinds = ("epoch", "cosine", "cosine after", "onecycle", "plateau")
    found = {f"{kind}/{window}": curve(kind, window) for kind in kinds for window in (1, 4)}
    found["exact"] = gradients(4, GradientAccumulationPlugin(num_steps=4, exact_windows=True))
    found["plain"] = gradients(4)
    found["not with the data"] = gradients(4, GradientAccumulationPlugin(num_steps=4, sync_with_dataloader=False))
    found["each batch"] = gradients(4, GradientAccumulationPlugin(num_steps=4, sync_each_batch=True))
    found["items"] = gradients(4, items=True)
    found["items, no window"] = gradients(1, items=True)
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
