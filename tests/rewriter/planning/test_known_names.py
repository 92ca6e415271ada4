"""A condition for the CPU, in the words of the code above that makes the object which keeps its device."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.result import FileResult
from torchlift.rewriter.source import decode

PROGRAM = """\
import argparse
import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, net, device="cpu"):
        {device}
        self.net = net.to(self.device)

    def fit(self, loader):
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.net(x.to(self.device)), y.to(self.device)).backward()
            optimizer.step()

    def judge(self, loader):
        hits = 0
        with torch.no_grad():
            for x, y in loader:
                hits += (self.net(x.to(self.device)).argmax(1).cpu() == y).sum().item()
        return hits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    loader = DataLoader(data, batch_size=32)
    trainer = Trainer(torch.nn.Linear(8, 2), {given})
    {work}


main()
"""
WORK = "trainer.fit(loader)\n    print(trainer.judge(loader))"
SAID = {
    "a device of it": ("self.device = torch.device(device)", "args.device", 'torch.device(args.device).type == "cpu"'),
    "by its name": (
        "self.device = torch.device(device)",
        "device=args.device",
        'torch.device(args.device).type == "cpu"',
    ),
}


def _migrated(device: str, given: str, work: str = WORK) -> FileResult:
    text = PROGRAM.format(device=device, given=given, work=work)
    return migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files[0]


@pytest.mark.parametrize(("device", "given", "said"), SAID.values(), ids=SAID)
def test_what_a_constructor_keeps_of_its_argument_is_said_by_who_gives_it(device: str, given: str, said: str) -> None:
    """The accelerator is made there, so that it prepares the loader which two methods go through."""
    file = _migrated(device, given)
    after = file.after.decode()
    assert f"    accelerator = Accelerator(cpu={said})\n    trainer = Trainer(" in after
    assert "    loader = accelerator.prepare(loader)\n" in after and "self.device = accelerator.device\n" in after
    assert "net.to(self.device)" not in after and not [d for d in file.diagnoses if d.severity.value != "note"]


LEFT = {
    "under a condition": "if device:\n            self.device = torch.device(device)",
    "set twice": "self.device = torch.device('cpu')\n        self.device = torch.device(device)",
    "of something that only it knows": "here = pick(device)\n        self.device = torch.device(here)",
}


@pytest.mark.parametrize("device", LEFT.values(), ids=LEFT)
def test_what_cannot_be_said_there_is_refused(device: str) -> None:
    file = _migrated(device, "args.device")
    assert not file.changed or "Accelerator(cpu=torch.device(args.device)" not in file.after.decode()


def test_a_model_that_is_used_before_it_is_prepared_keeps_its_move() -> None:
    """Its optimizer comes after the first use, and `prepare` after that. The device that the object keeps is given the
    accelerator's where it is set."""
    work = "print(trainer.judge(loader))\n    trainer.fit(loader)"
    after = _migrated("self.device = torch.device(device)", "args.device", work).after.decode()
    assert "        self.device = accelerator.device\n        self.net = net.to(self.device)\n" in after
    assert '    accelerator = Accelerator(cpu=torch.device(args.device).type == "cpu")\n' in after


@pytest.mark.parametrize("imports", ["import torch", "import torch\nimport torch as tt"])
def test_both_modules_import_what_the_condition_reads(imports: str) -> None:
    text = PROGRAM.format(device="self.device = torch.device(device)", given="args.device", work=WORK)
    top, _, rest = text.partition("class Trainer")
    trainer, _, main = rest.partition("def main():")
    files = {
        "train": f"{imports}\n{top}from fits import Trainer\n\n\ndef main():{main}",
        "fits": f"import torch\n\n\nclass Trainer{trainer}",
    }
    sources = [decode(given.encode(), Path(f"{name}.py")) for name, given in files.items()]
    after = migrate(sources, CATALOGUE, Config()).files[0].after.decode()
    assert '    accelerator = Accelerator(cpu=torch.device(args.device).type == "cpu")\n' in after
