"""
Remove ``nn.DataParallel``: the accelerator replaces it.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

     model = torch.nn.Linear(8, 1)
    -if torch.cuda.device_count() > 1:
    -    model = torch.nn.DataParallel(model)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +accelerator = Accelerator()
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
         loss = torch.nn.functional.mse_loss(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
    -print(model.module.weight)
    +accelerator.print(model.weight)

DataParallel split one batch over the GPUs of a process; now each process takes its own batch, and a note reports
this: ``--keep-global-batch`` keeps the global batch size. A checkpoint with ``module.`` in its keys is reported, and so
is a read of what only the wrapper has (``model.device_ids``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import Edit, Remove, Replace
from ..rewriter.facts.module import ModuleFacts, Move
from ..rewriter.findings import Finding, Severity
from ..rewriter.rule import rule

ID = "data_parallel"


@rule(ID, doc=__doc__)
def data_parallel(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Remove the wrapper, and each ``.module`` that reached the model inside it."""
    for wrapper in facts.wrappers:
        if wrapper.move is Move.STATEMENT and wrapper.statement is not None:
            yield Remove(ID, wrapper.statement, reason=wrapper.because)
        else:
            yield Replace(ID, wrapper.node, _argument, reason=wrapper.because)
        if not facts.keep_global_batch and not facts.cuts_batches:
            yield Finding(
                ID, wrapper.node, "nn.DataParallel split one batch over the GPUs; now each process takes a whole one",
                "pass --keep-global-batch to keep the batch, or scale the learning rate", Severity.NOTE,
            )  # fmt: skip
    for node in facts.of_wrappers:
        yield Finding(
            ID, node, f"{facts.module.code_for_node(node)} is an attribute of the wrapper, which is removed",
            "assign the model to the variable of the wrapper" if node.attr.value == "module"
            else "remove it: each process has one device, accelerator.device", Severity.BLOCKED,
        )  # fmt: skip
    wrapped = bool(facts.unwrapped) and not facts.abilities.transparent_models
    for node in facts.inner_models:
        make = partial(_plain, facts) if wrapped else _model
        yield Replace(ID, node, make, reason="the script no longer wraps the model")
    for call in facts.prefixed:
        cause = 'the keys of this checkpoint no longer begin with the wrapper\'s prefix "module."'
        yield Finding(ID, call, cause, "remove the prefix from the keys of older checkpoints")


def _argument(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    return node.args[0].value


def _plain(facts: ModuleFacts, node: cst.CSTNode) -> cst.CSTNode:
    """``accelerator.unwrap_model(model)`` for ``model.module``: on several processes ``prepare`` wraps it."""
    assert isinstance(node, cst.Attribute)
    return cst.Call(cst.Attribute(cst.Name(facts.accelerator), cst.Name("unwrap_model")), [cst.Arg(node.value)])


def _model(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Attribute)
    return node.value
