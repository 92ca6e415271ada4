"""Functions of a script that a program beside it imports: they go on working there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Project = Callable[..., tuple[dict[str, str], list[str]]]

TRAIN = """\
import torch
from torch.utils.data import DataLoader
from data import rows

place = torch.device("cuda" if torch.cuda.is_available() else "cpu")

def build():
    net = torch.nn.Linear(4, 1)
    net.to(place)
    return net

def fit(loader, net, optimizer):
    for x in loader:
        x = x.to({aim})
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()

def main():
    net = build()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    fit(DataLoader(rows, batch_size=8), net, optimizer)

if __name__ == "__main__":
    main()
"""
OTHER = """\
import torch
from data import others
from torch.utils.data import DataLoader
from train import fit{names}

net = torch.nn.Linear(4, 1).to({place})
fit(DataLoader(others, batch_size=4), net, torch.optim.Adam(net.parameters()))
"""


@pytest.mark.parametrize(("aim", "kept"), [("place", "place"), ('"cuda:0"', "accelerator.device")])
def test_the_moves_of_a_function_stay_that_another_program_calls(aim: str, kept: str, trained_project: Project) -> None:
    """There is no prepared loader there: its batches need the move."""
    train = TRAIN.format(aim=aim)
    after, findings = trained_project(train=train, other=OTHER.format(names=", place", place="place"))
    assert "def fit(loader, net, optimizer):" in after["train"] and f"x = x.to({kept})" in after["train"]
    assert "net.to(" not in after["train"], "nobody else builds the model"
    assert findings == []
    after, _ = trained_project(train=train, other="print()\n")
    assert "x.to(" not in after["train"]


def test_a_model_is_still_moved_for_another_program(trained_project: Project) -> None:
    other = "from data import others\nfrom train import build\nprint(build()(others))\n"
    after, _ = trained_project(train=TRAIN.format(aim="place"), other=other)
    assert "net.to(accelerator.device)" in after["train"] and "x.to(" not in after["train"]


LOOP = """\
import torch
from torch.utils.data import DataLoader

class Loop:
    def __init__(self, net, rows):
        self.place = "cuda" if torch.cuda.is_available() else "cpu"
        self.net, self.rows = net.to(self.place), rows

    def run(self):
        loader = DataLoader(self.rows, batch_size=8)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for x in loader:
            x = x.to(self.place)
            optimizer.zero_grad()
            self.net(x).mean().backward()
            optimizer.step()
"""
RUNS = "\nif __name__ == '__main__':\n    Loop(torch.nn.Linear(4, 1), rows).run()\n"
OTHER_RUN = "import torch\nfrom data import others\nfrom train import Loop\nLoop(torch.nn.Linear(4, 1), others).run()\n"


def test_what_prepares_in_the_lent_code_itself_prepares_for_all(trained_project: Project) -> None:
    after, _ = trained_project(train=f"from data import rows\n{LOOP}{RUNS}", other=OTHER_RUN)
    assert "accelerator.prepare(" in after["train"] and "x = x.to(" not in after["train"]


GUARDED = """\
import torch
from data import rows
from torch.utils.data import DataLoader

def noisy(x):
    noise = torch.randn(x.shape).cuda()
    print("drawn")
    return x + noise

def run_epoch(net, loader, optimizer):
    for x in loader:
        optimizer.zero_grad()
        net(noisy(x.cuda())).mean().backward()
        optimizer.step()
    print("an epoch")

if __name__ == "__main__":
    net = torch.nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    {runs}
"""
INLINE = (
    "for x in DataLoader(rows, batch_size=8):\n        optimizer.zero_grad()\n        "
    "net(noisy(x.cuda())).mean().backward()\n        optimizer.step()"
)


def test_nothing_that_is_made_below_the_guard_is_read_where_the_file_is_imported(trained_project: Project) -> None:
    """The other file had a NameError: the accelerator is made only where the script itself runs."""
    train = GUARDED.format(runs=INLINE)
    other = "from data import others\nfrom train import noisy\nprint(noisy(others))\n"
    after, findings = trained_project(train=train, other=other)
    assert 'cuda()\n    PartialState().print("drawn")\n    return' in after["train"] and findings == []
    after, _ = trained_project(train=train, other="print()\n")
    assert 'to(accelerator.device)\n    accelerator.print("drawn")\n    return' in after["train"]


def test_what_trains_below_the_guard_and_elsewhere_may_be_given_the_accelerator(trained_project: Project) -> None:
    train = GUARDED.format(runs="run_epoch(net, DataLoader(rows, batch_size=8), optimizer)")
    other = OTHER.format(names=", rows", place='"cuda"').replace("fit", "run_epoch")
    after, findings = trained_project(train=train, other=other.replace(", rows", ""))
    assert "def run_epoch(net, loader, optimizer, accelerator=None):\n    if accelerator is None:" in after["train"]
    assert "optimizer, accelerator=accelerator)" in after["train"] and findings == []


FOLLOWING = """\
import torch
from data import rows
from torch.utils.data import DataLoader

scales = torch.linspace(0.0, 1.0, 10)

def scaled(x, steps):
    return x * scales.gather(0, steps.cpu()).reshape(-1, 1).to(steps.device)

