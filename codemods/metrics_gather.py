"""
Compute metrics on the whole data set, not on one process's shard.

In an evaluation loop the model's output and the targets are gathered directly after the forward pass; the code that
follows is unchanged and sees every sample once. Decisions that depend on the metric (best model, early stopping,
plateau) are then the same on every process.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

     model = torch.nn.Linear(8, 2)
     loader = DataLoader(train, batch_size=32)
     test_loader = DataLoader(test, batch_size=100)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +accelerator = Accelerator()
    +model, optimizer, loader, test_loader = accelerator.prepare(
    +    model, optimizer, loader, test_loader
    +)
     for x, y in loader:
         loss = torch.nn.functional.cross_entropy(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
     correct = 0
     for x, y in test_loader:
         scores = model(x)
    +    scores, y = accelerator.gather_for_metrics((scores, y))
         correct += (scores.argmax(1) == y).sum().item()

An evaluation that every process runs on the whole data set gives each another figure where it draws random numbers.
Where a decision depends on such a figure, all processes take that of the main process.

A training loss that is added up for the average of an epoch is averaged over the processes where it is added; a
loss that is printed every few batches stays the loss of the process that prints it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from torchlift.rewriter.facts.accelerator import Side
from torchlift.rewriter.facts.module import Form, Gather, ModuleFacts
from torchlift.rewriter.facts.placement import Move

from ..rewriter.editing.edits import (
    AddImport,
    Edit,
    InsertAfter,
    InsertBefore,
    Replace,
    broadcast_statement,
    broadcast_value,
)
from ..rewriter.facts.reasons import about
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "metrics_gather"


@rule(ID, doc=__doc__)
def metrics_gather(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Write the gathers of evaluation loops and the reductions of epoch averages."""
    for gather in facts.gathers:
        if gather.form is Form.REDUCE:
            yield from _reduced(facts, gather)
            continue
        if gather.form is Form.RECEIVE:
            yield from _received(facts, gather)
            continue
        others: dict[cst.CSTNode, str] = dict(gather.counts)
        for call in gather.inline:
            make = partial(_gathered, facts, others.get(call), bool(gather.sized))
            yield Replace(ID, call, make, reason=about(gather.because, call))
        for node, name in gather.counts if not others.keys() & set(gather.inline) else ():
            yield Replace(ID, node, partial(_named, name), reason=f"`{name}` has as many rows, and is gathered anyway")
        kind = InsertBefore if gather.side is Side.BEFORE else InsertAfter
        if gather.names:
            yield kind(ID, gather.node, _statement(facts, gather), reason=about(gather.because, *gather.names))
        for line in gather.recounts:
            yield kind(ID, gather.node, line, reason="the rows are counted again: before, it was those of one process")
        for name, how in gather.figures:
            text = f'{name} = {facts.accelerator}.reduce({name}.detach(), reduction="{how}")'
            yield kind(ID, gather.node, text, reason=about(gather.because, name))


def _statement(facts: ModuleFacts, gather: Gather) -> str:
    listed = ", ".join(gather.names)
    values = (_one_each(name) if name in gather.sized else name for name in gather.names)
    what = f"({', '.join(values)})" if len(gather.names) > 1 else next(values)
    return f"{listed} = {facts.accelerator}.gather_for_metrics({what})"


def _one_each(name: str) -> str:
    """A number for each row, where only the rows are counted."""
    return f"{name}.new_zeros(len({name}))"


def _named(name: str, node: cst.CSTNode) -> cst.CSTNode:
    return cst.Name(name)


def _gathered(facts: ModuleFacts, name: str | None, sized: bool, node: cst.CSTNode) -> cst.CSTNode:
    """The gathered value; of ``name``, where that is counted in its place, or of a number for each row."""
    assert isinstance(node, cst.BaseExpression)
    what = cst.Name(name) if name is not None else node
    if sized:
        what = cst.parse_expression(_one_each(_code(what)))
    return cst.Call(cst.Attribute(cst.Name(facts.accelerator), cst.Name("gather_for_metrics")), [cst.Arg(what)])


def _received(facts: ModuleFacts, gather: Gather) -> Iterator[Edit]:
    """All processes take what the main process has."""
    utils = f"{facts.abilities.module}.utils"
    reason = about(gather.because, *(gather.names or (gather.node,)))
    yield AddImport(ID, facts.module, utils, "broadcast_object_list", reason=reason)
    if gather.names:
        yield InsertAfter(ID, gather.node, broadcast_statement(gather.names), reason=reason)
    else:
        yield Replace(ID, gather.node, broadcast_value, reason=reason)


def _reduced(facts: ModuleFacts, gather: Gather) -> Iterator[Edit]:
    before, reason = _code(gather.node), about(gather.because, gather.node)
    taken = any(placement.node is gather.node for placement in facts.placements if placement.move is Move.HOST)
    end = ".cpu()" if taken and not gather.number else ""

    def make(node: cst.CSTNode) -> cst.CSTNode:
        # other rules may have changed something in it
        return cst.parse_expression(_reduction(facts, gather, gather.names[0].replace(before, _code(node))) + end)

    if not gather.kept:
        yield Replace(ID, gather.node, make, reason=reason)
        return
    if gather.kept_at is not None:
        text = f"{gather.kept} = {_reduction(facts, gather, gather.names[0])}"
        yield InsertBefore(ID, gather.kept_at, text, reason=reason)
    name = cst.parse_expression(gather.kept + end)
    yield Replace(ID, gather.node, lambda _: name, reason=reason)


def _reduction(facts: ModuleFacts, gather: Gather, value: str) -> str:
    how = f', reduction="{gather.reduction}"' if gather.reduction else ""
    if gather.number:
        return f"{facts.accelerator}.reduce({gather.number}.tensor({value}{_options(facts, gather)}){how}).item()"
    return f"{facts.accelerator}.reduce({_detached(value)}{how})"


def _detached(value: str) -> str:
    """A value without its gradient: of ``loss.data`` that of the loss; a tensor that is made of numbers has none."""
    if value.endswith(".data"):
        value = value.removesuffix(".data")
    return value if _made_of_numbers(cst.parse_expression(value)) else f"{value}.detach()"


def _made_of_numbers(node: cst.BaseExpression) -> bool:
    """``torch.tensor(numbers)``, and what torch computes from that alone: ``torch.mean(torch.tensor(numbers))``."""
    func = node.func if isinstance(node, cst.Call) else None
    if not isinstance(node, cst.Call) or not isinstance(func, cst.Attribute):
        return False
    if isinstance(func.value, cst.Name) and func.value.value == "torch":
        return func.attr.value == "tensor" or (bool(node.args) and all(_made_of_numbers(a.value) for a in node.args))
    return _made_of_numbers(func.value)


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _options(facts: ModuleFacts, gather: Gather) -> str:
    """How the tensor of a number is made: exact, and where the target can reduce it. A device may have no float64."""
    dtype = f", dtype={gather.number}.float64" if gather.real else ""
    return dtype if gather.real and facts.abilities.reduces_anywhere else f"{dtype}, device={facts.accelerator}.device"
