"""The condition on which a script keeps to the CPU: it is there where the accelerator reads it, and counted once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config, RawConfig
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.source import decode

Project = Callable[..., tuple[dict[str, str], list[str]]]

SCRIPT = """
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
{top}
model = torch.nn.Linear(3, 1)
if {test}:
    model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{later}
loader = DataLoader(TensorDataset(torch.randn(16, 3)), batch_size=4)
for (x,) in loader:
    if {test}:
        x = x.cuda()
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""
FOUND = "not args.no_cuda and torch.cuda.is_available()"
GONE = {
    "an option that another keeps": (f"args.fast = {FOUND}\ndel args.no_cuda", "args.fast", "", "cpu=not args.fast"),
    "an option that a variable keeps": (f"gpu = {FOUND}\ndelattr(args, 'no_cuda')", "gpu", "", "cpu=not gpu"),
    "an option that is set again": (f"gpu = {FOUND}\nargs.no_cuda = None", "gpu", "", "cpu=not gpu"),
    "an entry": (
        f"options = vars(args)\ngpu = {FOUND.replace('args.no_cuda', 'options[no]')}".replace("[no]", "['no_cuda']")
        + "\noptions.pop('no_cuda')",
        "gpu",
        "",
        "cpu=not gpu",
    ),
    "a value that can be taken once": (
        "options = vars(args)\ngpu = not options.pop('no_cuda') and torch.cuda.is_available()",
        "gpu",
        "",
        "cpu=not gpu",
    ),
    "an option, after the training's model is built": ("", "not args.no_cuda", "del args.no_cuda", "cpu=args.no_cuda"),
    "an option that a function removes": (
        "def tidy(args):\n    del args.no_cuda",
        "not args.no_cuda",
        "tidy(args)",
        "cpu=args.no_cuda",
    ),
}


@pytest.mark.parametrize(("top", "test", "later", "argument"), GONE.values(), ids=GONE)
def test_what_the_accelerator_reads_is_still_there(
    top: str, test: str, later: str, argument: str, trained_project: Project
) -> None:
    before = SCRIPT.format(top=top, test=test, later=later)
    if later:  # nothing needs the accelerator before the option goes
        before = before.replace(f"if {test}:\n    model.cuda()\n", "")
    after, findings = trained_project(train=before)
    assert f"accelerator = Accelerator({argument})\n" in after["train"]
    assert "device-flag" not in findings
    if later:
        assert after["train"].index("Accelerator(cpu") < after["train"].index(f"\n{later}\n")


@pytest.mark.parametrize("asked", ["next(model.parameters()).is_cuda", "on_gpu()"])
def test_where_the_model_is_follows_from_the_choice(asked: str, trained_project: Project) -> None:
    """It was taken for a second condition, and the accelerator asked neither."""
    before = SCRIPT.format(top="", test="not args.no_cuda", later="")
    own = f"    noise = torch.ones(3)\n    noise = noise.cuda() if {asked} else noise\n    optimizer.zero_grad()"
    before = before.replace("    optimizer.zero_grad()", own).replace(".mean()", ".add(noise).mean()")
    before = before.replace("loader =", "def on_gpu():\n    return next(model.parameters()).is_cuda\nloader =")
    after, findings = trained_project(train=before)
    assert "accelerator = Accelerator(cpu=args.no_cuda)\n" in after["train"]
    assert "device-flag" not in findings


def test_a_condition_that_can_be_asked_once_is_reported(trained_project: Project) -> None:
    test = "not options.pop('no_cuda', False)"
    before = SCRIPT.format(top="options = vars(args)", test="True", later="").replace(
        "if True:\n    m", f"if {test}:\n    m"
    )
    after, findings = trained_project(train=before.replace("    if True:\n        x = x.cuda()\n", ""))
    assert "Accelerator()" in after["train"] and "device-flag" in findings


HELPER = """
import torch

def train(loader, model, args):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        if args.cuda:
            x = x.cuda()
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()

def count(loader, model, args):
    total = 0.0
    for (x,) in loader:
        if args.cuda:
            x = x.cuda()
        total += model(x).sum().item()
    print(total)
"""
CALLS = """
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset
import loop

def run(options):
    loader = DataLoader(TensorDataset(torch.randn(16, 3)), batch_size=4)
    model = torch.nn.Linear(3, 1)
    if args.cuda:
        model.cuda()
    loop.train(loader, model, options)
    loop.count(loader, model, options)

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
args.cuda = {value}
{end}
"""


