"""The rule `device_placement`: which moves go, and which follow the accelerator's device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

Lines = Callable[..., tuple[list[str], list[str], list[str]]]

NOOPS: dict[str, dict[str, Any]] = {
    "a change of the dtype": {"step": "z = x.to(torch.float64)"},
    "a change of the dtype by keyword": {"step": "z = x.to(dtype=torch.float64)"},
    "like another tensor": {"step": "z = torch.ones(3).to(x)"},
    "to the CPU": {"step": "shown = loss.detach().cpu()"},
    "to the CPU by name": {"step": "shown = loss.detach().to('cpu')"},
    "a method called to of something else": {"top": "address.to('Berlin')"},
    "a method called cuda of something else": {"top": "flags = toolkit.cuda(12)"},
    "the name in a string": {"top": "note = 'x.to(device)'"},
    "the meta device": {"top": "shape = torch.empty(3).to('meta')"},
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    assert lines(**parts) == ([], [], [])


@pytest.mark.unchanged
def test_a_program_that_does_not_train_is_left_alone(check_noop: Callable[..., None]) -> None:
    check_noop(
        """
        import torch
        device = torch.device("cuda")
        model = torch.nn.Linear(2, 2).to(device)
        print(model(torch.ones(1, 2).to(device)))
        """
    )


DEVICE = "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')"

MOVES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "a model, in a statement": ({"built": "model.to(device)"}, ["model.to(device)"], []),
    "a model, assigned": ({"built": "model = model.to(device)"}, ["model = model.to(device)"], []),
    "a model, the older way": ({"built": "model.cuda()"}, ["model.cuda()"], []),
    "a model, guarded": (
        {"built": "if torch.cuda.is_available():\n    model.cuda()"},
        ["if torch.cuda.is_available():", "    model.cuda()"],
        [],
    ),
    "a batch, to a GPU by a number that is added": (
        {"step": "x = x.to('cuda:' + str(size))"},
        ["        x = x.to('cuda:' + str(size))"],
        [],
    ),
    "a batch, to a GPU by a number that is filled in": (
        {"step": "x = x.to('cuda:{}'.format(size))"},
        ["        x = x.to('cuda:{}'.format(size))"],
        [],
    ),
    "a model, to a GPU by a number that is filled in": (
        {"built": "model = model.to('cuda:%d' % size)"},
        ["model = model.to('cuda:%d' % size)"],
        [],
    ),
    "a batch": ({"step": "x = x.to(device)"}, ["        x = x.to(device)"], []),
    "all of a batch": (
        {"step": "x, y = x.to(device), y.to(device)"},
        ["        x, y = x.to(device), y.to(device)"],
        [],
    ),
    "a batch, behind another call": (
        {"step": "z = x.view(len(x), -1).to(device)"},
        ["        z = x.view(len(x), -1).to(device)"],
        ["        z = x.view(len(x), -1)"],
    ),
    "a batch and its dtype": (
        {"step": "z = x.to(device, dtype=torch.float64)"},
        ["        z = x.to(device, dtype=torch.float64)"],
        ["        z = x.to(dtype=torch.float64)"],
    ),
    "a fresh tensor follows": (
        {"step": "noise = torch.randn(3).to(device)"},
        ["        noise = torch.randn(3).to(device)"],
        ["        noise = torch.randn(3).to(accelerator.device)"],
    ),
    "a fresh tensor, the older way": (
        {"step": "noise = torch.randn(3).cuda()"},
        ["        noise = torch.randn(3).cuda()"],
        ["        noise = torch.randn(3).to(accelerator.device)"],
    ),
    "a tensor made on the device": (
        {"step": "noise = torch.randn(3, device=device)"},
        ["        noise = torch.randn(3, device=device)"],
        ["        noise = torch.randn(3, device=accelerator.device)"],
    ),
    "a loss without state": (
        {"built": "criterion = torch.nn.CrossEntropyLoss().to(device)"},
        ["criterion = torch.nn.CrossEntropyLoss().to(device)"],
        ["criterion = torch.nn.CrossEntropyLoss()"],
    ),
    "a loss with weights keeps its move": (
        {"built": "criterion = torch.nn.CrossEntropyLoss(weight=balance).to(device)"},
        ["criterion = torch.nn.CrossEntropyLoss(weight=balance).to(device)"],
        ["criterion = torch.nn.CrossEntropyLoss(weight=balance).to(accelerator.device)"],
    ),
}

NEEDED_AT_ONCE = {
    "a forward": "shape = model(torch.zeros(1, 8)).shape",
    "a forward in a function": "def probe(net):\n    return net(torch.zeros(1, 8))\nshape = probe(model)",
    "a copy": "import copy\nteacher = copy.deepcopy(model)",
    "a copy that an object keeps": (
        "class Average:\n    def __init__(self, net):\n        self.net = copy.deepcopy(net)\naverage = Average(model)"
    ),
    "copies of the parameters that an object is given": (
        "class Average:\n    def __init__(self, parameters):\n"
        "        self.shadow = [p.clone().detach() for p in parameters]\naverage = Average(model.parameters())"
    ),
    "copies of the parameters in a variable": "shadow = [p.detach().clone() for p in model.parameters()]",
    "parameters for code that was not seen": (
        "from torch_ema import ExponentialMovingAverage\naverage = ExponentialMovingAverage(model.parameters(), 0.9)"
    ),
    "the average of torch": "average = torch.optim.swa_utils.AveragedModel(model)",
    "code that was not seen": "from thop import profile\nflops = profile(model, (torch.zeros(1, 8),))",
    "a method that was not seen": "shape = model.describe()",
}


QUESTIONS = {
    "its size": "size = sum(p.numel() for p in model.parameters())",
    "its state": "state = model.state_dict()",
    "its text": "print(model)",
    "in a function": "def count(net):\n    return len(list(net.parameters()))\nsize = count(model)",
    "new weights": "torch.nn.init.zeros_(model.weight)\nmodel.apply(print)",
    "the parameters of several": "import itertools\nall_of_them = itertools.chain(model.parameters(), [])",
    "a list of those to train": "train = []\nfor name, p in model.named_parameters():\n    train.append(p)",
}

BEFORE_THE_OPTIMIZER = """\
import copy
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(8, 2).to("cuda")
{use}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4):
    loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("use", NEEDED_AT_ONCE.values(), ids=NEEDED_AT_ONCE)
