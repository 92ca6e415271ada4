"""A program that takes a function from the file of another one: what it never runs gives it nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import RawConfig
from torchlift.rewriter.project.scan import Surveyor

COMMON = """\
import torch


def make_optimizer(options, net):
    return torch.optim.SGD(net.parameters(), lr=options.rate)
"""
WHOLE = """\
import argparse
import torch
from common import make_optimizer
from torch.utils.data import DataLoader, TensorDataset


class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


def options():
    return argparse.ArgumentParser().parse_args()


def loaders(options):
    rows = TensorDataset(torch.randn(16, 4), torch.randint(2, (16,)))
    return DataLoader(rows, batch_size=4, shuffle=True)


def network(options):
    net = Whole()
    if torch.cuda.device_count() > 1:
        net = torch.nn.DataParallel(net)
    return net.cuda()


def main():
    chosen = options()
    loader, net = loaders(chosen), network(chosen)
    optimizer = make_optimizer(chosen, net)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
        optimizer.step()
    torch.save(net.module.state_dict(), "whole.pt")


if __name__ == "__main__":
    main()
"""
PROBE = """\
import argparse
import torch
from common import make_optimizer
from whole import loaders


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


def fit(loader, head, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(head(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()


def main():
    options = argparse.ArgumentParser().parse_args()
    loader, head = loaders(options), Head().cuda()
    optimizer = make_optimizer(options, head)
    for epoch in range(4):
        fit(loader, head, optimizer)


if __name__ == "__main__":
    main()
"""


def test_the_model_of_the_other_program_is_not_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its optimizer is built by the same function: without that program's call of it, it holds one model alone."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"pyproject.toml": "", "common.py": COMMON, "whole.py": WHOLE, "probe.py": PROBE}.items():
        (tmp_path / name).write_text(text)
    survey = Surveyor(CATALOGUE, RawConfig()).look([Path("probe.py")])
    after = {os.path.relpath(f.source.path): f.after.decode() for f in survey.files if f.changed}
    assert list(after) == ["probe.py"], "what the program never runs is left as it is"
    probe = after["probe.py"]
    assert "    head, optimizer, loader = accelerator.prepare(\n        head, optimizer, loader\n    )" in probe
    assert "accelerator.backward(loss)" in probe
    assert [d.id for f in survey.files for d in f.diagnoses] == []
