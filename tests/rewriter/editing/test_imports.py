"""The imports that the edits ask for."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.config import Config
from torchlift.rewriter.editing.edits import AddImport
from torchlift.rewriter.editing.imports import add
from torchlift.rewriter.pipeline import migrate
from torchlift.rewriter.source import decode

WANTED = {
    "torchlift.runtime.utils": ["wait_for_everyone", "broadcast_object_list"],
    "torchlift.runtime": ["PartialState", "Accelerator", "notebook_launcher"],
}


def test_they_are_sorted_in_whatever_order_the_rules_ask_for_them() -> None:
    tree = cst.parse_module("import torch\n\nmodel = torch.nn.Linear(2, 2)\n")
    wanted = [AddImport("rule", tree, source, name, reason="") for source, names in WANTED.items() for name in names]
    assert add(tree, wanted).code == (
        "import torch\n"
        "from torchlift.runtime import Accelerator, PartialState, notebook_launcher\n"
        "from torchlift.runtime.utils import broadcast_object_list, wait_for_everyone\n"
        "\nmodel = torch.nn.Linear(2, 2)\n"
    )


PROGRAM = """\
import os

{above}import torch.nn as nn
import torch.optim as optim
import torch

rows = torch.zeros(8, 4)
net = nn.DataParallel(torch.hub.load("models", "net").cuda())
optimizer = optim.SGD(net.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(rows, batch_size=2):
    optimizer.zero_grad()
    net(x.cuda()).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("above", ["", "# of torch\n"])
def test_the_next_import_of_the_group_begins_it(above: str) -> None:
    """The blank line above an import that nothing reads any more went with it, and two groups were one."""
    text = PROGRAM.format(above=above)
    (file,) = migrate([decode(text.encode(), Path("train.py"))], CATALOGUE, Config()).files
    assert file.after.decode().startswith(f"import os\n\n{above}import torch.optim as optim\nimport torch\n")
