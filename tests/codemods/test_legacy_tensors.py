"""The rule `legacy_tensors`: the tensor types of old, by what their argument says they do."""

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

CUDA = "cuda = torch.cuda.is_available()"
TENSOR = f"{CUDA}\nTensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor"
BRANCHES = f"{CUDA}\nif cuda:\n    Tensor = torch.cuda.FloatTensor\nelse:\n    Tensor = torch.FloatTensor"
NUMPY = "import numpy as np"

NOOPS: dict[str, dict[str, Any]] = {
    "a dtype": {"step": "z = x.type(torch.float64)"},
    "a question": {"step": "kind = x.type()"},
    "a tensor of the CPU, and nothing else": {"top": "table = torch.FloatTensor(3, 4)"},
    "back to the CPU, behind a move": {
        "top": "device = 'cuda'",
        "step": "x = x.to(device)\nshown = x.type(torch.FloatTensor)",
    },
    "a class of the script's own": {
        "top": "class FloatTensor:\n    pass\nTensor = FloatTensor",
        "step": "z = Tensor(3)",
    },
    "a method called type of something else": {"top": "keyboard.type('hello')"},
    "the name in a string": {"top": "note = 'torch.cuda.FloatTensor(3)'"},
}


@pytest.mark.parametrize("parts", NOOPS.values(), ids=NOOPS)
def test_left_alone(parts: dict[str, Any], lines: Lines) -> None:
    gone, come, findings = lines(**parts)
    assert [line for line in (*gone, *come) if "ensor" in line or "type(" in line] == []
    assert "legacy_tensors" not in findings


USES: dict[str, tuple[str, str]] = {
    "room by two numbers": (
        "z = Tensor(len(x), 1).fill_(1.0)",
        "z = torch.empty(len(x), 1, device=accelerator.device).fill_(1.0)",
    ),
    "room by one number": ("z = Tensor(x.size(0))", "z = torch.empty(x.size(0), device=accelerator.device)"),
    "room by a shape": ("z = Tensor(*x.shape)", "z = torch.empty(*x.shape, device=accelerator.device)"),
    "room by a size": ("z = Tensor(x.size())", "z = torch.empty(x.size(), device=accelerator.device)"),
    "room for nothing": ("z = Tensor()", "z = torch.empty(0, device=accelerator.device)"),
    "an array": (
        "z = Tensor(np.random.normal(0, 1, (8, 2)))",
        "z = torch.as_tensor(np.random.normal(0, 1, (8, 2)), dtype=torch.float32, device=accelerator.device)",
    ),
    "a list": (
        "z = Tensor([1, 2])",
        "z = torch.as_tensor([1, 2], dtype=torch.float32, device=accelerator.device)",
    ),
    "an array in a sum": (
        "z = Tensor(0.5 * np.ones(8))",
        "z = torch.as_tensor(0.5 * np.ones(8), dtype=torch.float32, device=accelerator.device)",
    ),
    "a batch's dtype": ("x = x.type(Tensor)", "x = x.float()"),
    "a batch's dtype, by the type's name": ("x = x.type('torch.cuda.FloatTensor')", "x = x.float()"),
    "a batch's dtype, on the CPU": ("y = y.type(torch.LongTensor)", "y = y.long()"),
    "something else's dtype": (
        "z = torch.ones(3).type(Tensor)",
        "z = torch.ones(3).to(accelerator.device, torch.float32)",
    ),
    "integers": (
        "z = torch.cuda.LongTensor(8).fill_(0)",
        "z = torch.empty(8, dtype=torch.int64, device=accelerator.device).fill_(0)",
    ),
}


@pytest.mark.hazard("D7")
@pytest.mark.parametrize("top", [TENSOR, BRANCHES], ids=["ternary", "branches"])
@pytest.mark.parametrize(("before", "after"), USES.values(), ids=USES)
def test_says_what_it_means(before: str, after: str, top: str, lines: Lines) -> None:
    gone, come, findings = lines(imports=NUMPY, top=top, step=f"{before}\nw = Tensor(2, 2)")
    assert [line.strip() for line in come if "w = " not in line] == [after]
    assert {line.strip() for line in gone} >= {before.strip(), "cuda = torch.cuda.is_available()"}
    assert [f for f in findings if f != "same-noise"] == []


