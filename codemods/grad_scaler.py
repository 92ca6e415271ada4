"""
Remove the gradient scaler as one unit: fp16 is a setting of the accelerator, which scales, unscales and steps.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

     args = parser.parse_args()
    -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    +accelerator = Accelerator(mixed_precision="fp16" if args.amp else "no")
    -model = torch.nn.Linear(8, 1).to(device)
    +model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    -scaler = torch.amp.GradScaler(enabled=args.amp)
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
         optimizer.zero_grad()
    -    with torch.autocast(device.type, dtype=torch.float16, enabled=args.amp):
    +    with accelerator.autocast():
    -        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
    +        loss = torch.nn.functional.mse_loss(model(x), y)
    -    scaler.scale(loss).backward()
    +    accelerator.backward(loss)
    -    scaler.unscale_(optimizer)
    -    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    +    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    -    scaler.step(optimizer)
    +    optimizer.step()
    -    scaler.update()

A scaler that is used in any other way (its state in a checkpoint, its scale in a log) is kept as a whole, with its
autocast regions: gradients are equal on all processes, so it works as before.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..rewriter.editing.edits import Edit, Remove, Replace
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "grad_scaler"
_REASON = "the accelerator scales the loss and steps the optimizer"


@rule(ID, doc=__doc__)
def grad_scaler(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Remove the scaler: its construction, its five uses, and the parameters that pass it on."""
    precision = facts.precision
    for statement in precision.removed:
        yield Remove(ID, statement, reason=_REASON)
    for node in (*precision.parameters, *precision.arguments):
        yield Remove(ID, node, reason="the scaler is no longer used")
    for call in precision.steps:
        yield Replace(ID, call, _step, reason=_REASON)
    for call in precision.scales:
        yield Replace(ID, call, _loss, reason=_REASON)


def _step(node: cst.CSTNode) -> cst.CSTNode:
    """``optimizer.step()`` for ``scaler.step(optimizer)``."""
    assert isinstance(node, cst.Call)
    return cst.Call(cst.Attribute(node.args[0].value, cst.Name("step")))


def _loss(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    return node.args[0].value