@pytest.mark.parametrize("value", ["not args.no_cuda", FOUND, f"{FOUND}; del args.no_cuda"])
def test_a_condition_that_two_modules_ask_is_one(value: str, tmp_path: Path) -> None:
    """An attribute of a parameter is what the callers' object has."""
    after, findings = _migrated(tmp_path, CALLS.format(value=value, end="run(args)"))
    assert "device-flag" not in findings
    assert "accelerator = Accelerator(cpu=not options.cuda)\n" in after["train"]


def test_an_option_is_read_before_it_goes(tmp_path: Path) -> None:
    """What needs the accelerator comes before the condition that the training asks."""
    script = CALLS.format(value=f"{FOUND}; del args.no_cuda", end="").replace("    {then}", "    pass")
    start = script.index("def run"), script.index("parser =")
    body = (
        script[start[0] : start[1]]
        .replace("def run(options):\n", "")
        .replace("\n    ", "\n")
        .replace("options", "args")
    )
    script = script[: start[0]] + script[start[1] :].replace("args.cuda =", "print(args)\nargs.cuda =") + body[4:]
    after, findings = _migrated(tmp_path, script)
    assert "accelerator = Accelerator(cpu=args.no_cuda)\naccelerator.print(args)\n" in after["train"]
    assert "device-flag" not in findings and "main_process" not in findings


def test_conditions_of_several_objects_are_several(tmp_path: Path) -> None:
    end = "other = parser.parse_args()\nother.cuda = other.no_cuda\nrun(args)\nrun(other)"
    after, findings = _migrated(tmp_path, CALLS.format(value=FOUND, end=end))
    assert "device-flag" in findings and "Accelerator()" in after["train"]


def _migrated(folder: Path, script: str, **others: str) -> tuple[dict[str, str], list[str]]:
    """The texts of a script and of the loop that it calls, migrated, and the ids of all findings."""
    for name, text in {"train": script, **(others or {"loop": HELPER})}.items():
        (folder / f"{name}.py").write_text(text)
    files = Surveyor(CATALOGUE, RawConfig()).look([folder / "train.py"]).files
    assert any(b"accelerator.backward(" in file.after for file in files)
    after = {file.source.path.stem: file.after.decode() for file in files}
    return after, [finding.id for file in files for finding in file.diagnoses]


READS = """\
import argparse
from fitting import fit

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda:0")
args = parser.parse_args()
if __name__ == "__main__":
    fit(args)
"""
LATER = """\
    print("done", args.device)
    with open("done.txt", "w") as file:
        file.write(str(args))
"""
FITTING = """\
import torch
from data import rows
from torch.utils.data import DataLoader


def fit(args):
    model = torch.nn.Linear(4, 1)
    model.to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(rows, batch_size=8):
        optimizer.zero_grad()
        model(x.to(args.device)).mean().backward()
        optimizer.step()
"""
MADE = 'accelerator = Accelerator(cpu=args.device == "cpu")\n'


def test_a_device_of_the_command_line_is_known_where_the_training_gets_it(tmp_path: Path) -> None:
    after, told = _migrated(tmp_path, READS, fitting=FITTING)
    assert f"    {MADE}" in after["fitting"] and told == []


def test_a_device_of_the_command_line_is_known_where_the_script_reads_it(tmp_path: Path) -> None:
    """The script itself needs the accelerator, and has the options before that."""
    after, told = _migrated(tmp_path, READS + LATER, fitting=FITTING)
    assert MADE in after["train"] and "def fit(args, accelerator):" in after["fitting"] and told == []


ASKED_BELOW = """
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset
import loop

def fit(net, rule, rows, gpu):
    for (x,) in rows:
        if gpu:
            x = x.cuda()
        rule.zero_grad()
        net(x).mean().backward()
        rule.step()

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", action="store_true")
opts = parser.parse_args()
print(opts)
net = loop.build(opts.gpu)
rule = torch.optim.SGD(net.parameters(), lr=0.1)
rows = DataLoader(TensorDataset(torch.randn(16, 3)), batch_size=4)
fit(net, rule, rows, OTHER)
"""
BUILDER = """
import torch

def build(gpu):
    net = torch.nn.Linear(3, 1)
    if gpu:
        net = net.cuda()
    return net
"""


