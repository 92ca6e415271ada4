"""
Create the accelerator where the script chose its device, and pass it to the functions that need it.

One process drives one device, and the accelerator knows which. It replaces the definition of the device, keeping
the meaning of the script's flags, and a ``device`` parameter in the functions that get it.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

    -def train(model, device, loader, optimizer):
    +def train(model, accelerator, loader, optimizer):
         for x, y in loader:
    -        x, y = x.to(device), y.to(device)
             optimizer.zero_grad()
             loss = torch.nn.functional.mse_loss(model(x), y)
    -        loss.backward()
    +        accelerator.backward(loss)
             optimizer.step()

    -device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    +accelerator = Accelerator(cpu=args.cpu)
    -model = torch.nn.Linear(8, 1).to(device)
    +model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
    -train(model, device, loader, optimizer)
    +train(model, accelerator, loader, optimizer)

A class whose methods need it stores it: the constructor gets the accelerator (or creates it), and the methods read
``self.accelerator``; the assignment of ``self.device`` changes.

If nothing names a device, the accelerator is created before its first use. A function that is used as a value, or
is called from unknown places, keeps its parameters. A function that trains or evaluates, and that files outside the
program call too, gets a last parameter that they need not give: ``accelerator=None``.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace

import libcst as cst

from torchlift.rewriter.facts.accelerator import HandDown, Handing, Home, Side
from torchlift.rewriter.facts.module import ModuleFacts
from torchlift.rewriter.facts.placement import DeviceRead

from ..rewriter.editing.edits import (
    AddArgument,
    AddImport,
    AddParameter,
    Edit,
    InsertAfter,
    InsertBefore,
    Made,
    Remove,
    Replace,
    speaks_of_device,
)
from ..rewriter.facts.reasons import about
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "accelerator_setup"
_INSIDE = frozenset({ID, "device_placement"})
_MORE = "this does more than choose the device"


@rule(ID, doc=__doc__)
def accelerator_setup(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Write the constructor, the import and the parameters."""
    handed = {handing.call for handing in facts.handings}
    if not facts.connects:
        yield from _still_called(facts, handed)
    if facts.home is not None:
        yield from _home(facts, facts.home, handed)
    if facts.connects:  # what is called may ask the group
        yield from _still_called(facts, handed)
    for hand_down in facts.hand_downs:
        yield from _parameter(facts, hand_down)
    for handing in facts.handings:
        yield _argument(facts, handing)
    for store in facts.stores:
        kind = InsertBefore if store.side is Side.BEFORE else InsertAfter
        text = f"{store.object}.{facts.accelerator} = {facts.accelerator}"
        yield kind(ID, store.node, text, reason="the methods use the accelerator")
    if facts.given_back is not None:
        node, text = facts.given_back
        yield InsertBefore(ID, node, text, reason="the methods read their device there")
    for read in facts.device_reads:
        if read.node not in handed:
            yield _read(facts, read)


def _still_called(facts: ModuleFacts, handed: Container[cst.Call]) -> Iterator[Edit]:
    for statement, call in facts.still_called:
        if call in handed:
            yield _handed_still(facts, statement, call)
        else:
            yield InsertBefore(ID, statement, facts.module.code_for_node(call), reason=_MORE)


def _home(facts: ModuleFacts, home: Home, handed: Container[cst.Call]) -> Iterator[Edit | Finding]:
    arguments = ", ".join(f"{keyword}={value}" for keyword, value in (*home.arguments, *_asked(facts)))
    text = f"{facts.accelerator} = Accelerator({arguments})"
    runtime = facts.abilities.module
    yield AddImport(ID, facts.module, runtime, "Accelerator", reason="the script now calls the accelerator")
    if facts.keep_global_batch and not facts.abilities.split_batches:
        yield AddImport(ID, facts.module, f"{runtime}.utils", "DataLoaderConfiguration", reason="this keeps the batch")
    if home.side is Side.INSTEAD:
        made = cst.parse_statement(text, config=facts.module.config_for_parsing)
        yield Replace(
            ID, home.node, lambda node: _in_place(node, made), reason=home.because, whole=True, absorbs=_INSIDE
        )
    else:
        kind = InsertBefore if home.side is Side.BEFORE else InsertAfter
        yield kind(ID, home.node, text, reason=home.because)
        if home.gives:
            yield kind(ID, home.node, home.gives, reason="the script reads its device there")
    still = {statement for statement, call in facts.still_called if call in handed}
    for statement in (s for s in home.removed if s not in still):
        gone = Remove(ID, statement, reason="the accelerator chooses the device", absorbs=_INSIDE)
        elsewhere = statement is not home.node  # at its own place the comment is still true, of the accelerator
        yield replace(gone, drops=speaks_of_device) if elsewhere else gone