def test_a_model_that_is_needed_before_prepare_keeps_its_move(use: str, migrated: Callable[[str], str]) -> None:
    assert "Linear(8, 2).to(accelerator.device)" in migrated(BEFORE_THE_OPTIMIZER.format(use=use))


@pytest.mark.parametrize("use", QUESTIONS.values(), ids=QUESTIONS)
def test_a_model_that_only_answers_questions_before_prepare_loses_its_move(
    use: str, migrated: Callable[[str], str]
) -> None:
    assert "model = torch.nn.Linear(8, 2)\n" in migrated(BEFORE_THE_OPTIMIZER.format(use=use))


@pytest.mark.hazard("D1", "D2", "D3", "D6", "P3")
@pytest.mark.parametrize(("parts", "gone", "come"), MOVES.values(), ids=MOVES)
def test_moved_by_the_accelerator(parts: dict[str, Any], gone: list[str], come: list[str], lines: Lines) -> None:
    assert lines(top=DEVICE, **parts) == ([DEVICE, *gone], come, [])


def test_a_comment_of_the_move_goes_and_any_other_stays(lines: Lines) -> None:
    step = "# move to the device\nx = x.to(device)\n# the first is the biggest\nx, y = x.to(device), y.to(device)"
    gone, come, _ = lines(top=DEVICE, step=f"{step}\nfirst = x[0]")
    assert "        # move to the device" in gone
    assert "        # the first is the biggest" not in gone
    assert come == []


