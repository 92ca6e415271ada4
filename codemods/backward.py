"""
Run the backward pass with the accelerator, which scales and accumulates the loss.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

     model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +accelerator = Accelerator()
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
         loss = torch.nn.functional.mse_loss(model(x), y)
         optimizer.zero_grad()
    -    loss.backward(retain_graph=True)
    +    accelerator.backward(loss, retain_graph=True)
         optimizer.step()

Keyword arguments are kept. A loss that is summed over the batch is marked as a sum: processes average their
gradients, and the average of the sums would be 1/N of the sum. A ``.backward()`` whose receiver is not known to be
a loss is left unchanged and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import Edit, Replace
from ..rewriter.facts.module import Call, ModuleFacts
from ..rewriter.facts.roles import Role
from ..rewriter.findings import Finding, Severity
from ..rewriter.rule import rule

ID = "backward"


@rule(ID, doc=__doc__)
def backward(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Rewrite ``loss.backward(...)`` and ``torch.autograd.backward(loss, ...)``."""
    for call in facts.called("backward"):
        if call.role is Role.ACCELERATOR or not call.reachable:
            continue
        if call.reduction == "mixed":
            yield Finding(
                ID,
                call.node,
                "this loss adds a sum over the batch to a mean over the batch: no single factor scales both",
                "use one reduction for all parts of the loss",
                Severity.BLOCKED,
            )
        elif call.role is Role.LOSS and _takes_several(call):
            yield Finding(
                ID,
                call.node,
                "torch.autograd.backward gets several tensors here; accelerator.backward takes one",
                f"pass their sum: {facts.accelerator}.backward(a + b)",
                Severity.BLOCKED,
            )
        elif call.role is Role.LOSS:
            yield Replace(ID, call.node, partial(_through, facts, call), reason=call.because)
        elif call.because:
            yield Finding(
                ID, call.node, f"cannot tell whether this tensor is a loss: {call.because}",
                f"write {facts.accelerator}.backward(...) by hand, or pass --assume loss=NAME",
                Severity.REVIEW if any(c.role is Role.LOSS for c in facts.called(ID)) else Severity.BLOCKED,
            )  # fmt: skip


def _takes_several(call: Call) -> bool:
    first = call.node.args[0].value if call.node.args and call.qualified == "torch.autograd.backward" else None
    return isinstance(first, (cst.List, cst.Tuple))


def _through(facts: ModuleFacts, call: Call, node: cst.CSTNode) -> cst.CSTNode:
    """``accelerator.backward(loss, ...)`` for ``loss.backward(...)``."""
    assert isinstance(node, cst.Call)
    args = list(node.args)
    if call.qualified != "torch.autograd.backward":
        assert isinstance(node.func, cst.Attribute)
        loss = node.func.value
        if loss.lpar:  # the parentheses of ``(a + b).backward()``
            loss = loss.with_changes(lpar=loss.lpar[1:], rpar=loss.rpar[:-1])
        args.insert(0, cst.Arg(loss))
    if call.reduction == "sum" and not facts.abilities.sums:
        args[0] = args[0].with_changes(value=_times_processes(facts, args[0].value))
    elif call.reduction == "sum":
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        args.append(cst.Arg(cst.SimpleString('"sum"'), keyword=cst.Name("reduction"), equal=equal))
    return node.with_changes(func=cst.Attribute(cst.Name(facts.accelerator), cst.Name("backward")), args=args)


def _times_processes(facts: ModuleFacts, loss: cst.BaseExpression) -> cst.BaseExpression:
    """A summed loss for a runtime that only averages gradients: the average of N times the loss is the sum."""
    simple = isinstance(loss, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)) or bool(loss.lpar)
    inner = loss if simple else loss.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    count = cst.Attribute(cst.Name(facts.accelerator), cst.Name("num_processes"))
    return cst.BinaryOperation(inner, cst.Multiply(), count)
