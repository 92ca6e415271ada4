"""Objects that keep what a script needs by name: their attributes, however deep, and ``--assume`` for one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from {package} import {kind}


def build(kept):
    {made}
    kept.feeds.first = DataLoader(torch.randn(64, 4), batch_size=8, shuffle=True)
    kept.net = torch.nn.Linear(4, 1)
    kept.optimizer = torch.optim.SGD(kept.net.parameters(), lr=0.1)
    return kept


def train(kept):
    for x in kept.feeds.first:
        kept.optimizer.zero_grad()
        kept.net(x{moved}).pow(2).mean().backward()
        kept.optimizer.step()
    return kept


def main():
    kept = {kind}({given})
    kept = build(kept)
    for epoch in range(2):
        kept = train(kept)


main()
"""
PREPARED = "kept.net, kept.optimizer, kept.feeds.first = accelerator.prepare(\n"


def _migrated(assume: tuple[tuple[str, str], ...] = (), **parts: str) -> FileResult:
    given = {"package": "addict", "kind": "Dict", "made": "pass", "moved": "", "given": "", **parts}
    source = decode(SCRIPT.format(**given).encode(), Path("train.py"))
    return migrate([source], CATALOGUE, Config(assume=assume)).files[0]


def test_a_dict_that_gives_its_items_as_attributes_holds_a_loader() -> None:
    after = _migrated(made="kept.feeds = {}").after.decode()
    assert PREPARED in after and "shard_batch" not in after


@pytest.mark.parametrize("given", ['{"device": torch.device("cpu")}', 'device=torch.device("cpu")'])
def test_what_an_object_is_made_of_by_name_are_its_attributes(given: str) -> None:
    """The device is one of torch, which is never equal to a word; it is that of the object before it is given back."""
    after = _migrated(made="kept.feeds = {}", moved=".to(kept.device)", given=given).after.decode()
    assert (
        '    accelerator = Accelerator(cpu=kept.device.type == "cpu")\n    kept = build(kept, accelerator)\n' in after
    )
    assert PREPARED in after


@pytest.mark.parametrize("assumed", [True, False])
def test_what_is_vouched_for_is_so_wherever_it_is_read(assumed: bool) -> None:
    found = _migrated((("loader", "kept.feeds.first"),) if assumed else ())
    told = [d.remedy for d in found.diagnoses if d.id == "sharded-batch"]
    assert (PREPARED in found.after.decode()) is assumed
    assert any("--assume loader=kept.feeds.first" in remedy for remedy in told) is not assumed
