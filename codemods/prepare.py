"""
Prepare models, optimizers and loaders once, where everything is built and nothing is used yet.

``prepare`` averages the gradients over all processes and gives each process its shard of every loader. The call
follows the last statement that builds or loads its arguments: an optimizer built later would hold the right
parameters, but a checkpoint loaded later, or a loader iterated earlier, would change the meaning of the script.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

     model = torch.nn.Linear(8, 1)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     model.load_state_dict(torch.load("start.pt", map_location="cpu"))
     loader = DataLoader(data, batch_size=32)
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

If an evaluation loop is not understood, its loader is not prepared: every process then evaluates the whole set,
which is correct.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from torchlift.rewriter.facts.accelerator import Side
from torchlift.rewriter.facts.module import ModuleFacts

from ..rewriter.editing.edits import Edit, InsertAfter, InsertBefore, Replace
from ..rewriter.facts.reasons import about
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "prepare"


@rule(ID, doc=__doc__)
def prepare(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Write the ``prepare`` calls, and the loaders that stay whole beside the prepared ones."""
    for copy in facts.loader_copies:
        made = facts.module.code_for_node(copy.made)
        because = "an evaluation reads the whole set, and the training its shards"
        yield InsertAfter(ID, copy.node, f"{copy.name} = {made}", reason=because)
        for read in copy.reads:
            yield Replace(ID, read, partial(_named, copy.name), reason=because, whole=True)
    for call in facts.prepares:
        if call.wraps is not None:
            yield Replace(ID, call.wraps, lambda node: _wrapped(facts, node), reason=about(call.because, call.wraps))
        else:
            indent = facts.module.default_indent
            names = ", ".join(call.names)
            text = f"{names} = {facts.accelerator}.prepare(\n{indent}{names}\n)"
            if len(call.names) == 1:
                text = f"{names} = {facts.accelerator}.prepare({names})"
            kind = InsertBefore if call.side is Side.BEFORE else InsertAfter
            yield kind(ID, call.node, text, reason=about(call.because, *call.names))


def _named(name: str, _: cst.CSTNode) -> cst.CSTNode:
    return cst.Name(name)


def _wrapped(facts: ModuleFacts, node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.BaseExpression)
    return cst.Call(cst.Attribute(cst.Name(facts.accelerator), cst.Name("prepare")), [cst.Arg(node)])
