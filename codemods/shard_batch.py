"""
Share out batches that a script makes without a loader.

A batch that is drawn at random, sliced from a table, or is the whole data at once is cut along its rows, and each
process trains on its own. The losses of uneven shards are weighted, so that N processes compute what one computes.

     import torch
    +from torchlift.runtime import Accelerator

    -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    -x, y = x.to(device), y.to(device)
    -model = torch.nn.Linear(8, 2).to(device)
    +accelerator = Accelerator()
    +x, y = x.to(accelerator.device), y.to(accelerator.device)
    +model = torch.nn.Linear(8, 2)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer = accelerator.prepare(
    +    model, optimizer
    +)
     for step in range(1000):
    -    rows = torch.randint(len(x), (64,))
    +    rows = accelerator.shard_batch(torch.randint(len(x), (64,)))
         loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()

An evaluation that the script makes of such data stays whole on every process.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import Edit, InsertBefore, Replace
from ..rewriter.facts.module import HandBatch, ModuleFacts, ShardCount
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "shard_batch"
_BECAUSE = "no prepared loader yields this batch: each process trains on its own rows of it"


@rule(ID, doc=__doc__)
def shard_batch(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Write the cuts of batches that no loader yields."""
    for batch in facts.hand_batches:
        if not batch.names:
            yield Replace(ID, batch.node, partial(_cut, facts, batch), reason=_BECAUSE)
            continue
        yield InsertBefore(ID, batch.node, _statement(facts, batch), reason=_BECAUSE)
        for read in batch.reads:
            new = batch.renamed(read.value)
            yield Replace(ID, read, partial(_named, new), reason=f"the training reads the shard, {new}", whole=True)
    for count in facts.row_counts:
        yield Replace(
            ID, count.node, partial(_counted, count), reason="it has to have as many rows as the shard", whole=True
        )


def _statement(facts: ModuleFacts, batch: HandBatch) -> str:
    listed = ", ".join(batch.names)
    what = f"({listed})" if len(batch.names) > 1 else listed
    dim = f", dim={batch.dim}" if batch.dim else ""
    return f"{', '.join(batch.news or batch.names)} = {facts.accelerator}.shard_batch({what}{dim})"


def _cut(facts: ModuleFacts, batch: HandBatch, node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.BaseExpression)
    if isinstance(node, cst.Tuple) and not node.lpar:
        node = node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    args = [cst.Arg(node)]
    if batch.dim:
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        args.append(cst.Arg(cst.Integer(str(batch.dim)), keyword=cst.Name("dim"), equal=equal))
    return cst.Call(cst.Attribute(cst.Name(facts.accelerator), cst.Name("shard_batch")), args)


def _named(name: str, node: cst.CSTNode) -> cst.CSTNode:
    return cst.Name(name)


def _counted(count: ShardCount, node: cst.CSTNode) -> cst.CSTNode:
    return cst.parse_expression(f"{count.of}.size({count.dim})")