def test_through_variables_and_functions(lines: Lines) -> None:
    built = """
        def one_hot(y, n):
            rows = np.zeros((len(y), n))
            rows[range(len(y)), y] = 1.0
            return Tensor(rows)
        def noise(n):
            return Tensor(n).normal_()
    """
    step = "labels = np.arange(8)\nlabels = Tensor(labels)\nhot = one_hot(np.arange(4), 4)\nz = noise(len(x))"
    _, come, findings = lines(imports=NUMPY, top=TENSOR, built=built, step=step)
    assert [line.strip() for line in come] == [
        "return torch.as_tensor(rows, dtype=torch.float32, device=accelerator.device)",
        "return torch.empty(n, device=accelerator.device).normal_()",
        "labels = torch.as_tensor(labels, dtype=torch.float32, device=accelerator.device)",
    ]
    assert findings == []


def test_a_model_is_float_already(lines: Lines) -> None:
    _, come, _ = lines(top="dtype = torch.cuda.FloatTensor", built="model.type(dtype)\nmodel = model.type(dtype)")
    assert not any("dtype" in line or "type(" in line for line in come)


@pytest.mark.parametrize("size", ["n", "args.size", "f(x)"])
def test_number_or_values_is_not_guessed(size: str, lines: Lines) -> None:
    gone, come, findings = lines(imports="from settings import n, args, f", top=TENSOR, step=f"z = Tensor({size})")
    assert (gone, come, findings) == ([], [], ["legacy_tensors"])


def test_torch_by_another_name(after: Callable[..., str]) -> None:
    text = after(imports="import torch as T", step="z = T.cuda.FloatTensor(3, 4)")
    assert "z = torch.empty(3, 4, device=accelerator.device)" in text


BEGUN = """\
import torch
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator

accelerator = Accelerator()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(8, 1).to(device)
loader = DataLoader(data, batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x = x.type(torch.FloatTensor).to(device)
    loss = torch.nn.functional.mse_loss(model(x), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_an_accelerator_that_prepares_nothing_yet_has_moved_nothing() -> None:
    """A remedy says "create the accelerator first": what the loader then yields on the device went back to the CPU."""
    (file,) = migrate([decode(BEGUN.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "    x = x.float()\n" in file.after.decode()


def test_an_accelerator_that_prepares_each_thing_by_its_own_method_has_moved_it() -> None:
    text = BEGUN.replace(
        "loader = DataLoader(data, batch_size=8)",
        "model = accelerator.prepare_model(model)\nloader = accelerator.prepare_data_loader(DataLoader(data))",
    )
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert "x.type(torch.FloatTensor)" in file.after.decode()


FIELDS = """\
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self):
        {fields}
        self.x = torch.cuda.FloatTensor(self.x)
        print("ready")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, n):
        return self.x[n], self.x[n].sum().long()

def main():
    loader = DataLoader(Rows(), batch_size=8)
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

main()
"""


@pytest.mark.parametrize(
    ("fields", "known"),
    [
        ("self.x = read()[:, :-1]", True),
        ("self.x = read()[:, :-1]\n        self.x = self.x.reshape(64, 4)", True),
        ("self.x = []\n        self.x.append(read())\n        self.x = np.array(self.x)", True),
        ("self.x = read()", False),
        ("self.x, self.y = read()", False),
        ("self.x = np.zeros(4)\n        self.x, self.y = read()", False),
        ("self.x = 4", False),
        ("self.x = np.zeros(4) if read() else 4", False),
    ],
    ids=["a slice", "another shape", "a list", "not known", "one of two", "then one of two", "a number", "or a number"],
)
def test_an_attribute_is_what_its_assignments_give_it(fields: str, known: bool) -> None:
    """Where nothing is written the accelerator is no parameter of the data set, which only prints."""
    text = FIELDS.format(fields=fields)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    after, told = file.after.decode(), [d.id for d in file.diagnoses]
    made = "self.x = torch.as_tensor(self.x, dtype=torch.float32, device="
    assert (made in after) is known
    if not known and "= 4" not in fields:
        assert told == ["legacy_tensors"] and "def __init__(self):\n" in after
        assert '        PartialState().print("ready")\n' in after