PAIRS = """\
import torch
from torch.utils.data import DataLoader

names = ["x", "y"]
{device}
model = torch.nn.Linear(2, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(rows, batch_size=4)
for batch in loader:
    parts = {{k: v.to(device) for k, v in zip(names, batch)}}
    loss = torch.nn.functional.mse_loss(model(parts["x"]), parts["y"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_dict_that_is_made_of_a_batch_and_names_is_still_made(migrated: Callable[[str], str]) -> None:
    text = migrated(PAIRS.format(device='device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'))
    assert "    parts = {k: v for k, v in zip(names, batch)}\n" in text


def test_what_else_a_choice_of_the_device_sets_is_still_set(migrated: Callable[[str], str]) -> None:
    chosen = 'device = torch.device("cuda")\nelse:\n    device = torch.device("cpu")\n    workers = 0'
    text = migrated(PAIRS.format(device=f"if torch.cuda.is_available():\n    {chosen}"))
    assert "if not torch.cuda.is_available():\n    workers = 0\n" in text


FLAG = "use = torch.cuda.is_available()"
MASKED = "mask = torch.ones(2)"
OPENED = {
    "a block": (f"{MASKED}\nif use:\n    mask = mask.cuda()", "mask = mask.to(accelerator.device)"),
    "a line": (f"{MASKED}\nif use: mask = mask.cuda()", "mask = mask.to(accelerator.device)"),
    "with the model's": (
        f"{MASKED}\nif use:\n    model.cuda()\n    mask = mask.cuda()",
        "mask = mask.to(accelerator.device)",
    ),
    "asked in place": (
        f"{MASKED}\nif torch.cuda.is_available():\n    mask = mask.cuda()",
        "mask = mask.to(accelerator.device)",
    ),
    "two at once": (
        "a, b = torch.ones(2), torch.ones(2)\nif use:\n    a, b = a.cuda(), b.cuda()",
        "a, b = a.to(accelerator.device), b.to(accelerator.device)",
    ),
    "either way": (f"{MASKED}\nmask = mask.cuda() if use else mask", "mask = mask.to(accelerator.device)"),
    "in two branches": (
        "if use:\n    mask = torch.ones(2).cuda()\nelse:\n    mask = torch.ones(2)",
        "mask = torch.ones(2).to(accelerator.device)",
    ),
    "a flag that is handed on": (
        f"def placed(t, on):\n    if on:\n        t = t.cuda()\n    return t + 1\n{MASKED}\nmask = placed(mask, use)",
        "    t = t.to(accelerator.device)",
    ),
}


@pytest.mark.parametrize(("built", "moved"), OPENED.values(), ids=OPENED)
def test_a_question_for_cuda_that_holds_nothing_but_moves_goes(
    built: str, moved: str, migrated: Callable[[str], str]
) -> None:
    """With another accelerator the batches are there, and CUDA is not."""
    after = migrated(f"import torch\n{GUARDED_TOP}\n{FLAG}\n{built}\n{GUARDED_LOOP}").splitlines()
    assert moved in after
    assert not any(line.strip().startswith(("if use", "if on", "if torch.cuda")) for line in after)


MORE = {
    "other work": "if use:\n    torch.backends.cudnn.benchmark = True\n    mask = mask.cuda()",
    "another question": "if use and len(data) > 3:\n    mask = mask.cuda()",
    "something else otherwise": "if use:\n    mask = mask.cuda()\nelse:\n    mask = mask + 1",
}


@pytest.mark.parametrize("built", MORE.values(), ids=MORE)
def test_one_that_holds_more_is_named(built: str) -> None:
    text = f"import torch\n{GUARDED_TOP}\n{FLAG}\n{MASKED}\n{built}\n{GUARDED_LOOP}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert built.replace("mask.cuda()", "mask.to(accelerator.device)") in file.after.decode()
    (found,) = [d for d in file.diagnoses if d.id == "device_placement"]
    asked = "use and len(data) > 3" if "len" in built else "use"
    assert found.message == (
        f"`mask.cuda()` goes to the accelerator's device, but only where `{asked}` finds CUDA: with another "
        "accelerator (a Mac) this stays on the CPU, and the batches do not"
    )


OPTIONS = {
    "one that the accelerator follows": ("", True),
    "one of two, of which it follows none": ("\nother_gpu = len(sys.argv) > 2\nif other_gpu:\n    model.cuda()", False),
}


@pytest.mark.parametrize(("more", "opened"), OPTIONS.values(), ids=OPTIONS)
def test_an_option_of_the_user(more: str, opened: bool) -> None:
    """Where the accelerator uses the device that it asks for, the move needs no question."""
    built = f"import sys\nwish_gpu = len(sys.argv) > 1\nif wish_gpu:\n    mask = mask.cuda(){more}"
    text = f"import torch\n{GUARDED_TOP}\n{MASKED}\n{built}\n{GUARDED_LOOP}"
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    after = file.after.decode()
    assert ("if wish_gpu:\n    mask = mask.to(accelerator.device)" in after) is not opened
    assert ("Accelerator(cpu=not wish_gpu)\n" in after and "\nmask = mask.to(accelerator.device)" in after) is opened
    assert [d.id for d in file.diagnoses if d.id == "device_placement"] == []


GUARDED_TOP = "data = [(torch.ones(8), torch.ones(2))] * 8\nmodel = torch.nn.Linear(8, 2)"
GUARDED_LOOP = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


OWN_ACCELERATOR = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator

{top}

class Shifted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x):
        if torch.cuda.is_available():
            place = "cuda:0"
        else:
            place = "cpu"
        return self.layer(x) + torch.zeros(1, device=place)


def main():
    accelerator = Accelerator()
    model = Shifted()
    loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y) + torch.zeros(1, device=device)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""


def test_a_script_with_its_own_accelerator_does_not_name_one_gpu(migrated: Callable[[str], str]) -> None:
    top = "device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')"
    after = migrated(OWN_ACCELERATOR.format(top=top))
    assert "cuda:0" not in after and after.count("cuda") > 2


GIVEN = """\
import torch
from torch.utils.data import DataLoader

def train(images):
    model = torch.nn.Linear(8, 2)
    print(model(images).shape)
    model.to(device)
    loader = DataLoader(rows, batch_size=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

device = "cuda" if torch.cuda.is_available() else "cpu"
for images, labels in DataLoader(rows, batch_size=4):
    break
train(images)
"""


def test_what_a_parameter_was_given_is_no_longer_in_it_once_a_loop_has_set_it(migrated: Callable[[str], str]) -> None:
    assert "images, labels = images" not in migrated(GIVEN)
