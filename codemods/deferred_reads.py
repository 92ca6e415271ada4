"""
With ``--device tpu``: add up losses as tensors, so that no step waits for the device.

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
     total = 0.0
     for x, y in loader:
         loss = torch.nn.functional.mse_loss(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
    -    total += loss.item()
    -print(total / len(loader))
    +    total += accelerator.reduce(loss.detach(), reduction="mean")
    +accelerator.print(float(total) / len(loader))

A TPU runs a step as one graph, and ``loss.item()`` in each step cuts it in two and waits. The sum is a tensor now, and
is made a number where it is read. Only sums of losses that no step reads are rewritten; what else waits is reported
(``tpu-waits``). The sum is computed in the precision of the loss.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..rewriter.editing.edits import Edit, Replace
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "deferred_reads"


@rule(ID, doc=__doc__)
def deferred_reads(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Keep the tensor in each step, and make a number of the sum where it is read."""
    for one in facts.deferred:
        yield Replace(ID, one.call, _kept, reason="a TPU would wait for the number in each step")
        for read in one.reads:
            yield Replace(ID, read, _number, reason="the sum is a tensor, and a number here")


def _kept(node: cst.CSTNode) -> cst.CSTNode:
    """``loss.detach()`` for ``loss.item()``; what another rule has detached stays as it is."""
    assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
    value = node.func.value
    made = value.func if isinstance(value, cst.Call) else None
    if isinstance(made, cst.Attribute) and made.attr.value in ("detach", "reduce"):
        return value
    return cst.Call(cst.Attribute(value, cst.Name("detach")))


def _number(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Name)
    return cst.Call(cst.Name("float"), [cst.Arg(node)])
