"""The gate: what does not train costs nothing, and what may train is looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.gate.prefilter import syntax_error, trains
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="an empty file"),
        pytest.param("import os\nprint('hello')\n", id="no torch"),
        pytest.param("import torch\nmodel(x)\n", id="inference only"),
        pytest.param("# loss.backward() of torch\nx = 1\n", id="both words in a comment"),
        pytest.param("import torch\nx = 'loss.backward()'\n", id="backward in a string"),
        pytest.param(
            "import torchbearer\nimport math\nloss.backward()\n", id="not torch, a module that begins like it"
        ),
        pytest.param(
            "import torch\nclass F(torch.autograd.Function):\n    def backward(ctx, g):\n        return g\n",
            id="a backward that is defined, not called",
        ),
        pytest.param("import numpy\ncar.backward()  # torch\n", id="a method called backward without torch"),
    ],
)
def test_what_does_not_train_is_passed_over(text: str) -> None:
    assert not trains(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("import torch\nloss.backward()\n", id="a backward"),
        pytest.param("import torch\nscaler.scale(loss).backward()\n", id="a scaled backward"),
        pytest.param("import torch\ntorch.autograd.backward(loss)\n", id="torch.autograd.backward"),
        pytest.param("from torch.autograd import backward\nbackward(loss)\n", id="backward imported by name"),
        pytest.param("def f():\n    import torch\n    loss.backward()\n", id="torch imported inside a function"),
        pytest.param("import torch\nloss.backward(\n", id="a syntax error, for the full path to report"),
        pytest.param("# coding: klingon\nimport torch\nloss.backward()\n", id="an unknown encoding"),
        pytest.param("import torch\nloss.backward()\nx = " + "(" * 300 + ")" * 300, id="too deep for the parser"),
        pytest.param("import accelerate\naccelerator.backward(loss)\n", id="an accelerator: whether all is migrated"),
        pytest.param("match x:\n    case 1:\n        import torch\nloss.backward()\n", id="torch imported in a case"),
    ],
)
def test_what_may_train_is_looked_at(text: str) -> None:
    assert trains(text.encode())


MENTIONS = """\
# was run with accelerate once: accelerator = Accelerator()
import torch
from torch.utils.data import DataLoader

accelerator = "gpu"
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.ones(8, 1)):
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("accelerator.backward(loss)", accelerator)
"""


@pytest.mark.hazard("G9")
def test_a_script_that_only_speaks_of_accelerators_is_migrated() -> None:
    (file,) = migrate([decode(MENTIONS.encode(), Path("x.py"))], CATALOGUE, Config()).files
    assert b".backward(loss)\n" in file.after
    assert b"loss.backward()" not in file.after


@pytest.mark.parametrize("text", ["x = 1\n", "x = '\\d'\n", "print(1)"])
def test_sound_syntax(text: str, recwarn: pytest.WarningsRecorder) -> None:
    assert syntax_error(text.encode()) is None
    assert not recwarn.list


def test_a_syntax_error_has_its_line() -> None:
    found = syntax_error(b"x = 1\ndef f(:\n")
    assert found is not None and (found.lineno, found.msg) == (2, "invalid syntax")


def test_the_gate_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; from torchlift.rewriter.gate.prefilter import trains; trains(b'import torch; x.backward()');"
        "import torchlift.rewriter.gate.cache;"
        "print(sorted({'libcst', 'click', 'rich', 'yaml', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
