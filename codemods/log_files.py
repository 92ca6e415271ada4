"""
Write log files and open files on the main process; the others discard what they write.

A file that stays open, or a logger, is used in many places. These uses are unchanged: where the file is opened, the
other processes open the null device, and log only errors.

     import logging
     import os
     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

    +accelerator = Accelerator()
    -logging.basicConfig(level=logging.INFO)
    +logging.basicConfig(level=logging.INFO if accelerator.is_local_main_process else logging.ERROR)
    -losses = open("losses.csv", "a")
    +losses = open("losses.csv" if accelerator.is_main_process else os.devnull, "a")
     model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for step, (x, y) in enumerate(loader):
         loss = torch.nn.functional.mse_loss(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
         losses.write(f"{loss.item()}\\n")
         logging.info("step %d", step)

A block that only writes a file is guarded as a whole, by the rule `main_process`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import AddImport, Edit, EditGroup, Made, Replace
from ..rewriter.facts.effects import Handle
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "log_files"


@rule(ID, doc=__doc__)
def log_files(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """On the other processes, open the null device and log only errors."""
    for handle in facts.handles:
        if handle.tracker:
            continue
        for module, name in handle.imports:
            yield AddImport(
                ID, facts.module, module, name, reason="the other processes write there", unit=EditGroup.ALONE
            )
        node: cst.CSTNode = handle.call if handle.value is None else handle.value.value
        yield Replace(ID, node, partial(_either, facts, handle), reason=handle.because, unit=EditGroup.ALONE)


def _either(facts: ModuleFacts, handle: Handle, node: cst.CSTNode) -> Made:
    assert isinstance(node, cst.BaseExpression)
    word = "is_local_main_process" if handle.each_machine else "is_main_process"
    test = cst.Attribute(cst.Name(facts.accelerator), cst.Name(word))
    if isinstance(node, (cst.IfExp, cst.Lambda)) and not node.lpar:
        node = node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.IfExp(test, node, cst.parse_expression(handle.elsewhere))