def _handed_still(facts: ModuleFacts, statement: cst.CSTNode, call: cst.Call) -> Edit:
    """A call that chose the device, does more, and is given the accelerator: it is made where it was."""
    given = next((_device(facts, read) for read in facts.device_reads if read.node is call), None)

    def apart(line: cst.CSTNode) -> Made:
        assert isinstance(line, cst.SimpleStatementLine)
        assign = line.body[0]
        assert isinstance(assign, (cst.Assign, cst.AnnAssign)) and assign.value is not None
        alone = line.with_changes(body=[cst.Expr(assign.value)])
        return alone if given is None else [alone, cst.SimpleStatementLine([assign.with_changes(value=given)])]

    return Replace(ID, statement, apart, reason=_MORE)


def _asked(facts: ModuleFacts) -> Iterator[tuple[str, str]]:
    """The constructor's arguments that the user asked for on the command line."""
    if facts.mixed_precision is not None:
        yield "mixed_precision", facts.mixed_precision
    if facts.accumulation_steps is not None:
        yield "gradient_accumulation_steps", facts.accumulation_steps
    if facts.keep_global_batch and facts.abilities.split_batches:
        yield "split_batches", "True"
    elif facts.keep_global_batch:
        yield "dataloader_config", "DataLoaderConfiguration(split_batches=True)"


def _in_place(old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode:
    """The new statement with the comments of the old one."""
    lines = getattr(old, "leading_lines", ())
    if isinstance(old, cst.SimpleStatementLine):
        return new.with_changes(leading_lines=lines, trailing_whitespace=old.trailing_whitespace)
    return new.with_changes(leading_lines=lines)


def _parameter(facts: ModuleFacts, hand_down: HandDown) -> Iterator[Edit]:
    reason = about("the accelerator is a parameter of {}", hand_down.function.name)
    if hand_down.makes is not None:
        yield from _optional(facts, hand_down, hand_down.makes)
        return
    if hand_down.replaces is None:
        yield AddParameter(ID, hand_down.function, facts.accelerator, hand_down.index, reason=reason)
        return
    annotated = hand_down.replaces.annotation is not None
    before = hand_down.function.params.params[: hand_down.index]
    optional = hand_down.index is not None and any(param.default is not None for param in before)

    def renamed(param: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(param, cst.Param)
        param = param.with_changes(name=cst.Name(facts.accelerator))
        if param.annotation is not None:
            param = param.with_changes(annotation=param.annotation.with_changes(annotation=cst.Name("Accelerator")))
        if param.default is not None:  # every call gives it
            default, equal = (cst.Name("None"), param.equal) if optional else (None, cst.MaybeSentinel.DEFAULT)
            param = param.with_changes(default=default, equal=equal)
        return param

    yield Replace(ID, hand_down.replaces, renamed, reason=reason)
    if annotated:
        yield AddImport(ID, facts.module, facts.abilities.module, "Accelerator", reason="an annotation names the class")


def _optional(facts: ModuleFacts, hand_down: HandDown, first: cst.CSTNode) -> Iterator[Edit]:
    """A function that other programs call as before: with an accelerator of its own, of one process, it gathers what it
    has. One that nothing calls makes its own."""
    name = facts.accelerator
    because = "nothing in the script calls {}" if hand_down.own else "other files call {} without an accelerator"
    reason = about(because, hand_down.function.name)
    given = (*hand_down.arguments, *(_asked(facts) if hand_down.own else ()))
    text = f"{name} = Accelerator({', '.join(f'{keyword}={value}' for keyword, value in given)})"
    if not hand_down.own:
        yield AddParameter(ID, hand_down.function, name, hand_down.index, "None", reason=reason)
        text = f"if {name} is None:\n    {text}"
    yield InsertBefore(ID, first, text, reason=reason)
    yield AddImport(ID, facts.module, facts.abilities.module, "Accelerator", reason=reason)


def _argument(facts: ModuleFacts, handing: Handing) -> Edit:
    reason = about("the accelerator is passed to {}", handing.call.func)
    if handing.replaces is None:
        return AddArgument(ID, handing.call, facts.accelerator, handing.index, reason=reason)
    return Replace(ID, handing.replaces, lambda arg: _renamed(arg, facts.accelerator), reason=reason)


def _renamed(arg: cst.CSTNode, name: str) -> cst.Arg:
    assert isinstance(arg, cst.Arg)
    keyword = cst.Name(name) if arg.keyword is not None else None
    return arg.with_changes(value=cst.Name(name), keyword=keyword)


def _read(facts: ModuleFacts, read: DeviceRead) -> Edit:
    reason = about("the accelerator's device replaces {}", read.node)
    return Replace(ID, read.node, lambda _: _device(facts, read), reason=reason, whole=True)


def _device(facts: ModuleFacts, read: DeviceRead) -> cst.BaseExpression:
    return cst.parse_expression(f"{facts.accelerator}.device" + (".type" if read.as_word else ""))
