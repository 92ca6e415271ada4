"""
Track once: the trackers of the other processes do nothing.

A tracker is created in one place and used in many. Its uses are unchanged; where it is created, the other processes
get a disabled one, with the tracker's own setting if it has one.

     import torch
     import wandb
     from torch.utils.data import DataLoader
     from torch.utils.tensorboard import SummaryWriter
    +from torchlift.runtime import Accelerator, Inert

    +accelerator = Accelerator()
    -wandb.init(project="digits")
    +wandb.init(project="digits", mode=None if accelerator.is_main_process else "disabled")
    -writer = SummaryWriter("runs")
    +writer = SummaryWriter("runs") if accelerator.is_main_process else Inert()
     model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for step, (x, y) in enumerate(loader):
         loss = torch.nn.functional.mse_loss(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
         writer.add_scalar("loss", loss.item(), step)

Only the main process knows the values of such a tracker (the folder of a run, its name); if a script uses them on
every process, the tracker is left unchanged and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import AddImport, Edit, EditGroup, Made, Replace, with_keyword
from ..rewriter.facts.effects import Handle
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.facts.reasons import about, called
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "tracking"


@rule(ID, doc=__doc__)
def tracking(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Disable the trackers of the other processes."""
    for handle in facts.handles:
        if handle.tracker:
            yield from _settle(facts, handle)


def _settle(facts: ModuleFacts, handle: Handle) -> Iterator[Edit | Finding]:
    if handle.argument is not None:
        yield Replace(ID, handle.call, partial(_switched, facts, handle), reason=handle.because, unit=EditGroup.ALONE)
    elif facts.abilities.inert:
        why = f"the processes without a {handle.noun} get an object that does nothing"
        yield AddImport(ID, facts.module, facts.abilities.module, "Inert", reason=why, unit=EditGroup.ALONE)
        yield Replace(ID, handle.call, partial(_either, facts, handle), reason=handle.because, unit=EditGroup.ALONE)
    else:
        yield Finding(
            "once",
            handle.call,
            about(f"{{}} runs on every process but should run once: {handle.because}", called(handle.call)),
            "Accelerate has no tracker that does nothing: create it on the main process only and guard its uses, or "
            "log with accelerator.init_trackers and accelerator.log",
            case="object",
        )


def _main(facts: ModuleFacts) -> cst.Attribute:
    return cst.Attribute(cst.Name(facts.accelerator), cst.Name("is_main_process"))


def _either(facts: ModuleFacts, handle: Handle, node: cst.CSTNode) -> Made:
    assert isinstance(node, cst.BaseExpression)
    return cst.IfExp(_main(facts), node, cst.parse_expression(handle.elsewhere))


def _switched(facts: ModuleFacts, handle: Handle, node: cst.CSTNode) -> Made:
    """Use the tracker's own setting: ``mode=... if ... else "disabled"``, or ``disabled=not ...``."""
    assert isinstance(node, cst.Call)
    assert handle.argument is not None
    if not handle.elsewhere:
        return with_keyword(node, handle.argument, cst.UnaryOperation(cst.Not(), _main(facts)))
    for index, arg in enumerate(node.args):
        if arg.keyword is not None and arg.keyword.value == handle.argument:
            here = _one(arg.value)
            value = cst.IfExp(_main(facts), here, cst.parse_expression(handle.elsewhere))
            return node.with_changes(args=[*node.args[:index], arg.with_changes(value=value), *node.args[index + 1 :]])
    value = cst.IfExp(_main(facts), cst.parse_expression(handle.default), cst.parse_expression(handle.elsewhere))
    return with_keyword(node, handle.argument, value)


def _one(value: cst.BaseExpression) -> cst.BaseExpression:
    """Add parentheses if the value is itself a conditional expression."""
    if isinstance(value, (cst.IfExp, cst.Lambda)) and not value.lpar:
        return value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return value
