"""
Create folders safely, and use the same folder name on all processes.

A folder that is created if it does not exist may be created by any process: a check does not help, because another
process may create it first. A name from the clock, a random number or a count of existing files differs between
processes: the main process makes it, and the others receive it.

     import os
     import time
     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator
    +from torchlift.runtime.utils import broadcast_object_list

    +accelerator = Accelerator()
    -folder = os.path.join("runs", time.strftime("%Y%m%d-%H%M%S"))
    +folder = broadcast_object_list([os.path.join("runs", time.strftime("%Y%m%d-%H%M%S"))])[0]
     if not os.path.exists(folder):
    -    os.makedirs(folder)
    +    os.makedirs(folder, exist_ok=True)
     model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
         loss = torch.nn.functional.mse_loss(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()

A folder that must not exist yet (`os.makedirs` without a check) is created by the main process alone, which fails
if it exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import (
    AddImport,
    Edit,
    EditGroup,
    InsertAfter,
    InsertBefore,
    Made,
    Replace,
    broadcast_statement,
    broadcast_value,
    with_keyword,
)
from ..rewriter.facts.effects import Folder
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "directories"


@rule(ID, doc=__doc__)
def directories(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Allow folders that already exist, and broadcast folder names that differ between processes."""
    for folder in facts.folders:
        why = "another process may create the folder first"
        yield Replace(ID, folder.call, partial(_may_exist, folder), reason=why, unit=EditGroup.ALONE)
        if folder.renamed and isinstance(folder.call.func, cst.Name):
            yield AddImport(ID, facts.module, "os", "makedirs", reason="this creates folders that may already exist")
    for received in facts.received:
        utils = f"{facts.abilities.module}.utils"
        yield AddImport(
            ID,
            facts.module,
            utils,
            "broadcast_object_list",
            reason="all processes get the name of the main process",
        )
        if isinstance(received.node, cst.With):
            body = received.node.body.body
            yield InsertBefore(ID, body[0], broadcast_statement(received.names), reason=received.because)
            yield AddImport(ID, facts.module, utils, "wait_for_everyone", reason="a process waits for the others")
            yield InsertAfter(ID, body[-1], "wait_for_everyone()", reason="the folder is removed here")
        elif received.names:
            yield InsertAfter(ID, received.node, broadcast_statement(received.names), reason=received.because)
        else:
            yield Replace(ID, received.node, broadcast_value, reason=received.because)


def _may_exist(folder: Folder, node: cst.CSTNode) -> Made:
    assert isinstance(node, cst.Call)
    if folder.renamed and isinstance(node.func, cst.Attribute):
        node = node.with_changes(func=node.func.with_changes(attr=cst.Name("makedirs")))
    elif folder.renamed:
        node = node.with_changes(func=cst.Name("makedirs"))
    yes = cst.Name("True")
    given = [arg.with_changes(value=yes) if _is_question(arg) else arg for arg in node.args]
    if any(_is_question(arg) for arg in node.args):
        return node.with_changes(args=given)
    return with_keyword(node, "exist_ok", yes)


def _is_question(arg: cst.Arg) -> bool:
    return arg.keyword is not None and arg.keyword.value == "exist_ok"
