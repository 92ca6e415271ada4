"""
Import the accelerator from torchlift.runtime where a script already uses Accelerate.

The runtime has Accelerate's names and meanings, so nothing else in the script changes. If the script uses something
that the runtime does not have (DeepSpeed, sharded weights, big models on several devices), its imports are kept,
and a finding lists the names. With `--target accelerate` no import changes.

     import torch
    -from accelerate import Accelerator
    -from accelerate.utils import set_seed
    +from torchlift.runtime import Accelerator
    +from torchlift.runtime.utils import set_seed
     from torch.utils.data import DataLoader

     set_seed(1)
     accelerator = Accelerator()
     model = torch.nn.Linear(8, 2)
     loader = DataLoader(train, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
     for x, y in loader:
         loss = torch.nn.functional.cross_entropy(model(x), y)
         optimizer.zero_grad()
         accelerator.backward(loss)
         optimizer.step()
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import Edit, Replace
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding, Severity
from ..rewriter.rule import rule

ID = "accelerate_imports"


@rule(ID, doc=__doc__)
def accelerate_imports(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Change the module of each import of Accelerate."""
    for swap in facts.swaps:
        reason = "the same names, from the runtime that migrated scripts call"
        yield Replace(ID, swap.node, partial(_from, swap.module), reason=reason, severity=Severity.REVIEW)
    yield from facts.unswapped


def _from(module: str, node: cst.CSTNode) -> cst.CSTNode:
    if isinstance(node, cst.ImportFrom):
        return node.with_changes(module=cst.parse_expression(module))
    assert isinstance(node, cst.Import)
    name = node.names[0].asname or cst.AsName(cst.Name("accelerate"))
    return cst.ImportFrom(
        cst.Name("torchlift"), [cst.ImportAlias(cst.Name("runtime"), asname=name)], semicolon=node.semicolon
    )
