"""Promise one: the same training on any number of processes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

SPEC = importlib.util.spec_from_file_location("paths", Path(__file__).parents[1] / "jobs" / "paths.py")
paths = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(paths)


def distance(one, other):
    a, b = torch.tensor(one, dtype=torch.float64), torch.tensor(other, dtype=torch.float64)
    return float((a - b).norm() / a.norm())


def test_fifty_steps_with_the_global_batch_kept_are_those_of_one_process(job):
    (alone,) = job("training.py", 1)
    for processes in (2, 3):
        for results in job("training.py", processes):
            distances = [distance(one, other) for one, other in zip(alone, results, strict=True)]
            assert max(distances) < 1e-9, (processes, distances)


def check_ways(job, processes, names, options="{}", limit=1e-9):
    """Every way of training ends with the weights of a plain script on one device."""
    wanted = paths.run(names, paths.Plain)
    for found in job("paths.py", processes, options, *names, seconds=400):
        distances = {name: distance(wanted[name].tolist(), found[name]) for name in names}
        assert {name: d for name, d in distances.items() if not d <= limit} == {}


def test_ways_of_training_with_uneven_shards(job):
    check_ways(job, 2, list(paths.QUICK))


@pytest.mark.slow
def test_every_way_of_training_on_three_processes(job):
    check_ways(job, 3, list(paths.WAYS))


@pytest.mark.slow
def test_every_way_of_training_through_the_reducer(job):
    check_ways(job, 2, list(paths.WAYS), options='{"bucket_cap_mb": 1}')


@pytest.mark.slow
def test_every_way_of_training_on_one_process_to_the_last_bit(job):
    check_ways(job, 1, list(paths.WAYS), limit=0.0)


OPTIONS = {
    '{"gradient_as_bucket_view": true, "bucket_cap_mb": 1}': 1e-9,
    '{"static_graph": true}': 1e-9,
    '{"comm_hook": "fp16"}': 1e-2,
}


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_options_of_the_exchange_change_no_training(job, options):
    names = ["adversaries", "parts_that_are_frozen_for_a_time", "heads_in_turn", "clipping_in_windows", "large"]
    check_ways(job, 2, names, options, OPTIONS[options])


def test_one_process_is_bit_equal_to_plain_torch(job_text):
    source = """
import json, random, torch
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator

def train(prepared):
    torch.manual_seed(3)
    parts = torch.nn.Linear(5, 16), torch.nn.Dropout(0.3), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)
    model = torch.nn.Sequential(*parts)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=16)
    x = torch.randn(61, 5)
    loader = DataLoader(TensorDataset(x, x[:, :1]), batch_size=16, shuffle=True)
    backward = torch.Tensor.backward
    if prepared:
        accelerator = Accelerator()
        given = (model, opt, loader, sched)
        model, opt, loader, sched = accelerator.prepare(*given)
        assert model is given[0] and opt is given[1] and sched is given[3] and type(model) is torch.nn.Sequential
        backward = accelerator.backward
    losses = []
    for _ in range(4):
        for a, b in loader:
            opt.zero_grad()
            loss = (model(a) - b).square().mean()
            backward(loss)
            opt.step()
            sched.step()
            losses.append(loss.item())
    return losses, sum((p.double().sum().item() for p in model.parameters())), torch.rand(1).item()

assert train(True) == train(False)
"""
    job_text(source, 1)
