"""What prevents a migration is named where it is, with a remedy that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, RawConfig
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.result import Diagnosis, FileResult
from torchlift.rewriter.source import decode

OWN_BATCHES = """\
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.out(x)

def batches(rows, targets, size):
    for start in range(0, len(rows), size):
        yield rows[start : start + size], targets[start : start + size]

def train(rows, targets, model, optimizer):
    for x, y in batches(rows, targets, 16):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()

rows, targets = torch.randn(64, 4), torch.randn(64, 1)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(rows, targets, model, optimizer)
"""
OLD_ITERATOR = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 3)
loader = DataLoader(data, batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(loader)
step = 0
while step < len(loader):
    x, y = {drawn}
    step += 1
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def _migrated(text: str) -> FileResult:
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    return file


def _refusal(text: str) -> Diagnosis:
    (found,) = _migrated(text).diagnoses
    return found


def test_a_model_whose_class_cannot_be_told_is_the_obstacle() -> None:
    """The batches come from a generator of the script's own, which is understood: no loader has to be named."""
    found = _refusal(OWN_BATCHES.format(model='eval("Net")()'))
    assert found.id == "no-data-parallel-axis"
    assert '`model` is made by `eval("Net")()`' in found.message
    assert "by the name of its class" in found.remedy
    assert _migrated(OWN_BATCHES.format(model="Net()")).changed, "the remedy works"


def test_a_method_that_iterators_no_longer_have_is_named() -> None:
    found = _refusal(OLD_ITERATOR.format(drawn="batches.next()"))
    assert (found.id, found.line) == ("unknown-loader", 9)
    assert "`batches.next()` fails" in found.message and "next(batches)" in found.remedy
    assert _migrated(OLD_ITERATOR.format(drawn="next(batches)")).changed, "the remedy works"


def test_each_call_of_it_is_named() -> None:
    """Who mends one finds no second one in the next run."""
    found = _migrated(OLD_ITERATOR.format(drawn="batches.next()\n    x, y = batches.next()")).diagnoses
    assert [(one.id, one.case, one.line) for one in found] == [
        ("unknown-loader", "next-method", 9),
        ("unknown-loader", "next-method", 10),
    ]


def test_an_obstacle_in_another_file_names_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = OWN_BATCHES.format(model="Net()")
    head, _, rest = script.partition("def batches")
    Path("net.py").write_text(head.replace("return self.out(x)", "return self.forward(x)"))
    Path("train.py").write_text(f"import torch\nfrom net import Net\n\ndef batches{rest}")
    survey = Surveyor(CATALOGUE, RawConfig(), cached=False).look([Path("train.py")])
    (found,) = [one for file in survey.files for one in file.diagnoses]
    assert found.case == "not-cut" and "`forward` may call itself" in found.message
    assert found.cause is not None and found.cause.path.endswith("train.py") and "backward" in found.cause.text


JOINED = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def draw(rows, size):
    places = torch.randint(len(rows), (size,))
    return rows[places, :4], rows[places, 4:]

local = int(os.environ["LOCAL_RANK"])
{join}
torch.cuda.set_device(local)
rows = torch.randn(64, 5)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    x, y = draw(rows, 16)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x.to(local)), y.to(local))
    loss.backward()
    optimizer.step()
"""
NET = "torch.nn.Linear(4, 1).to(local)"


def test_a_script_that_makes_its_own_batches_on_every_process_goes_on_so() -> None:
    wrapped = f"DistributedDataParallel({NET}, device_ids=[local])"
    file = _migrated(JOINED.format(join='dist.init_process_group("nccl")', model=wrapped))
    after = file.after.decode()
    assert not file.diagnoses and "shard_batch" not in after
    assert "    x, y = draw(rows, 16)\n" in after and "    accelerator.backward(loss)\n" in after
    one = JOINED.format(join="", model=NET).replace('int(os.environ["LOCAL_RANK"])', "0")
    assert "shard_batch" in _migrated(one).after.decode(), "one that has one process alone shares the rows of each"


BY_HAND = """\
import torch
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = {made}
for x, y in {source}:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "source"),
    [
        ("[load(i) for i in range(9)]", "batches"),
        ("[load(1), load(2)]", "zip(batches, targets)"),
        ("list(range(9))", "enumerate(batches)"),
    ],
)
def test_a_list_that_the_script_fills_is_no_loader_that_could_be_vouched_for(made: str, source: str) -> None:
    """It was asked whether it is a DataLoader."""
    found = _refusal(BY_HAND.format(made=made, source=source))
    assert found.id == "no-data-parallel-axis" and "--assume" not in found.remedy


FED = """\
import torch
import odd

def load_rows(path):
    kept = odd.container()
    for line in open(path):
        kept.append(line)
    return kept

def train(data, model, optimizer):
    for x in data:
        optimizer.zero_grad()
        odd.score(model, x).backward()
        optimizer.step()

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = load_rows("rows.txt")
train(rows, model, optimizer)
"""


def test_what_feeds_the_training_is_shown_where_it_is_filled() -> None:
    found = next(d for d in _migrated(FED).diagnoses if d.id == "unknown-loader")
    assert found.line == 11 and (found.column, found.end) == (14, 18), "`data` is underlined"
    assert found.cause is not None and (found.cause.line, found.cause.label) == (7, "it is filled here")
    assert "DataLoader(data, batch_size=...)" in found.remedy


def test_what_decides_whether_processes_are_joined_is_shown_where_it_is_set() -> None:
    joins = 'joined = False\nif joined:\n    dist.init_process_group("nccl")'
    model = f"DistributedDataParallel({NET}, device_ids=[local])"
    found = next(d for d in _migrated(JOINED.format(join=joins, model=model)).diagnoses if "decides" in d.message)
    assert "`joined` decides whether the processes are connected" in found.message
    assert found.cause is not None and found.cause.text == "joined = False" and found.cause.label == "it is set here"
