"""Whole programs: what only served the device goes with the moves, and what was dead before, or is read, stays."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

HEAD = """\
import argparse
import os
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = DataLoader(rows, batch_size=8, shuffle=True)
print(argparse.ArgumentParser().prog, os.sep)
"""
LOOP = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
"""


def _migrated(text: str, **modules: str) -> list[str]:
    """The new texts of a script and of the modules that it imports."""
    texts = {"train": text, **modules}
    files = [decode(dedent(each).encode(), Path(f"{name}.py")) for name, each in texts.items()]
    result = migrate(files, CATALOGUE, Config())
    assert not [d for file in result.files for d in file.diagnoses if d.severity.value == "blocked"]
    return [file.after.decode() for file in result.files]


# Branches that are one now --------------------------------------------------------------------------------------------

ONE_NOW = {
    "a model is taken to the CPU where there is no CUDA": (
        "net = nn.Linear(4, 2)\nif torch.cuda.is_available():\n    net.cuda()\nelse:\n    net.cpu()\n",
        "net = nn.Linear(4, 2)\n",
    ),
    "it is assigned, and the CPU is named": (
        "net = nn.Linear(4, 2)\nif torch.cuda.is_available():\n    net = net.cuda()\nelse:\n    net = net.to('cpu')\n",
        "net = nn.Linear(4, 2)\n",
    ),
    "by an option that the accelerator follows": (
        "gpu = os.environ['GPU'] == '1'\nnet = nn.Linear(4, 2)\nbias = torch.ones(2)\nif gpu:\n    net.cuda()\n"
        "    bias = bias.cuda()\nelse:\n    net.cpu()\nprint(bias)\n",
        "accelerator = Accelerator(cpu=not gpu)\nnet = nn.Linear(4, 2)\nbias = torch.ones(2)\n"
        "bias = bias.to(accelerator.device)\naccelerator.print(bias)\n",
    ),
    "something is made of what is moved": (
        "net = nn.Linear(4, 2).cuda()\nif torch.cuda.is_available():\n    bias = abs(torch.ones(2).cuda())\nelse:\n"
        "    bias = abs(torch.ones(2))\nprint(bias)\n",
        "net = nn.Linear(4, 2)\nbias = abs(torch.ones(2).to(accelerator.device))\naccelerator.print(bias)\n",
    ),
    "something is returned": (
        "def start(n):\n    if torch.cuda.is_available():\n        return abs(torch.ones(n).cuda())\n    else:\n"
        "        return abs(torch.ones(n))\n\n\nnet = nn.Linear(4, 2).cuda()\nprint(start(2))\n",
        "def start(n):\n    return abs(torch.ones(n).to(accelerator.device))\n",
    ),
    "a model inside a wrapper that goes": (
        "net = nn.DataParallel(nn.Linear(4, 2)).cuda()\n"
        "print(net.module.weight.sum() if hasattr(net, 'module') else net.weight.sum())\n",
        "net = nn.Linear(4, 2)\naccelerator.print(net.weight.sum())\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), ONE_NOW.values(), ids=ONE_NOW)
def test_two_branches_that_do_the_same_are_one(before: str, after: str) -> None:
    (text,) = _migrated(HEAD + before + LOOP)
    assert after in text
    assert "cuda" not in text and "cpu()" not in text and "else" not in text


TWO_STILL = {
    "they did the same before": "if os.sep:\n    net.train()\nelse:\n    net.train()\n",
    "the other branch does more": (
        "if torch.cuda.is_available():\n    net.cuda()\nelse:\n    net.cpu()\n    print('slow')\n"
    ),
    "another thing is taken to the CPU": (
        "bias = torch.ones(2)\nif torch.cuda.is_available():\n    net.cuda()\n"
        "else:\n    bias = bias.cpu()\nprint(bias)\n"
    ),
    "the condition asks for something else": "if os.path.exists('x'):\n    net.cuda()\nelse:\n    net.double()\n",
}


@pytest.mark.parametrize("before", TWO_STILL.values(), ids=TWO_STILL)
def test_two_branches_that_differ_stay(before: str) -> None:
    (text,) = _migrated(HEAD + "net = nn.Linear(4, 2)\n" + before + LOOP)
    last = before.partition("else:\n")[2].splitlines()[-1]
    assert last.replace("print(", "accelerator.print(") in text and ("else:" in text or "if not" in text)


def test_a_method_that_trains_takes_nothing_to_the_cpu() -> None:
    """``fit`` of a module asked for CUDA around each move, and took all to the CPU where there was none."""
    program = """\
        import torch
        import torch.nn as nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(0)


        class Clicks(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 1)

            def forward(self, x):
                return self.lin(x)

            def fit(self, loader):
                if torch.cuda.is_available():
                    self.cuda()
                else:
                    self.cpu()
                optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
                for x, y in loader:
                    if torch.cuda.is_available():
                        x = x.cuda()
                        y = y.cuda()
                    else:
                        x = x.cpu()
                        y = y.cpu()
                    optimizer.zero_grad()
                    loss = nn.functional.mse_loss(self(x), y)
                    loss.backward()
                    optimizer.step()


        Clicks().fit(DataLoader(TensorDataset(torch.randn(64, 4), torch.rand(64, 1)), batch_size=8))
    """
    (text,) = _migrated(program)
    assert "cuda" not in text and "cpu" not in text and "else" not in text


# Names ----------------------------------------------------------------------------------------------------------------

CHOOSER = '''
def get_device():
    """The GPU, if there is one."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")
'''


def test_a_function_that_chose_the_device_goes_with_its_call() -> None:
    above = f"\n\n# which device\n# to take{CHOOSER}\n\ndef unused():\n    return 1\n\n\n"
    (text,) = _migrated(HEAD + above + "device = get_device()\nnet = nn.Linear(4, 2).to(device)\n" + LOOP)
    assert "get_device" not in text and "which device" not in text and "to take" not in text
    assert "\n\n\ndef unused():\n    return 1\n" in text, "what was dead before stays"


STAYS = {
    "it is called still": "print(get_device())\n",
    "it is handed on": "print(getattr(os, 'device', get_device))\n",
    "its name is listed": "__all__ = ['get_device']\n",
    "the script looks at its names": "print(sorted(globals()))\n",
    "it is taken by its name": "import sys\nprint(getattr(sys.modules[__name__], 'get_device'))\n",
    "the script runs code that it is given": "exec(os.environ['THEN'])\n",
}


@pytest.mark.parametrize("reads", STAYS.values(), ids=STAYS)
def test_a_function_that_something_may_read_stays(reads: str) -> None:
    (text,) = _migrated(HEAD + CHOOSER + "\n\nnet = nn.Linear(4, 2).to(get_device())\n" + reads + LOOP)
    assert "def get_device():" in text


@pytest.mark.parametrize(
    "place", [Place(ENTRY, elsewhere=True), Place(ENTRY, shared={"get_device": "demo.py"})], ids=["a test", "another"]
)
def test_a_function_of_a_script_that_another_file_imports_stays(place: Place) -> None:
    program = HEAD + CHOOSER + "\n\nnet = nn.Linear(4, 2).to(get_device())\n" + LOOP
    source = decode(program.encode(), Path("train.py"))
    (file,) = migrate([source], CATALOGUE, Config(), ModulePaths({ENTRY: place})).files
    assert file.changed and "def get_device():" in file.after.decode()


def test_two_functions_may_have_a_variable_of_the_same_name() -> None:
    """Names were counted in the whole file: a variable of one function kept that of the other."""
    functions = (
        "def first(net):\n    on_gpu = torch.cuda.is_available()\n    if on_gpu:\n        net.cuda()\n"
        "    return net\n\n\n"
        "def second():\n    on_gpu = torch.cuda.is_available()\n    return on_gpu\n\n\n"
    )
    (text,) = _migrated(HEAD + "\n\n" + functions + "net = first(nn.Linear(4, 2))\nprint(second())\n" + LOOP)
    assert "def first(net):\n    return net\n" in text
    assert "def second():\n    on_gpu = torch.cuda.is_available()\n    return on_gpu\n" in text


def test_a_variable_that_only_an_import_of_another_module_read_goes() -> None:
    """``device`` of a module was read by the script alone, by its import, and both stayed."""
    parts = """\
        import torch
        import torch.nn as nn

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        unread = 3


        def hits(net, loader):
            found = 0
            for x, y in loader:
                x, y = x.to(device), y.to(device)
                found += (net(x).argmax(1) == y).sum().item()
            return found
    """
    script = (
        HEAD
        + "from parts import device, hits\n\nnet = nn.Linear(4, 2).to(device)\n"
        + LOOP.replace("optimizer.zero_grad()", "x, y = x.to(device), y.to(device)\n    optimizer.zero_grad()")
    )
    script += "print(hits(net, DataLoader(rows, batch_size=8)))\n"
    text, module = _migrated(script, parts=parts)
    assert "device =" not in module and "unread = 3" in module and "import device" not in text


# Wrappers -------------------------------------------------------------------------------------------------------------

ANNOUNCED = {
    "their number is asked": "if torch.cuda.device_count() > 1:\n",
    "it has a name": "many = torch.cuda.device_count()\nif many > 1:\n",
    "an option is asked, too": "if os.sep and torch.cuda.is_available() and torch.cuda.device_count() > 1:\n",
}


@pytest.mark.parametrize("asks", ANNOUNCED.values(), ids=ANNOUNCED)
@pytest.mark.parametrize("other", ["", "else:\n    print('one GPU')\n"], ids=["alone", "or one"])
def test_what_is_said_of_a_wrapper_goes_with_it(asks: str, other: str) -> None:
    """Each process has one GPU: it would be untrue."""
    told = f"{asks}    print('all the GPUs')\n    # dim 0: [30, ...] is [10, ...] on 3 of them\n"
    (text,) = _migrated(
        HEAD + f"net = nn.Linear(4, 2)\n{told}    net = nn.DataParallel(net)\n{other}net.cuda()\n" + LOOP
    )
    assert "GPU" not in text and "of them" not in text and "cuda" not in text


def test_what_an_option_says_and_what_else_is_done_stays() -> None:
    wraps = "print('all the GPUs')\n    net = nn.DataParallel(net)\n"
    (by_option,) = _migrated(HEAD + f"net = nn.Linear(4, 2)\nif os.sep:\n    {wraps}net.cuda()\n" + LOOP)
    assert "if os.sep:\n    accelerator.print('all the GPUs')\n" in by_option
    asks = "if torch.cuda.device_count() > 1:\n    torch.set_num_threads(2)\n    "
    (does_more,) = _migrated(HEAD + f"net = nn.Linear(4, 2)\n{asks}{wraps}net.cuda()\n" + LOOP)
    assert "    torch.set_num_threads(2)\n    accelerator.print('all the GPUs')\n" in does_more


# Comments -------------------------------------------------------------------------------------------------------------

COMMENTS = {
    "of the shape": ("y = y.cuda()  # shape: [B]", False),
    "of the shape alone": ("y = y.cuda()  # (batch,)", False),
    "of torch's size": ("y = y.cuda()  # torch.Size([B, 1])", False),
    "of shape and type": ("y = y.cuda()  # [B, 1] long", False),
    "of the GPU, in another language": ("y = y.cuda()  # 将标签放到GPU上", False),
    "in another language": ("y = y.cuda()  # 학습시 실행", False),
    "of a plan, in another language": ("y = y.cuda()  # TODO 나중에", True),
    "of the GPU": ("y = y.cuda()  # onto the gpu", False),
    "of a plan": ("y = y.cuda()  # TODO: weigh the rare ones", True),
    "of what it is": ("y = y.cuda()  # the labels of the animals", False),
    "of what it is, with a number": ("y = y.cuda()  # the class, 0 or 1", True),
    "of what is elsewhere": ("y = y.cuda()  # standardised in read_rows", True),
    "of its own names": ("y = y.cuda()  # y is read by all", False),
    "of other code": ("y = y.cuda()  # rare = y.float()", True),
}


@pytest.mark.parametrize(("line", "stays"), COMMENTS.values(), ids=COMMENTS)
def test_a_comment_beside_a_move(line: str, stays: bool) -> None:
    loop = LOOP.replace("optimizer.zero_grad()", f"{line}\n    optimizer.zero_grad()")
    (text,) = _migrated(HEAD + "net = nn.Linear(4, 2).cuda()\n" + loop)
    assert "y = y" not in text and (line.partition("# ")[2] in text) is stays


OF_A_CAST = {
    "above": ("# Transfer the batch to the GPU\nx = x.float().cuda()\n", False),
    "on the line": ("x = x.float().cuda()  # move to device, e.g. GPU\n", False),
    "above two": ("# to the device\nx = x.float().cuda()\ny = y.long().cuda()\n", False),
    "above one that still moves": ("# to the device\nx = x.float().cuda()\nx = x + torch.ones(4).cuda()\n", True),
    "on more than the move": ("# to the device, as floats\nx = x.float().cuda()\n", True),
}


@pytest.mark.parametrize(("step", "stays"), OF_A_CAST.values(), ids=OF_A_CAST)
def test_a_comment_of_a_move_that_is_no_move_any_more(step: str, stays: bool) -> None:
    """It was above a cast, and spoke of a transfer to the GPU."""
    indented = step.rstrip().replace("\n", "\n    ")
    loop = LOOP.replace("    optimizer.zero_grad()", f"    {indented}\n    optimizer.zero_grad()")
    (text,) = _migrated(HEAD + "net = nn.Linear(4, 2).cuda()\n" + loop)
    comment = step[step.index("# ") :].partition("\n")[0]
    assert "x = x.float()\n" in text and (comment in text) is stays


@pytest.mark.parametrize(
    ("comment", "stays"),
    [("'cuda' if torch.cuda.is_available() else 'cpu'", False), ("30 images a second", True)],
    ids=["another choice", "a sentence"],
)
def test_another_choice_of_the_device_goes_with_it(comment: str, stays: bool) -> None:
    made = f"device = 'cpu'  # {comment}\nnet = nn.Linear(4, 2).to(device)\n"
    (text,) = _migrated(HEAD + made + LOOP)
    assert "device = 'cpu'" not in text and (comment in text) is stays


def test_the_comments_of_a_condition_that_is_opened_stay() -> None:
    """What stood above the first move inside it was lost."""
    asks = "# even so far\nif torch.cuda.is_available():  # needed there\n    # rare ones get more\n"
    moves = "weight = torch.ones(2)\n" + asks + "    weight = weight.cuda()  # two\nprint(weight)\n"
    (text,) = _migrated(HEAD + "net = nn.Linear(4, 2).cuda()\n" + moves + LOOP)
    kept = "# even so far\n# needed there\n# rare ones get more\nweight = weight.to(accelerator.device)  # two\n"
    assert kept in text


# Moves ----------------------------------------------------------------------------------------------------------------


def test_no_cuda_is_left_beside_the_accelerators_device() -> None:
    """Half of the moves of a function stayed: of a tensor of which no role is known, in the middle of an expression."""
    program = """\
        def generate(net, words):
            seed = torch.tensor(words)
            seed = seed.cuda().unsqueeze(0)
            for _ in range(3):
                word = torch.tensor([1.0, 2.0, 3.0, 4.0])
                print(net(word.cuda().unsqueeze(0)).argmax(-1), seed)


    """
    after = "net = nn.Linear(4, 2).cuda()\n" + LOOP + "generate(net, [1, 2])\n"
    (text,) = _migrated(HEAD + "\n\n" + dedent(program) + after)
    assert "cuda" not in text
    assert "seed = seed.to(accelerator.device).unsqueeze(0)\n" in text
    assert "net(word.to(accelerator.device).unsqueeze(0))" in text


def test_an_object_of_the_scripts_own_has_a_method_of_that_name() -> None:
    own = "class Toolkit:\n    def cuda(self):\n        return self\n\n\n"
    (text,) = _migrated(HEAD + "\n\n" + own + "print(Toolkit().cuda())\nnet = nn.Linear(4, 2).cuda()\n" + LOOP)
    assert "Toolkit().cuda()" in text and "Linear(4, 2)\n" in text


def test_a_storage_stays_as_it_is() -> None:
    """Its ``to`` takes the device by keyword alone."""
    loads = "state = torch.load('net.pt', map_location=lambda storage, _: storage.cuda())\nnet.load_state_dict(state)\n"
    (text,) = _migrated(HEAD + "net = nn.Linear(4, 2).cuda()\n" + loads + LOOP)
    assert "storage.to(" not in text
