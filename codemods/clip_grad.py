"""
Clip gradients with the accelerator, which knows when they are scaled and when they are complete.

     import torch
     from torch.utils.data import DataLoader
    -from torch.nn.utils import clip_grad_norm_
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
    -    loss.backward()
    +    accelerator.backward(loss)
    -    clip_grad_norm_(model.parameters(), max_norm=1.0)
    +    accelerator.clip_grad_norm_(model.parameters(), max_norm=1.0)
         optimizer.step()

The arguments are unchanged. An import that is no longer used is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import Edit, Replace
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "clip_grad"
_KNOWN = {"torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_"}
_ARGUMENTS = {
    "clip_grad_norm_": {"parameters", "max_norm", "norm_type"},
    "clip_grad_value_": {"parameters", "clip_value"},
}


@rule(ID, doc=__doc__)
def clip_grad(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Rewrite ``clip_grad_norm_`` and ``clip_grad_value_`` of ``torch.nn.utils``."""
    for name, known in _ARGUMENTS.items():
        for call in facts.called(name):
            if not call.reachable or _plain(call.qualified) not in _KNOWN:
                continue
            extra = {a.keyword.value for a in call.node.args if a.keyword is not None} - known
            if extra:
                yield Finding(
                    ID,
                    call.node,
                    f"accelerator.{name} does not take {', '.join(sorted(extra))}",
                    "the script's own call clips the averaged gradients; no action needed without fp16 or accumulation",
                )
                continue
            reason = "the gradients may still be scaled, or not yet reduced"
            yield Replace(ID, call.node.func, partial(_own, facts, name), reason=reason, whole=True)


def _own(facts: ModuleFacts, name: str, node: cst.CSTNode) -> cst.CSTNode:
    return cst.Attribute(cst.Name(facts.accelerator), cst.Name(name))


def _plain(qualified: str) -> str:
    return qualified.replace("torch.nn.utils.clip_grad.", "torch.nn.utils.")
