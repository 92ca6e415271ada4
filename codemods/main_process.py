"""
Print and write once, not once per process.

A print uses the accelerator, with the same arguments. For a write, only the call itself is guarded, never the
forward pass or the loop before it: code that all processes must run together must not be inside the guard. If the
arguments of a write contain such code, all processes compute it first.

     import torch
     import numpy as np
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
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
    -    print("loss", loss.item(), sep="\\t")
    +    accelerator.print("loss", loss.item(), sep="\\t")
    -np.save("weight.npy", model.weight.detach().cpu())
    +if accelerator.is_main_process:
    +    np.save("weight.npy", model.weight.detach().cpu())
    -np.save("last.npy", model(x).detach().cpu())
    +output = model(x)
    +if accelerator.is_main_process:
    +    np.save("last.npy", output.detach().cpu())

A command of the system whose result nobody takes (``os.system("plot.sh &")``) is guarded like a write. If the script
waits for the command, a note says that the other processes do not. A file that is opened for writing and kept in a
variable is handled by the rule `log_files`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..rewriter.editing.edits import Edit, EditGroup, Made, Replace
from ..rewriter.facts.effects import Effect, EffectKind
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding, Severity
from ..rewriter.rule import rule

ID = "main_process"


@rule(ID, doc=__doc__)
def main_process(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Rewrite prints and guard writes."""
    for effect in facts.effects:
        if effect.kind is EffectKind.PRINT:
            yield Replace(
                ID, effect.node, lambda _: _print(facts), reason=effect.because, whole=True, unit=EditGroup.ALONE
            )
        elif effect.kind in (EffectKind.WRITE, EffectKind.CONSOLE, EffectKind.COMMAND):
            yield from _guard(facts, effect)
            if effect.awaited:
                yield Finding(
                    ID, effect.node, "the main process runs this command, and the other processes do not wait for it",
                    "if they read what it makes, add accelerator.wait_for_everyone() after it; else no action needed",
                    Severity.NOTE, case="command",
                )  # fmt: skip


def _print(facts: ModuleFacts) -> cst.CSTNode:
    return cst.Attribute(cst.Name(facts.accelerator), cst.Name("print"))


def _guard(facts: ModuleFacts, effect: Effect) -> Iterator[Edit]:
    word = "is_local_main_process" if effect.kind is EffectKind.CONSOLE else "is_main_process"
    test = cst.Attribute(cst.Name(facts.accelerator), cst.Name(word))
    first: list[cst.BaseExpression] = []

    def keep(node: cst.CSTNode) -> cst.CSTNode:
        read = isinstance(node, (cst.Attribute, cst.Arg, cst.Subscript))
        value = node.value if isinstance(node, (cst.Attribute, cst.Arg, cst.Subscript)) else node
        assert isinstance(value, cst.BaseExpression)
        first.append(value)
        return node.with_changes(value=cst.Name(effect.name)) if read else cst.Name(effect.name)

    def guarded(node: cst.CSTNode) -> Made:
        lines = getattr(node, "leading_lines", ())
        inner = node.with_changes(leading_lines=())
        assert isinstance(inner, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
        made = cst.If(test, cst.IndentedBlock([inner]), leading_lines=lines)
        if not first:
            return made
        named = cst.Assign([cst.AssignTarget(cst.Name(effect.name))], first.pop())
        return [cst.SimpleStatementLine([named], leading_lines=lines), made.with_changes(leading_lines=())]

    # what goes to the console is read by nobody else, and needs no other edit
    alone = effect.kind is EffectKind.CONSOLE and effect.forward is None
    unit = EditGroup.ALONE if alone else EditGroup.FILES
    if effect.parts:
        make = partial(_split, test, effect.parts)
        yield Replace(ID, effect.node, make, reason=effect.because, unit=unit, joins=True)
        return
    if effect.forward is not None:
        yield Replace(ID, effect.forward, keep, reason=effect.because, unit=unit)
    yield Replace(ID, effect.node, guarded, reason=effect.because, unit=unit, joins=True)


def _split(test: cst.BaseExpression, parts: tuple[int, ...], node: cst.CSTNode) -> Made:
    """A line of several statements, split so that only some of them are guarded."""
    assert isinstance(node, (cst.SimpleStatementLine, cst.SimpleStatementSuite))
    made: list[cst.BaseStatement] = []
    for index, small in enumerate(node.body):
        line = cst.SimpleStatementLine([small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
        last = made[-1] if made else None
        if index in parts:
            if isinstance(last, cst.If):
                made[-1] = last.with_changes(body=last.body.with_changes(body=[*last.body.body, line]))
            else:
                made.append(cst.If(test, cst.IndentedBlock([line])))
        elif isinstance(last, cst.SimpleStatementLine):
            made[-1] = last.with_changes(body=[*last.body, *line.body])
        else:
            made.append(line)
    if isinstance(node, cst.SimpleStatementSuite):
        return cst.IndentedBlock(made, header=node.trailing_whitespace)
    made[0] = made[0].with_changes(leading_lines=node.leading_lines)
    last = made[-1]
    if isinstance(last, cst.SimpleStatementLine):
        made[-1] = last.with_changes(trailing_whitespace=node.trailing_whitespace)
    elif isinstance(last, cst.If):
        inner = last.body.body[-1].with_changes(trailing_whitespace=node.trailing_whitespace)
        made[-1] = last.with_changes(body=last.body.with_changes(body=[*last.body.body[:-1], inner]))
    return made