if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in DataLoader(rows, batch_size=8):
        x = x.to(device)
        steps = {steps}
        optimizer.zero_grad()
        net(scaled(x, steps)).mean().backward()
        optimizer.step()
"""
STEPS = [
    "torch.randint(0, 10, (len(x),), device=device).long()",
    "torch.zeros(len(x), dtype=torch.long, device=device)",
    "(10 * torch.rand(len(x), device=device)).floor().long()",
]


@pytest.mark.parametrize("steps", STEPS)
def test_what_moves_to_the_device_of_a_tensor_stays(steps: str, trained_project: Project) -> None:
    """Wherever that tensor is, on the accelerator's device or not: nothing has to change."""
    after, findings = trained_project(train=FOLLOWING.format(steps=steps), other="print()\n")
    assert ".to(steps.device)\n" in after["train"] and findings == []


JUDGED = """\
import torch
from data import rows
from torch.utils.data import DataLoader

def judge(net, loader, device):
    far = 0.0
    for x in loader:
        far += net(x.to(device)).abs().sum().item()
    print(far / len(loader.dataset))

def fit(loader, device):
    net = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in loader:
        optimizer.zero_grad()
        net(x.to(device)).mean().backward()
        optimizer.step()
    return net

if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    judge(fit(DataLoader(rows, batch_size=8), device), DataLoader(rows, batch_size=8), device)
"""


def test_what_the_script_itself_calls_keeps_its_parameters_for_others(trained_project: Project) -> None:
    """The accelerator took the place of the device, and the other file handed over its device for it."""
    other = "from data import others\nfrom train import judge\njudge(abs, others, 'cpu')\n"
    after, findings = trained_project(train=JUDGED, other=other)
    assert "def judge(net, loader, device" in after["train"] and findings == []
    after, _ = trained_project(train=JUDGED, other="print()\n")
    assert "def judge(net, loader, accelerator):" in after["train"]


TRAINS = """\
import torch
from torch.utils.data import DataLoader
from data import rows

def train(net, rows, epochs, device=torch.device("cpu"), log=None):
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x in DataLoader(rows, batch_size=8):
            optimizer.zero_grad()
            net(x.to(device)).mean().backward()
            optimizer.step()

if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train(torch.nn.Linear(4, 1), rows, 2, device=device)
"""


def test_a_function_that_trains_by_itself_keeps_its_parameters(trained_project: Project) -> None:
    """It makes the optimizer: the other program that called it with a device failed with a TypeError."""
    other = "import torch\nfrom data import others\nfrom train import train\n"
    call = "train(torch.nn.Linear(4, 1), others, 3, device=torch.device('cpu'))\n"
    after, findings = trained_project(train=TRAINS, other=other + call)
    head = 'def train(net, rows, epochs, device=torch.device("cpu"), log=None, accelerator=None):\n'
    assert f"{head}    if accelerator is None:\n        accelerator = Accelerator()\n" in after["train"]
    assert "rows, 2, device=device, accelerator=accelerator)" in after["train"] and findings == []
    after, _ = trained_project(train=TRAINS, other="print()\n")
    assert "def train(net, rows, epochs, accelerator, log=None):\n" in after["train"]


WHOLE = """\
import torch
from torch.utils.data import DataLoader
from data import rows

def one_epoch(net, loader, optimizer):
    for x in loader:
        optimizer.zero_grad()
        net(x{move}).mean().backward()
        optimizer.step()

def fit({device}epochs=2):
    net = torch.nn.Linear(4, 1){move}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(rows, batch_size=8)
    for _ in range(epochs):
        one_epoch(net, loader, optimizer)
    return net

def main():
{chosen}    net = fit({given})
    print(net.weight.sum())

if __name__ == "__main__":
    main()
"""
ASKS = "from train import fit\n\ndef answer():\n    return fit({given}1)\n"


def test_a_function_that_makes_all_that_trains_creates_the_accelerator_for_whoever_calls_it(
    trained_project: Project,
) -> None:
    """Its signature stays, and what it calls is called by nobody else: it was refused."""
    train = WHOLE.format(move="", device="", chosen="", given="")
    after, findings = trained_project(train=train, service=ASKS.format(given=""))
    assert "def fit(epochs=2):" in after["train"] and "    accelerator = Accelerator()\n" in after["train"]
    assert "def one_epoch(net, loader, optimizer, accelerator):" in after["train"]
    assert "one_epoch(net, loader, optimizer, accelerator)\n" in after["train"]
    assert "    PartialState().print(net.weight.sum())\n" in after["train"]
    assert findings == []


def test_it_is_refused_where_the_accelerator_comes_to_it_from_above(trained_project: Project) -> None:
    """The device is chosen by its callers, so that the other one would have to create an accelerator, too."""
    chosen = '    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    train = WHOLE.format(move=".to(device)", device="device, ", chosen=chosen, given="device")
    train = train.replace("(net, loader, optimizer)", "(net, loader, optimizer, device)")
    after, findings = trained_project(train=train, service=ASKS.format(given='"cpu", '))
    assert after["train"] == train
    assert set(findings) == {"shared-module"}
