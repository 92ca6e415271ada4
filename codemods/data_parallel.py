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

A call of ``torch.nn.parallel.data_parallel(net, x)``, which does so for one forward pass, becomes ``net(x)``. What is
only printed of the number of GPUs beside the wrapper goes with it: each process has one.

DataParallel split one batch over the GPUs of a process; now each process takes its own batch, and a note reports
this: ``--keep-global-batch`` keeps the global batch size. It moved what the model was given to the GPU: a tensor of the
CPU is moved there now, and what may be one is reported. A checkpoint with ``module.`` in its keys is reported, and so
is a read of what only the wrapper has (``model.device_ids``). The wrapper's only child was the model, and its names
began with ``module.``: where a script reads those, it gets the same without the wrapper, or a finding reports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from torchlift.rewriter.facts.module import ModuleFacts
from torchlift.rewriter.facts.placement import Move, WrapperRead

from ..rewriter.editing.edits import (
    AddArgument,
    Edit,
    Remove,
    Replace,
    applied_model,
    opened,
    speaks_of_device,
    speaks_of_parallelism,
)
from ..rewriter.facts.manual_ddp import PLAIN_KEYS
from ..rewriter.findings import Finding, Severity
from ..rewriter.rule import rule

ID = "data_parallel"


@rule(ID, doc=__doc__)
def data_parallel(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Remove the wrapper, and each ``.module`` that reached the model inside it."""
    for wrapper in facts.wrappers:
        if wrapper.move is Move.STATEMENT and wrapper.statement is not None:
            told = frozenset({"main_process"})
            yield Remove(ID, wrapper.statement, reason=wrapper.because, drops=_speaks_of_it, absorbs=told)
        elif wrapper.move is Move.CALL:
            yield Replace(ID, wrapper.node, applied_model, reason=wrapper.because)
        else:
            yield Replace(ID, wrapper.node, _argument, reason=wrapper.because)
        if not facts.keep_global_batch and not facts.cuts_batches:
            yield Finding(
                ID, wrapper.node, "nn.DataParallel split one batch over the GPUs; now each process takes a whole one",
                "pass --keep-global-batch to keep the batch, or scale the learning rate", Severity.NOTE, case="batch",
            )  # fmt: skip
    for statement in facts.for_wrappers:
        yield Remove(ID, statement, reason="this function takes the wrapper alone, which is removed")
    for branch in facts.unwrapped_branches:
        yield Replace(ID, branch, opened, reason="this is done where the model is not wrapped, which it never is now")
    for node in facts.of_wrappers:
        yield Finding(
            ID, node, f"{facts.module.code_for_node(node)} is an attribute of the wrapper, which is removed",
            "assign the model to the variable of the wrapper" if node.attr.value == "module"
            else "remove it: each process has one device, accelerator.device", Severity.BLOCKED, case="attribute",
        )  # fmt: skip
    wrapped = bool(facts.unwrapped) and not facts.abilities.transparent_models
    gone: set[cst.CSTNode | None] = {node for own in facts.own_names for node in (own.inner, own.choice)}
    for own in facts.own_names:
        yield Remove(ID, own.line, reason="without a wrapper the variable is the model already")
    for node in facts.inner_models:
        make = partial(_plain, facts) if wrapped else _model
        if node not in gone:
            yield Replace(ID, node, make, reason="the script no longer wraps the model")
    for choice, first in facts.idle_choices:
        if choice not in gone:
            yield Replace(ID, choice, partial(_one_of_two, first=first), reason="there is no wrapper to choose")
    for read in facts.wrapper_reads:
        yield _as_before(facts, read) or _other(facts, read)
    for call in facts.prefixed:
        yield Finding(ID, call, *PLAIN_KEYS, case="prefix")


def _as_before(facts: ModuleFacts, read: WrapperRead) -> Edit | None:
    """What gives the wrapper's answer without the wrapper, where that is certain."""
    if not read.certain or read.node.args or not facts.abilities.transparent_models:
        return None
    if read.method in ("children", "named_children"):
        return Replace(ID, read.node, partial(_only_child, read=read), reason="the wrapper's only child was the model")
    if read.method != "state_dict":
        reason = "the names began with the wrapper's prefix, and the script reads their beginning"
        return AddArgument(ID, read.node, "prefix", None, '"module"', reason=reason)
    return None


def _other(facts: ModuleFacts, read: WrapperRead) -> Finding:
    """What is said where the answer is another one, or may be."""
    code = partial(facts.module.code_for_node)
    assert isinstance(read.node.func, cst.Attribute)
    asked, model = " ".join(code(read.node).split()), code(read.node.func.value)
    certain = read.certain and facts.abilities.transparent_models  # else `prepare` may wrap it again
    gave, severity = ("gave", Severity.BLOCKED) if certain else ("may have given", Severity.REVIEW)
    if read.use is None:
        cause = f"`{asked}` {gave} the model inside the wrapper, which is removed: now it gives the parts of `{model}`"
        return Finding(ID, read.node, cause, f"if the model is meant, write [{model}]", severity, case="parts")
    use = " ".join(code(read.use).split())
    cause = f'`{asked}` {gave} names that begin with "module.", the wrapper\'s prefix, and `{use}` depends on that'
    remedy = "write it for names without the prefix: the wrapper is removed"
    return Finding(ID, read.use, cause, remedy, severity, case="prefix")


def _only_child(node: cst.CSTNode, *, read: WrapperRead) -> cst.CSTNode:
    """``[model]`` for ``model.children()``, ``[("module", model)]`` for ``model.named_children()``."""
    assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
    child: cst.BaseExpression = node.func.value
    if read.method == "named_children":
        child = cst.Tuple([cst.Element(cst.SimpleString('"module"')), cst.Element(child)])
    made = cst.List([cst.Element(child)])
    return made if read.at_once else cst.Call(cst.Name("iter"), [cst.Arg(made)])


def _one_of_two(node: cst.CSTNode, *, first: bool) -> cst.CSTNode:
    """``model`` for ``model if wrapped else model``."""
    assert isinstance(node, cst.IfExp)
    return node.orelse if first else node.body


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


def _speaks_of_it(comment: str) -> bool:
    return speaks_of_device(comment) or speaks_of_parallelism(comment)
