"""
Let the accelerator decide where mixed precision applies.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

    -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    +accelerator = Accelerator(mixed_precision="bf16")
    -model = torch.nn.Linear(8, 1).to(device)
    +model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
         optimizer.zero_grad()
    -    with torch.autocast(device.type, dtype=torch.bfloat16):
    +    with accelerator.autocast():
    -        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
    +        loss = torch.nn.functional.mse_loss(model(x), y)
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()

A region may be created elsewhere: ``ctx = autocast(...) if args.amp else nullcontext()``, or a function, a lambda
or a ``partial`` that returns one. If both branches of ``if args.amp: ... else: ...`` are the same apart from mixed
precision, one of them is kept.

This is done only if every forward pass of a trained model is in a region, and all regions use the same precision
and the same switch, because the accelerator's setting applies to the whole model. Other regions are left unchanged,
which is correct too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from ..rewriter.editing.edits import Edit, Remove, Replace
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "autocast"
_REASON = "the precision is a setting of the accelerator"


@rule(ID, doc=__doc__)
def autocast(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Rewrite the context managers of autocast regions, and keep one of two branches."""
    precision = facts.precision
    for node in precision.regions:
        yield Replace(ID, node, lambda _: cst.Call(_maker(facts)), reason=_REASON, whole=True)
    for node in precision.makers:
        yield Replace(ID, node, lambda _: _maker(facts), reason=_REASON, whole=True)
    for statement in precision.made_early:
        yield Remove(ID, statement, reason=_REASON)
    for branch, first in precision.branches:
        reason = "both branches are the same apart from mixed precision, which the accelerator decides"
        yield Replace(ID, branch, _one_side(first), reason=reason)


def _maker(facts: ModuleFacts) -> cst.Attribute:
    return cst.Attribute(cst.Name(facts.accelerator), cst.Name("autocast"))


def _one_side(first: bool) -> Callable[[cst.CSTNode], Sequence[cst.CSTNode]]:
    """Make a function that returns the statements of one branch of an ``if``, with the comments above the ``if``."""

    def statements(node: cst.CSTNode) -> Sequence[cst.CSTNode]:
        assert isinstance(node, cst.If)
        side = node.body if first else getattr(node.orelse, "body", None)
        body = list(getattr(side, "body", ()))
        if isinstance(side, cst.SimpleStatementSuite):
            body = [cst.SimpleStatementLine(body, trailing_whitespace=side.trailing_whitespace)]
        if body:
            body[0] = body[0].with_changes(leading_lines=[*node.leading_lines, *body[0].leading_lines])
        return body

    return statements
