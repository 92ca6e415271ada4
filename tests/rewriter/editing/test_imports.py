"""The imports that the edits ask for."""

from __future__ import annotations

import libcst as cst

from torchlift.rewriter.editing.edits import AddImport
from torchlift.rewriter.editing.imports import add

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
