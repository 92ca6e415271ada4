"""Schedules follow the training done; windows give the gradients that were asked for, on any number of processes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from torchlift.runtime import Accelerator, MixedUseError

SPEC = importlib.util.spec_from_file_location("curves", Path(__file__).parents[1] / "jobs" / "curves.py")
curves = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(curves)


def on_one_device(kind, window):
    """The same with nothing but torch."""
    net = torch.nn.Linear(1, 1)
    opt = torch.optim.SGD(net.parameters(), lr=1.0)
    sched = curves.make(kind, opt, curves.EPOCHS * curves.BATCHES // window)
    rates = []
    for epoch in range(curves.EPOCHS):
        for batch in range(curves.BATCHES):
            if (batch + 1) % window == 0:
                rates.append(opt.param_groups[0]["lr"])
                opt.step()
                if kind not in ("epoch", "plateau"):
                    sched.step()
        if kind == "epoch":
            sched.step()
        if kind == "plateau":
            sched.step(curves.METRICS[epoch])
    return [*rates, opt.param_groups[0]["lr"]]


def weighted_mean(values):
    return sum(v * v for v in values) / sum(values)


@pytest.mark.parametrize("processes", [1, 2])
def test_schedules_and_windows(job, processes):
    found, *others = job("curves.py", processes)
    assert all(other == found for other in others)
    for kind in ("epoch", "cosine", "cosine after", "onecycle", "plateau"):
        for window in (1, 4):
            wanted = on_one_device(kind, window)[::processes]
            got = found[f"{kind}/{window}"]
            if kind in ("epoch", "plateau"):
                assert got == pytest.approx(wanted, rel=1e-12), (kind, window)
            else:
                # the same rates at the same part of the training; the formulas of torch go from step to step
                assert got == pytest.approx(wanted, rel=1e-6, abs=1e-9), (kind, window)
    # two rows a batch, six batches: windows of four and two
    assert found["plain"] == pytest.approx([4.5, 10.5 / 2])
    assert found["exact"] == pytest.approx([4.5, 10.5])
    assert found["not with the data"] == pytest.approx([4.5])
    assert found["each batch"] == found["plain"]
    assert found["items"] == pytest.approx([weighted_mean(range(1, 9)), weighted_mean(range(9, 13))])
    assert found["items, no window"] == pytest.approx([weighted_mean((i, i + 1)) for i in range(1, 12, 2)])


def test_items_are_counted_once_for_the_batch_that_completes_a_window(monkeypatch):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")
    accelerator = Accelerator(gradient_accumulation_steps=1)
    net = accelerator.prepare(torch.nn.Linear(1, 1))
    with accelerator.accumulate(net):
        accelerator.backward(net(torch.ones(3, 1)).sum(), num_items=3)
        with pytest.raises(MixedUseError, match="twice"):
            accelerator.backward(net(torch.ones(3, 1)).sum(), num_items=3)


@pytest.mark.parametrize("zeroed", ["before", "after", "after a step that the script guards"])
@pytest.mark.parametrize("plain", [True, False])
def test_a_window_keeps_gradients_of_a_backward_pass_that_the_script_calls_itself(monkeypatch, plain, zeroed):
    monkeypatch.setenv("TORCHLIFT_CPU", "1")
    accelerator = Accelerator(gradient_accumulation_steps=3)
    net = torch.nn.Linear(1, 1, bias=False)
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=1.0))
    start = net.weight.item()
    for number in range(6):
        with accelerator.accumulate(net):
            if zeroed == "before":
                optimizer.zero_grad()
            loss = net(torch.full((1, 1), float(10**number))).sum()
            (loss / 3).backward() if plain else accelerator.backward(loss)
            if zeroed != "after a step that the script guards" or accelerator.sync_gradients:
                optimizer.step()
            if zeroed == "after" or (zeroed != "before" and accelerator.sync_gradients):
                optimizer.zero_grad()
        if number == 2:
            assert start - net.weight.item() == pytest.approx(111 / 3)
    assert start - net.weight.item() == pytest.approx(111111 / 3)
