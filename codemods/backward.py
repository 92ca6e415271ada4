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

Other arguments are kept, by keyword. A loss that is summed over the batch is marked as a sum: processes average their
gradients, and the average of the sums would be 1/N of the sum. A ``.backward()`` whose receiver is not known to be
a loss is left unchanged and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import Edit, Replace
from ..rewriter.facts.module import Call, ModuleFacts
from ..rewriter.facts.reasons import about
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
        if call.reduction == "mixed" and (facts.keep_global_batch or facts.cuts_batches):
            yield Finding(
                ID,
                call.node,
                "this loss adds a sum over the batch to a mean over the batch: no single factor scales both",
                "use one reduction for all parts of the loss",
                Severity.BLOCKED,
                case="two-scales",
            )
            continue
        if call.reduction == "mixed" and call.role is Role.LOSS:
            yield Finding(
                ID,
                call.node,
                "this loss adds a sum over the batch to a mean over the batch, and the gradients of the processes are "
                "averaged: the sum weighs as much as in one batch of the script, not as in the N batches of a step",
                "no action needed if the weight of the sum was found for the script's batch size; if it should grow "
                f"with the batch, multiply the sum by {facts.accelerator}.num_processes; with split batches do so in "
                "any case",
                Severity.REVIEW,
                case="mixed",
            )
        if call.role is Role.LOSS and _takes_several(call):
            yield Finding(
                ID,
                call.node,
                "torch.autograd.backward gets several tensors here; accelerator.backward takes one",
                "call backward on their sum: (a + b).backward()",
                Severity.BLOCKED,
                case="several",
            )
        elif call.role is Role.LOSS:
            yield Replace(ID, call.node, partial(_through, facts, call), reason=_why(call))
        elif call.because:
            yield Finding(
                ID, call.node, f"cannot tell whether this tensor is a loss: {call.because}",
                f"pass --assume loss=NAME if it is one, or write {facts.accelerator}.backward(...) by hand",
                Severity.REVIEW if any(c.role is Role.LOSS for c in facts.called(ID)) else Severity.BLOCKED,
                case="unclear",
            )  # fmt: skip


def _why(call: Call) -> str:
    given = call.node.func if call.qualified != "torch.autograd.backward" else call.node.args[0]
    assert isinstance(given, (cst.Attribute, cst.Arg))
    return about(f"{{}} is {call.because}", given.value)


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
    args[1:] = _named(args[1:])
    if call.reduction == "sum" and not facts.abilities.sums:
        args[0] = args[0].with_changes(value=_times_processes(facts, args[0].value))
    elif call.reduction == "sum":
        args.append(cst.Arg(cst.SimpleString('"sum"'), keyword=cst.Name("reduction"), equal=_EQUAL))
    return node.with_changes(func=cst.Attribute(cst.Name(facts.accelerator), cst.Name("backward")), args=args)


_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
_PLACES = ("gradient", "retain_graph", "create_graph", "inputs")
"""What ``Tensor.backward`` takes by position; ``accelerator.backward`` has parameters of its own there."""


def _named(args: Sequence[cst.Arg]) -> list[cst.Arg]:
    """``-1`` of ``loss.backward(-1)`` becomes ``gradient=-1``."""
    found = []
    for index, arg in enumerate(args):
        word = arg.keyword.value if arg.keyword is not None else _PLACES[index] if index < len(_PLACES) else ""
        if arg.star or not word:
            found.append(arg)
        else:
            name = cst.Name("gradient" if word == "grad_tensors" else word)
            found.append(arg.with_changes(keyword=name, equal=arg.equal if arg.keyword is not None else _EQUAL))
    return found


def _times_processes(facts: ModuleFacts, loss: cst.BaseExpression) -> cst.BaseExpression:
    """A summed loss for a runtime that only averages gradients: the average of N times the loss is the sum."""
    simple = isinstance(loss, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)) or bool(loss.lpar)
    inner = loss if simple else loss.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    count = cst.Attribute(cst.Name(facts.accelerator), cst.Name("num_processes"))
    return cst.BinaryOperation(inner, cst.Multiply(), count)
