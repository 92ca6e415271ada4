"""
Show one progress bar per machine.

     import torch
     from torch.utils.data import DataLoader
     from tqdm import tqdm
    +from torchlift.runtime import Accelerator

     model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +accelerator = Accelerator()
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
    -for x, y in tqdm(loader):
    +for x, y in tqdm(loader, disable=not accelerator.is_local_main_process):
         loss = torch.nn.functional.mse_loss(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()

A disabled bar still yields its elements; ``set_postfix`` and similar methods do nothing on it. What the script says of
``disable`` counts on the main process as before: ``disable=not verbose`` becomes ``disable=not
accelerator.is_local_main_process or not verbose``.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..rewriter.editing.edits import Edit, EditGroup, Replace, with_keyword
from ..rewriter.facts.effects import EffectKind
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "progress_bars"


@rule(ID, doc=__doc__)
def progress_bars(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Disable the bars of ``tqdm`` except on each machine's main process."""
    for effect in facts.effects:
        if effect.kind is EffectKind.BAR:
            yield Replace(
                ID, effect.node, lambda node: _switched(facts, node), reason=effect.because, unit=EditGroup.ALONE
            )


def _switched(facts: ModuleFacts, node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    here = cst.Attribute(cst.Name(facts.accelerator), cst.Name("is_local_main_process"))
    elsewhere = cst.UnaryOperation(cst.Not(), here)
    for index, arg in enumerate(node.args):
        if arg.keyword is not None and arg.keyword.value == "disable":
            never = isinstance(arg.value, cst.Name) and arg.value.value == "False"
            value = elsewhere if never else cst.BooleanOperation(elsewhere, cst.Or(), _one(arg.value))
            return node.with_changes(args=[*node.args[:index], arg.with_changes(value=value), *node.args[index + 1 :]])
    return with_keyword(node, "disable", elsewhere)


def _one(value: cst.BaseExpression) -> cst.BaseExpression:
    """A value as one side of an ``or``. It is the second: on the main process ``None`` stays ``None``, which asks
    whether there is a terminal."""
    if isinstance(value, (cst.IfExp, cst.Lambda)) and not value.lpar:
        return value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return value
