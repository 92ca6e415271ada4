"""What is said where the accelerator chooses another device than the script did."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

SCRIPT = """\
import argparse
import torch
from torch.utils.data import DataLoader

args = argparse.ArgumentParser().parse_args()
{top}
model = torch.nn.Linear(8, 2){to}
loader = DataLoader(train, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    {move}
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def told(top: str, named: str = "device") -> list[str]:
    to, move = (f".to({named})", f"x, y = x.to({named}), y.to({named})") if named else ("", "pass")
    text = SCRIPT.format(top=top, to=to, move=move)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert b"accelerator.backward(" in file.after, "the training itself was not migrated"
    return [trait.kind for trait in file.traits if trait.kind in ("mac", "gpu", "cuda", "numbered")]


CHOICES = {
    "in place": 'device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")',
    "after a print": 'print("begin")\ndevice = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")',
    "under an option": 'device = "cuda" if args.gpu and torch.cuda.is_available() else "cpu"',
    "in branches": 'if torch.cuda.is_available():\n    device = "cuda"\nelse:\n    device = "cpu"',
}


@pytest.mark.parametrize("top", CHOICES.values(), ids=CHOICES)
def test_a_choice_between_cuda_and_the_cpu_finds_a_third_device_on_a_mac(top: str) -> None:
    assert told(top) == ["mac"]


def test_a_choice_between_mps_and_the_cpu_finds_a_gpu_of_cuda() -> None:
    assert told('device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")') == ["cuda"]


def test_an_attribute_that_keeps_the_choice() -> None:
    choice = 'args.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
    assert told(choice, "args.device") == ["mac"]


@pytest.mark.parametrize(
    "top", ["device = torch.device(args.device)", "device = args.device", 'device = torch.device(config["device"])']
)
def test_a_device_that_is_written_somewhere_may_be_a_gpu_by_number(top: str) -> None:
    """`--device cuda:2` trains on the first GPU; nothing said so."""
    assert told(f"config = dict(device=args.device)\n{top}") == ["numbered"]


def test_a_script_without_a_device_runs_on_a_gpu() -> None:
    assert told("", "") == ["gpu"]


@pytest.mark.parametrize(
    "top",
    ['torch.set_default_device("cuda")', "torch.set_default_tensor_type(torch.cuda.FloatTensor)"],
)
def test_a_default_device_is_a_device(top: str) -> None:
    assert told(top, "") == []


@pytest.mark.parametrize("top", ['device = "cpu"', 'device = "cuda"'])
def test_one_device_stays_what_it_is(top: str) -> None:
    assert told(top) == []


STAYS = {
    "an option alone": 'device = "cuda" if args.gpu else "cpu"',
    "branches on an option": 'if args.gpu:\n    device = "cuda"\nelse:\n    device = "cpu"',
    "an option that knows what is there": (
        'args.gpu = args.gpu and torch.cuda.is_available()\ndevice = "cuda" if args.gpu else "cpu"'
    ),
    "a constant": 'GPU = False\ndevice = "cuda" if GPU and torch.cuda.is_available() else "cpu"',
    "the CPU where nothing is there": 'device = "cpu" if not torch.cuda.is_available() else "cuda"',
}


@pytest.mark.parametrize("top", STAYS.values(), ids=STAYS)
def test_what_the_emitted_condition_keeps_on_the_cpu_is_not_told_to_move_to_a_mac_s_gpu(top: str) -> None:
    assert told(top) == []
