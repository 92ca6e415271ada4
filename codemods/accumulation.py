"""
Let the accelerator count the batches of a window, so that gradients are averaged once per optimizer step.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

     model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +accelerator = Accelerator(gradient_accumulation_steps=4)
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for i, (x, y) in enumerate(loader):
    -    loss = torch.nn.functional.mse_loss(model(x), y)
    -    loss = loss / 4
    -    loss.backward()
    -    if (i + 1) % 4 == 0 or i + 1 == len(loader):
    -        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    -        optimizer.step()
    -        optimizer.zero_grad()
    -        print(loss.item() * 4)
    +    with accelerator.accumulate(model):
    +        loss = torch.nn.functional.mse_loss(model(x), y)
    +        accelerator.backward(loss)
    +        if accelerator.sync_gradients:
    +            accelerator.clip_grad_norm_(model.parameters(), 1.0)
    +        optimizer.step()
    +        optimizer.zero_grad()
    +        if accelerator.sync_gradients:
    +            accelerator.print(loss.item())

Inside ``accumulate`` the prepared optimizer and scheduler step when a window is full, and the loss is divided by
its size.

In some scripts the rest of a window is dropped or carried into the next epoch, the loss is not divided, or the
divided loss is read: these scripts keep counting their own windows. If one condition on the count guards every step
of the optimizer, or every step follows the inner loop, and gradients are not read elsewhere, the batches before the
step accumulate gradients locally, and only the sum is averaged:

    for i, (x, y) in enumerate(loader):
        with nullcontext() if (i + 1) % 4 == 0 else accelerator.no_sync(model):
            loss = torch.nn.functional.mse_loss(model(x), y) / 4
            accelerator.backward(loss)
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()

All other code is left unchanged. It is correct too, only slower: gradients are averaged with every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from ..rewriter.editing.edits import AddImport, Edit, Remove, Replace
from ..rewriter.facts.module import Accumulation, ModuleFacts, Unsynced
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "accumulation"
_REASON = "the accelerator counts the window and divides by it"


@rule(ID, doc=__doc__)
def accumulation(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Put the step under ``accumulate``, and remove the script's own counting."""
    waiting = facts.unsynced
    if waiting is not None:
        reason = "gradients are averaged once per window, before the step"
        yield AddImport(ID, facts.module, "contextlib", "nullcontext", reason=reason)
        yield Replace(ID, waiting.loop.body, lambda body: _unsynced(facts, waiting, body), reason=reason)
    found = facts.accumulation
    if found is None:
        return
    if found.division is not None:
        yield Remove(ID, found.division, reason=_REASON)
    if found.quotient is not None:
        yield Replace(ID, found.quotient, _left, reason=_REASON)
    for product in found.products:
        yield Replace(ID, product, _left, reason="the accelerator divides the loss")
    yield Replace(ID, found.loop.body, lambda body: _accumulated(facts, found, body), reason=_REASON)


def _left(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.BinaryOperation)
    return node.left


def _accumulated(facts: ModuleFacts, found: Accumulation, body: cst.CSTNode) -> cst.CSTNode:
    """The loop's block under ``with accelerator.accumulate(...)``, without the ``if`` around the step."""
    assert isinstance(body, cst.IndentedBlock)
    statements: list[cst.BaseStatement] = []
    for statement in body.body:
        if isinstance(statement, cst.If) and statement.test.deep_equals(found.gate.test):
            statements.extend(_opened(facts, statement))
        else:
            statements.append(statement)
    models = [cst.Arg(cst.parse_expression(name)) for name in found.models]
    accumulate = cst.Call(cst.Attribute(cst.Name(facts.accelerator), cst.Name("accumulate")), models)
    block = cst.With([cst.WithItem(accumulate)], body.with_changes(body=statements))
    return body.with_changes(body=[block], footer=())


def _unsynced(facts: ModuleFacts, found: Unsynced, body: cst.CSTNode) -> cst.CSTNode:
    """The loop's block with its forward and backward pass under ``with``."""
    assert isinstance(body, cst.IndentedBlock)
    model = cst.parse_expression(found.model)
    forward = next(i for i, s in enumerate(body.body) if _calls(s, model.deep_equals))
    # written by the rule `backward` already, with the accelerator's name as it is spelled here
    backward = next(i for i, s in enumerate(body.body) if i >= forward and _calls(s, _starts))
    first = body.body[forward]
    lines = getattr(first, "leading_lines", ())
    inside = [first.with_changes(leading_lines=()), *body.body[forward + 1 : backward + 1]]
    apart = cst.Call(cst.Attribute(cst.Name(facts.accelerator), cst.Name("no_sync")), [cst.Arg(model)])
    chosen = cst.IfExp(test=found.exchanges, body=cst.Call(cst.Name("nullcontext")), orelse=apart)
    block = cst.With([cst.WithItem(chosen)], cst.IndentedBlock(inside), leading_lines=lines)
    return body.with_changes(body=[*body.body[:forward], block, *body.body[backward + 1 :]])


def _starts(called: cst.BaseExpression) -> bool:
    return isinstance(called, cst.Attribute) and called.attr.value == "backward"


def _calls(statement: cst.CSTNode, meant: Callable[[cst.BaseExpression], bool]) -> bool:
    """Whether a statement has a call of what is meant."""
    seen = _Calls(meant)
    statement.visit(seen)
    return seen.found


class _Calls(cst.CSTVisitor):
    """Looks for a call of one function."""

    def __init__(self, meant: Callable[[cst.BaseExpression], bool]) -> None:
        super().__init__()
        self.meant, self.found = meant, False

    def visit_Call(self, node: cst.Call) -> None:
        self.found = self.found or self.meant(node.func)


def _opened(facts: ModuleFacts, gate: cst.If) -> list[cst.BaseStatement]:
    """The statements of the ``if``: steps without a condition, because ``accumulate`` decides when they run; the others
    under ``if accelerator.sync_gradients``."""
    result: list[cst.BaseStatement] = []
    waiting: list[cst.BaseStatement] = []

    def close() -> None:
        if waiting:
            test = cst.Attribute(cst.Name(facts.accelerator), cst.Name("sync_gradients"))
            lines = getattr(waiting[0], "leading_lines", ())
            first = waiting[0].with_changes(leading_lines=())
            result.append(cst.If(test, cst.IndentedBlock([first, *waiting[1:]]), leading_lines=lines))
            waiting.clear()

    for statement in gate.body.body:
        assert isinstance(statement, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
        if _is_step(statement):
            close()
            result.append(statement)
        else:
            waiting.append(statement)
    close()
    if result and gate.leading_lines:
        own = getattr(result[0], "leading_lines", ())
        result[0] = result[0].with_changes(leading_lines=[*gate.leading_lines, *own])
    return result


def _is_step(statement: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    call = small.value if isinstance(small, cst.Expr) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
        return False
    return call.func.attr.value in ("step", "zero_grad")
