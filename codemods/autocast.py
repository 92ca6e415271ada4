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

Only where every forward pass of a trained model stands in a region, and all regions ask for the same precision under
the same switch: the accelerator's setting holds for the model as a whole. Other regions stay as they are, which is
right, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..rewriter.edits import Edit, Replace
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "autocast"


@rule(ID, doc=__doc__)
def autocast(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Rewrite the context managers of autocast regions."""
    for call in facts.precision.autocasts:
        yield Replace(
            ID, call, lambda _: _region(facts), reason="the precision is a setting of the accelerator", whole=True
        )


def _region(facts: ModuleFacts) -> cst.CSTNode:
    return cst.Call(cst.Attribute(cst.Name(facts.accelerator), cst.Name("autocast")))
