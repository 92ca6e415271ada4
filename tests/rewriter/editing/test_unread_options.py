"""Options of the command line that nothing reads any more."""

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
parser = argparse.ArgumentParser()
parser.add_argument({option})
args = parser.parse_args()
device = {device}
model = torch.nn.Linear(8, 1).to(device)
loader = DataLoader(data, batch_size=32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
    optimizer.step()
{end}
"""


def told(option: str, device: str, end: str = "", **options: bool) -> list[tuple[int, str]]:
    text = SCRIPT.format(option=option, device=device, end=end)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config(**options)).files
    assert file.changed or file.blocked, "the training itself was not migrated"
    return [(d.line, d.message.partition(" ")[0]) for d in file.diagnoses if d.id == "unread-option"]


@pytest.mark.parametrize(
    ("option", "device"),
    [
        ("'--gpu', type=int", "torch.device(f'cuda:{args.gpu}')"),
        ("'-g', '--gpu-id', type=int", "torch.device('cuda', args.gpu_id)"),
        ("'--which', dest='gpu'", "torch.device('cuda', int(args.gpu))"),
        ("'--device'", "torch.device({'gpu': 'cuda', 'cpu': 'cpu'}[args.device])"),
    ],
    ids=["long", "short and long", "under another name", "called as the accelerator's attribute"],
)
def test_an_option_that_chose_the_device(option: str, device: str) -> None:
    ((line, name),) = told(option, device)
    assert line == 5 and name.startswith("--")


@pytest.mark.parametrize(
    ("option", "device", "end"),
    [
        ("'--cpu', action='store_true'", "torch.device('cpu' if args.cpu else 'cuda')", ""),
        ("'--device'", "torch.device(args.device)", ""),
        ("'--gpu'", "torch.device('cuda', args.gpu)", "print(args.gpu)"),
        ("'--gpu'", "torch.device('cuda', args.gpu)", "print(vars(args)['gpu'])"),
        ("'--never'", "torch.device('cuda')", ""),
    ],
    ids=["the accelerator reads it", "its word", "somebody else reads it", "as an entry", "nobody read it before"],
)
def test_said_nothing(option: str, device: str, end: str) -> None:
    assert told(option, device, end) == []


def test_a_file_that_is_not_changed_keeps_its_options() -> None:
    assert told("'--gpu'", "torch.device('cuda', args.gpu)", "torch.multiprocessing.spawn(work)") == []


def test_an_option_for_gpus_is_one_of_the_launcher() -> None:
    """Neither a condition for the CPU nor a precision says how many processes there are."""
    text = SCRIPT.format(option="'--gpu', type=int", device="torch.device(f'cuda:{args.gpu}')", end="")
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    (remedy,) = [d.remedy for d in file.diagnoses if d.id == "unread-option"]
    assert "torchlift launch --num-processes" in remedy and "cpu=" not in remedy