@pytest.mark.parametrize(("other", "known"), [("opts.gpu", True), ("True", False)])
def test_a_flag_that_only_functions_ask_is_known_to_their_callers(other: str, known: bool, tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(BUILDER)
    (tmp_path / "train.py").write_text(ASKED_BELOW.replace("OTHER", other))
    files = [decode((tmp_path / name).read_bytes(), tmp_path / name) for name in ("train.py", "loop.py")]
    result = migrate(files, CATALOGUE, Config())
    text, findings = result.files[0].after.decode(), {d.id for file in result.files for d in file.diagnoses}
    assert ("accelerator = Accelerator(cpu=not opts.gpu)" in text, "device-flag" in findings) == (known, not known)


HANDED_ON = """
import torch


def fit(net, rule, rows, cuda, epochs):
    for epoch in range(epochs):
        once(net, rule, rows, cuda)


def once(net, rule, rows, cuda):
    for (x,) in rows:
        if cuda:
            x = x.cuda()
        rule.zero_grad()
        net(x).mean().backward()
        rule.step()
"""
HANDING = """
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset
from fits import fit

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", action="store_true")
opts = parser.parse_args()
cuda = ASKED
net = torch.nn.Linear(3, 1)
rule = torch.optim.SGD(net.parameters(), lr=0.1)
rows = DataLoader(TensorDataset(torch.randn(16, 3)), batch_size=4)
if len(rows) > 3:
    fit(net, rule, rows, cuda, 2)
else:
    fit(net, rule, rows, cuda, 5)
"""


@pytest.mark.parametrize(("asked", "made"), [("", "Accelerator()"), (" and opts.gpu", "Accelerator(cpu=not opts.gpu)")])
def test_whether_a_device_is_there_is_no_flag_however_far_it_is_handed(asked: str, made: str, tmp_path: Path) -> None:
    (tmp_path / "fits.py").write_text(HANDED_ON)
    (tmp_path / "train.py").write_text(HANDING.replace("ASKED", f"torch.cuda.is_available(){asked}"))
    train, fits = Surveyor(CATALOGUE, RawConfig()).look([tmp_path / "train.py"]).files
    assert f"accelerator = {made}\n" in train.after.decode() and b"accelerator.backward(" in fits.after
    assert not train.diagnoses and not fits.diagnoses


def test_a_condition_without_which_a_gpu_is_used_as_well_is_no_flag(trained_project: Project) -> None:
    """It was one of `several conditions`."""
    before = SCRIPT.format(
        top="parser.add_argument('--many_gpus', action='store_true')", test="torch.cuda.is_available()", later=""
    )
    many = "if args.many_gpus:\n    model = torch.nn.DataParallel(model)\n    model.cuda()\nelse:\n    model.cuda()\n"
    before = before.replace("if torch.cuda.is_available():\n    model.cuda()\n", many)
    before = before.replace("    if torch.cuda.is_available():\n        x = x.cuda()\n", "    x = x.cuda()\n")
    after, findings = trained_project(train=before)
    assert "accelerator = Accelerator()\n" in after["train"] and "device-flag" not in findings


CONNECTED = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from rows import rows, settings

if __name__ == "__main__":
    use_cuda = {cuda}
    rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl")
    model = torch.nn.Linear(4, 1)
    if use_cuda:
        model = model.cuda(rank)
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows)):
        if use_cuda:
            x, y = x.cuda(rank), y.cuda(rank)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("cuda", "findings"), [("True", []), ("settings.cuda", ["device-flag"])])
def test_a_constant_that_says_gpu_decides_nothing(cuda: str, findings: list[str], trained_project: Project) -> None:
    """It was said to decide whether the CPU is used, and not to be known where the processes are connected."""
    after, found = trained_project(train=CONNECTED.format(cuda=cuda))
    assert "accelerator = Accelerator()" in after["train"] and found == findings


OF_A_CLASS = """
import torch
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    GPU = {word}

    def __init__(self):
        self.loader = DataLoader(TensorDataset(torch.randn(16, 3)), batch_size=4)
        self.net = torch.nn.Linear(3, 1)
        self.net.to(self.GPU)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def fit(self):
        for (x,) in self.loader:
            x = x.to(self.GPU)
            self.optimizer.zero_grad()
            self.net(x).mean().backward()
            self.optimizer.step()
        {last}


Trainer().fit()
"""


@pytest.mark.parametrize(
    ("word", "last", "made"),
    [
        ("'cuda:0'", "", "Accelerator()"),
        ("'cuda'", "print(self.GPU)", "Accelerator()"),
        ("'cpu'", "", 'Accelerator(cpu=self.GPU == "cpu")'),
    ],
)
def test_a_word_in_the_class_that_is_no_cpu_is_not_asked_for(
    word: str, last: str, made: str, trained_project: Project
) -> None:
    texts, findings = trained_project(train=OF_A_CLASS.format(word=word, last=last))
    assert f"self.accelerator = {made}\n" in texts["train"] and not findings
