"""What places things on a device that the script chose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Trained = Callable[..., tuple[str, list[str]]]


@pytest.mark.parametrize("pin", ["torch.cuda.set_device(1)", "torch.cuda.set_device('cuda:0')"])
def test_a_process_is_not_pinned_to_one_gpu(pin: str, trained: Trained) -> None:
    text, findings = trained(built=f"{pin}\nmodel.cuda()")
    assert "set_device" not in text and findings == []


@pytest.mark.parametrize("flags", ["fast or other", "fast == 1"])
def test_a_flag_of_several_parts_is_negated_as_a_whole(flags: str, trained: Trained) -> None:
    top = f"fast = other = 1\ndevice = torch.device('cuda' if {flags} else 'cpu')"
    text, _ = trained(top=top, built="model.to(device)")
    assert f"Accelerator(cpu=not ({flags}))" in text


KEPT = {
    "copies of its parameters": "for name, p in net.named_parameters():\n            self.kept[name] = p.data.clone()",
    "a list of them": "self.kept = [p.detach() for p in net.parameters()]",
    "its state": "self.kept = list(net.state_dict().values())",
}
OF_ITSELF = {
    "the model": "self.kept = net",
    "its parameters": "self.kept = list(net.parameters())",
    "their number": "self.kept = sum(p.numel() for p in net.parameters())",
}
BUILT = """
model = torch.nn.Linear(8, 2).cuda()
average = Average(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
AVERAGE = """
class Average:
    def __init__(self, net):
        self.kept = {{}}
        {keeps}

"""


@pytest.mark.parametrize("keeps", KEPT.values(), ids=KEPT)
def test_a_model_whose_tensors_are_kept_before_prepare_is_moved_before_that(keeps: str, trained: Trained) -> None:
    """`prepare` would move the model, and what was kept would stay on the CPU."""
    text, _ = trained(top=AVERAGE.format(keeps=keeps), built=BUILT)
    assert "Linear(8, 2).to(accelerator.device)\naverage = Average(model)" in text


@pytest.mark.parametrize("keeps", OF_ITSELF.values(), ids=OF_ITSELF)
def test_what_follows_the_model_does_not_need_it(keeps: str, trained: Trained) -> None:
    text, _ = trained(top=AVERAGE.format(keeps=keeps), built=BUILT)
    assert ".to(accelerator.device)" not in text and "cuda" not in text


TRAIN = """\
import torch
from torch.utils.data import DataLoader
from data import data, other
from checks import check

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
check(model, torch.zeros(4, 8))
"""
CHECKS = """\
import torch

def check(net, rows):
    device = {device}
    net(rows.to(device))
"""


@pytest.mark.parametrize(
    ("device", "emitted"),
    [
        ('"cuda:0" if torch.cuda.is_available() else "cpu"', '"cuda" if torch.cuda.is_available() else "cpu"'),
        ('torch.device("cuda:1")', 'torch.device("cuda")'),
    ],
)
def test_a_gpu_that_code_without_the_accelerator_names_loses_its_number(
    device: str, emitted: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    """A script beside it calls `check`, too: it stays as it is, and its device is the GPU of each process."""
    checks = CHECKS.format(device=device)
    after, _ = trained_project(train=TRAIN, checks=checks, other="from checks import check\ncheck(print, [])\n")
    assert after["checks"] == checks.replace(device, emitted)


CPU, CUDA = 'opt.dev = torch.device("cpu")', 'opt.dev = torch.device("cuda")'
CHOICES = {
    "a flag for the CPU": (f"if opt.cpu:\n    {CPU}\nelse:\n    {CUDA}", "opt.cpu"),
    "a flag for the GPU": (f"if opt.gpu:\n    {CUDA}\nelse:\n    {CPU}", "not opt.gpu"),
    "a name": (f"if opt.name is None:\n    {CUDA}\nelse:\n    opt.dev = torch.device(opt.name)", 'opt.name == "cpu"'),
    "three ways": (f'if opt.cpu:\n    {CPU}\nelif opt.mps:\n    opt.dev = "mps"\nelse:\n    {CUDA}', "opt.cpu"),
    "the CPU last": (
        f'if opt.gpu:\n    {CUDA}\nelif torch.backends.mps.is_available():\n    opt.dev = "mps"\nelse:\n    {CPU}',
        "not opt.gpu",
    ),
    "anew in one branch": (f"{CUDA}\nif opt.cpu:\n    {CPU}", "opt.cpu"),
}


@pytest.mark.parametrize(("choice", "condition"), CHOICES.values(), ids=CHOICES)
def test_the_flag_of_branches_that_choose_an_attribute_keeps_its_meaning(
    choice: str, condition: str, trained: Trained
) -> None:
    """What chooses the CPU there chooses it for the accelerator, and nothing else does."""
    top = f"opt = parse()\n{choice}"
    text, _ = trained(top=top, built="model.to(opt.dev)")
    assert f"Accelerator(cpu={condition})" in text


ONLY_IN_A_BRANCH = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--place")
opt = parser.parse_args()
opt.dev = None
if not opt.place:
    opt.place = "cuda" if torch.cuda.is_available() else "cpu"
"""


def test_a_branch_that_sets_a_device_leaves_what_an_option_says(trained: Trained) -> None:
    """A word such as "cuda" is true, and would put the script on the CPU."""
    text, _ = trained(top=ONLY_IN_A_BRANCH, built="model.to(opt.place)")
    assert 'Accelerator(cpu=opt.place == "cpu")' in text


CHOSEN = {
    "a flag before what is there": ("'cpu' if a.slow else ('mps' if a.mac else 'cuda')", "a.slow"),
    "a flag or a name": ("'cpu' if a.slow else a.at", 'a.slow or (a.at == "cpu")'),
    "a flag around what is there": (
        "('cuda' if torch.cuda.is_available() else 'cpu') if a.fast else 'cpu'",
        "not a.fast",
    ),
    "a name in a table": ("settings['at']", "settings['at'] == \"cpu\""),
}


@pytest.mark.parametrize(("choice", "condition"), CHOSEN.values(), ids=CHOSEN)
def test_the_flags_of_a_choice_keep_their_meaning(choice: str, condition: str, trained: Trained) -> None:
    text, _ = trained(top=f"a = parse()\nsettings = read()\ndevice = torch.device({choice})", built="model.to(device)")
    assert f"Accelerator(cpu={condition})" in text


def test_the_same_branches_give_a_variable_and_an_attribute_one_condition(trained: Trained) -> None:
    choice = "if o.slow:\n    {0} = 'cpu'\nelif torch.cuda.is_available():\n    {0} = 'cuda'\nelse:\n    {0} = 'cpu'"
    for name in ("place", "o.place"):
        text, _ = trained(top="o = parse()\n" + choice.format(name), built=f"model.to({name})")
        assert "Accelerator(cpu=o.slow)" in text


STARTED = """\
import torch
from data import rows
from torch.utils.data import DataLoader

if __name__ == "__main__":
    place = {choice}
    model = torch.nn.Linear(4, 1).to(place)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(rows, batch_size=8):
        optimizer.zero_grad()
        model(x.to(place)).mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("choice", "made"), [('"cpu"', "cpu=True"), ('"cuda" if torch.cuda.is_available() else "cpu"', "")]
)
def test_that_a_script_was_started_is_no_condition_of_its_device(
    choice: str, made: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    after, findings = trained_project(train=STARTED.format(choice=choice))
    assert f"accelerator = Accelerator({made})" in after["train"] and findings == []


def test_a_device_of_which_nothing_is_known_is_asked(trained: Trained) -> None:
    text, _ = trained(top="device = torch.device(settings().get('at'))", built="model.to(device)")
    assert "Accelerator(cpu=torch.device(settings().get('at')).type == \"cpu\")" in text


OPTIONS = """\
import argparse
import torch

def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"])
    found = parser.parse_args()
    if found.device is None:
        found.device = {True: "cuda"}.get(torch.cuda.is_available(), "cpu")
    return found
"""
PENALTY = """\
import torch

class Penalty(torch.nn.Module):
    def __init__(self, device="cpu"):
        super().__init__()
        self.goal = torch.ones(1).to(device)

    def forward(self, x):
        return ((x - self.goal) ** 2).mean()
"""
BY_OPTION = """\
import torch
from torch.utils.data import DataLoader
from data import rows
from options import options
from penalty import Penalty

def fit(opts, net, penalty, optimizer):
    for x in DataLoader(rows, batch_size=8):
        optimizer.zero_grad()
        penalty(net(x.to(opts.device))).backward()
        optimizer.step()

if __name__ == "__main__":
    chosen = options()
    net = torch.nn.Linear(4, 1).to(chosen.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    fit(chosen, net, Penalty(device=chosen.device), optimizer)
"""


def test_all_that_reads_an_option_follows_the_accelerator(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    """The model, the batches and the loss module meet on one device, and `--device cpu` is that of all of them."""
    after, findings = trained_project(train=BY_OPTION, options=OPTIONS, penalty=PENALTY)
    made = '    accelerator = Accelerator(cpu=chosen.device == "cpu")\n    chosen.device = accelerator.device.type\n'
    assert made in after["train"] and "Penalty(device=chosen.device)" in after["train"]
    assert after.get("penalty", PENALTY) == PENALTY, "what it is given follows"
    assert findings == []


PICK = """\
import torch

def pick(gpus):
    device = torch.device("cuda:0" if gpus > 0 and torch.cuda.is_available() else "cpu")
    return device, list(range(gpus))
"""
PICKED = """\
import torch
from pick import pick
from data import rows
from torch.utils.data import DataLoader

def epoch(net, loader, optimizer, device=torch.device("cpu")):
    for x in loader:
        optimizer.zero_grad()
        net(x.to(device)).mean().backward()
        optimizer.step()

def main():
    device, gpus = pick(1)
    net = torch.nn.Linear(4, 1).to(device)
    noise = torch.randn(4, device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    epoch(net, DataLoader(rows, batch_size=8), optimizer, device)
    print(noise.sum())

main()
"""


def test_a_device_that_a_shared_function_gives_is_asked_and_given_back(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    other = "from pick import pick\nprint(pick(0))\n"
    after, findings = trained_project(train=PICKED, pick=PICK, other=other)
    assert after.get("pick", PICK) == PICK
    made = '    accelerator = Accelerator(cpu=device.type == "cpu")\n    device = accelerator.device\n'
    assert made in after["train"] and "torch.randn(4, device=device)" in after["train"]
    assert "def epoch(net, loader, optimizer, accelerator):" in after["train"], "every call gives the parameter"
    assert findings == []


SWITCH = """\
import torch

fast = True

def slow():
    global fast
    fast = False

def place():
    if not fast:
        return torch.device("cpu")
    return torch.device("cuda")
"""
SWITCHED = """\
import sys
import torch
from data import rows
from outside import turned
from switch import place, slow
from torch.utils.data import DataLoader

class Heads(torch.nn.Module):
    def forward(self, q, k):
        k = turned(k)
        return q @ k + torch.zeros(2, device=k.device)

def main():
    if "slow" in sys.argv:
        slow()
    heads = Heads()(rows[0], rows[1])
    net = torch.nn.Linear(4, 1).to(place())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in DataLoader(rows, batch_size=8):
        optimizer.zero_grad()
        net(x.to(place())).mean().backward()
        optimizer.step()

main()
"""


def test_what_a_function_chooses_at_each_move_is_reported(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    """Not the device of a tensor in a model: that one follows its input."""
    after, findings = trained_project(train=SWITCHED, switch=SWITCH)
    assert "Accelerator()" in after["train"] and findings == ["device-flag"]
    there = SWITCH.replace("not fast", "not torch.cuda.is_available()")
    after, findings = trained_project(train=SWITCHED, switch=there)
    assert "Accelerator()" in after["train"] and findings == []


OF_OBJECT = """
import argparse

class Fit:
    def __init__(self, place):
        self.place = {made}

    def run(self, rows):
        net = torch.nn.Linear(4, 1)
        net.to(self.place)
        {noise}
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x in DataLoader(rows, batch_size=8):
            optimizer.zero_grad()
            net(x.to(self.place)).mean().backward()
            optimizer.step()

parser = argparse.ArgumentParser()
parser.add_argument("--place", default="cpu")
Fit(parser.parse_args().place).run(data)
"""
HEAD_OF_OBJECT = "import torch\nfrom data import data\nfrom torch.utils.data import DataLoader\n"
ASKED = 'Accelerator(cpu=self.place.type == "cpu")'
THERE = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
GIVEN = "        self.place = self.accelerator.device\n"
NOISE = "noise = torch.ones(4, device=self.place)"
OF_OBJECTS = {
    "read later": ("torch.device(place)", NOISE, ASKED, True),
    "not read any more": ("torch.device(place)", "noise = 1", ASKED, False),
    "a word or a device": (
        '"cpu" if place == "cpu" else torch.device(place)', NOISE, 'Accelerator(cpu=str(self.place) == "cpu")', True,
    ),
    "what is there": (THERE, "noise = 1", "Accelerator()", False),
    "what is there, read later": (THERE, NOISE, "Accelerator()", True),
}  # fmt: skip


@pytest.mark.parametrize(("made", "noise", "accelerator", "given"), OF_OBJECTS.values(), ids=OF_OBJECTS)
def test_the_device_that_a_constructor_keeps_is_asked_by_the_method_that_prepares(
    made: str,
    noise: str,
    accelerator: str,
    given: bool,
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    """
    `--place cpu` is still the CPU, and what is made there meets the model.

    The constructor of a module cannot be given the accelerator: its method makes it.
    """
    text = OF_OBJECT.replace("class Fit:", "class Fit(torch.nn.Module):")
    after, findings = trained_project(train=HEAD_OF_OBJECT + text.format(made=made, noise=noise))
    assert f"        self.accelerator = {accelerator}\n" in after["train"]
    assert (GIVEN in after["train"]) is given and findings == []


KEEPING = """
import torch
class Net(torch.nn.Module):
    def __init__(self, {given}):
        super().__init__()
        {keeps}
        self.layer = torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.layer(x) + torch.zeros(len(x), 2).to(self.place)
def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = torch.utils.data.TensorDataset(torch.randn(8, 8), torch.randn(8, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    model = {made}.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
main()
"""
"""A model that keeps a device, in a script whose `main` makes the accelerator."""


@pytest.mark.parametrize(
    ("given", "keeps", "made", "follows"),
    [
        ("place", "self.place = place", "Net(device)", True),
        ("where", "self.place = where", "Net(where=device)", True),
        ("place", "self.place = torch.device(place)", "Net('cuda')", False),
        ("place='cuda'", "self.place = place", "Net()", False),
    ],
)
def test_an_object_that_keeps_the_device_that_it_is_given_needs_no_accelerator(
    given: str, keeps: str, made: str, follows: bool
) -> None:
    text = KEEPING.format(given=given, keeps=keeps, made=made)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert (b".to(self.place)" in file.after and b"\naccelerator = Accelerator()" not in file.after) is follows


FLAG = "import argparse\nargs = argparse.Namespace(gpu=True)"
GUARDED = {
    "a model, in one line": ("if args.gpu: model.cuda()", "x, y", ""),
    "a model that is assigned": ("if args.gpu: model = model.cuda()", "x, y", ""),
    "a batch, or itself": ("if args.gpu: model.cuda()", "x, y", "x = x.cuda() if args.gpu else x"),
    "an entry of a table": ("settings = {'cpu': False}\nif not settings['cpu']:\n    model.cuda()", "x, y", ""),
    "an entry that is asked for": ("settings = {'gpu': True}\nif settings.get('gpu'):\n    model.cuda()", "x, y", ""),
    "a batch, the other way round": ("if args.gpu: model.cuda()", "x, y", "x = x if not args.gpu else x.cuda()"),
}


@pytest.mark.parametrize(("built", "batch", "moved"), GUARDED.values(), ids=GUARDED)
def test_a_move_under_a_flag_leaves_nothing_behind(built: str, batch: str, moved: str, trained: Trained) -> None:
    text, _ = trained(top=FLAG, built=built, batch=batch, loss=f"{moved}\nloss = model(x).mean()")
    assert not any(left in text for left in ("cuda", "if args.gpu", "if not settings", "if settings", "else x", "pass"))


def test_what_else_a_flag_decides_stays(trained: Trained) -> None:
    built = "if args.gpu: model.cuda(); print('on a GPU')\nif args.gpu: model.cuda()\nelse: print('on the CPU')"
    text, _ = trained(top=FLAG, built=built)
    assert "if args.gpu: " in text and "'on a GPU'" in text and "else: accelerator.print('on the CPU')" in text


TEACHER = """
teacher = torch.nn.Linear(8, 2)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_a_model_that_nothing_moves_is_put_where_the_batches_are(trained: Trained) -> None:
    """A script that names no device: the loader's batches are on the accelerator's device then."""
    loss = "with torch.no_grad():\n    target = teacher(x)\nloss = (model(x) - target).pow(2).mean()"
    text, findings = trained(built=TEACHER, loss=loss)
    assert "teacher = torch.nn.Linear(8, 2).to(accelerator.device)\n" in text and findings == []


IN_A_CLASS = """
class Distilling:
    def __init__(self, net, guide):
        self.net, self.guide = net, guide

    def loss(self, rows):
        with torch.no_grad():
            wanted = self.guide(rows)
        return (self.net(rows) - wanted).pow(2).mean()

class Blend(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 2)

    def forward(self, rows):
        return self.first(rows)
"""


def test_one_that_a_trainers_method_runs_is_put_there_too(trained: Trained) -> None:
    """The class around that call is no model: nothing else takes the teacher along."""
    built = "teacher = Blend()\nmodel = torch.nn.Linear(8, 2)\ndistilling = Distilling(model, teacher)\n"
    built += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text, findings = trained(top=IN_A_CLASS, built=built, loss="loss = distilling.loss(x)")
    assert "teacher = Blend().to(accelerator.device)\n" in text and findings == []
    assert text.count(".to(accelerator.device)") == 1  # its layers, which its own method runs, are a part of it


def test_one_that_the_script_moves_stays_as_it_is(trained: Trained) -> None:
    loss = "target = teacher(x).detach()\nloss = (model(x) - target).pow(2).mean()"
    text, _ = trained(built=f"{TEACHER}teacher.cuda()", loss=loss)
    assert "teacher = torch.nn.Linear(8, 2)\n" in text and "teacher.to(accelerator.device)" in text


FED_EARLY = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
def look(net, rows):
    return net(rows)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
model.to(device)
{after}
for x, y in loader:
    x, y = x.to(device), y.to(device)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "follows"),
    [
        ("out = model(data[0][0])", "model(data[0][0].to(accelerator.device))"),
        ("for x, y in data:\n    out = model(x)", "model(x.to(accelerator.device))"),
        ("rows = torch.randn(2, 8)\nout = model(rows)", "model(rows.to(accelerator.device))"),
        ("out = model(torch.zeros(8), flag)", "model(torch.zeros(8).to(accelerator.device), flag)"),
        ("out = look(model, data[0][0])", "net(rows.to(accelerator.device))"),
        ("for x, y in loader:\n    out = model(x)\n    break", "out = model(x)\n"),
    ],
    ids=["a row", "each row", "drawn", "with a flag", "in a function", "a batch"],
)
def test_what_a_model_is_given_before_it_is_moved_follows_it(
    before: str, follows: str, trained_project: Callable[..., tuple[dict[str, str], list[str]]]
) -> None:
    """On the CPU both were; `prepare` has moved the model by then."""
    texts, findings = trained_project(train=FED_EARLY.format(before=before, after=""))
    assert follows in texts["train"]
    assert findings == []


def test_what_a_model_is_given_after_it_is_moved_is_the_scripts_own_affair(
    trained_project: Callable[..., tuple[dict[str, str], list[str]]],
) -> None:
    texts, _ = trained_project(train=FED_EARLY.format(before="", after="out = model(read(data))"))
    assert "out = model(read(data))\n" in texts["train"]


PROBED = """\
import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)

    def probe(self, x):
        return self.model(x.to(self.device))

    def fit(self, loader):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(x.to(self.device)), y.to(self.device)).backward()
            optimizer.step()


def main():
    trainer = Trainer(torch.nn.Linear(4, 1))
    FIRST
    trainer.fit(DataLoader(data, batch_size=8))
    LAST


main()
"""


@pytest.mark.parametrize("place", ["FIRST", "LAST"])
def test_a_method_that_is_called_before_the_training_has_its_model_moved(place: str) -> None:
    """What calls both methods certainly calls one before the other."""
    text = (
        PROBED.replace(place, "print(trainer.probe(torch.ones(1, 4)))").replace("FIRST", "pass").replace("LAST", "pass")
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert ("= model.to(self.device)" in file.after.decode()) is (place == "FIRST")
    assert "self.accelerator.prepare(" in file.after.decode()


OWN_FIT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

    def fit(self, batches):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        for x, y in batches:
            loss = self.cost(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def cost(self, x, y):
        x, y = x.cuda(), y.cuda()
        return nn.functional.mse_loss(self(x), y)

    def guess(self, rows):
        rows = rows.cuda()
        return self(rows)


net = Net().cuda()
net.fit(DataLoader(torch.load("rows.pt"), batch_size=8))
print(net.guess(torch.load("held.pt")))
"""


def test_the_reason_of_a_move_that_stays_does_not_deny_what_the_prepared_loader_yields() -> None:
    (file,) = migrate([decode(OWN_FIT.encode(), Path("train.py"))], CATALOGUE, Config()).files
    told = {change.line: change.reason for change in file.changes if "it moves to" in change.reason}
    assert told[23].startswith("`y` may not always be a batch of the prepared loader")
    assert told[27].startswith("`rows` is no batch of a prepared loader")


FITS_ITSELF = """\
import torch
from torch.utils.data import DataLoader
from rows import rows

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

    def fit(self, loader, more):
        if torch.cuda.is_available():
            self.cuda()
        else:
            self.cpu()
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        for x, y in loader:
            if torch.cuda.is_available():
                x = x.cuda()
                y = y.cuda()
            else:
                x = x.cpu()
                y = y.cpu()
{step}
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self(x), y)
            loss.backward()
            optimizer.step()


Net().fit(DataLoader(rows, batch_size=8), torch.ones(4))
"""


def test_what_a_loop_of_a_models_own_method_draws_comes_on_the_device() -> None:
    """A method may be given anything, but its loop draws from the prepared loader alone. And what is moved to the CPU
    where there is no CUDA would be there on a Mac, too, whose model is on its GPU."""
    (file,) = migrate([decode(FITS_ITSELF.format(step="").encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert "cuda" not in text and ".cpu()" not in text and file.diagnoses == ()


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        ("            kept = loss.detach().cpu() if False else x.cpu()", "x.cpu()"),
        (
            "            if y.sum() > 0:\n                print(1)\n            else:\n                x = x.cpu()",
            "x = x.cpu()",
        ),
        ("            more = more.cuda()", "more = more.to(self.accelerator.device)"),
    ],
    ids=["a copy", "after another question", "what the method is given"],
)
def test_what_else_such_a_loop_moves_is_moved_as_before(step: str, kept: str) -> None:
    (file,) = migrate([decode(FITS_ITSELF.format(step=step).encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert kept in file.after.decode()


AGAIN = """\
import sys
import torch
from torch.utils.data import DataLoader
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
def epoch(net, optimizer, rows):
    for x, y in rows:
        net = net.to(device)
        loss = torch.nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
def check(net, rows):
    hits = 0
    for x, y in rows:
        x, y = x.to(device), y.to(device)
        hits += (net(x).argmax(1) == y).sum().item()
    print(hits)
def main():
    model = torch.nn.Linear(8, 2).to(device)
    if len(sys.argv) > 1:
        alone = DataLoader(others, batch_size=8)
        check(model, alone)
        return
    loader, held = DataLoader(data, batch_size=8), DataLoader(others, batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        epoch(model, optimizer, loader)
        check(model, held)
main()
"""


def test_what_functions_move_again_after_prepare_is_there() -> None:
    """Models and batches were moved in each turn: the function is called before as well, with another loader."""
    (file,) = migrate([decode(AGAIN.encode(), Path("train.py"))], CATALOGUE, Config()).files
    text = file.after.decode()
    assert "net = net.to(" not in text and "x.to(" not in text
    assert "alone = accelerator.prepare(alone)\n" in text
