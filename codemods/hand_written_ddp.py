"""
Replace distribution by hand: the accelerator opens the group, wraps the model and knows the rank.

A script that calls ``init_process_group`` and wraps its model in ``DistributedDataParallel`` is already written for
several processes: it decides which process prints, what is summed, and which rows each process reads. These
decisions are kept. The code that implements them is replaced as a whole, so that N processes compute what they
computed before, and one process works too.

    -import os
     import torch
    -import torch.distributed as dist
    -from torch.nn.parallel import DistributedDataParallel as DDP
     from torch.utils.data import DataLoader, DistributedSampler
    +from torchlift.runtime import Accelerator

    -dist.init_process_group("nccl")
    +accelerator = Accelerator()
    -local_rank = int(os.environ["LOCAL_RANK"])
    -torch.cuda.set_device(local_rank)
    -sampler = DistributedSampler(data)
    +sampler = DistributedSampler(data, num_replicas=accelerator.num_processes, rank=accelerator.process_index)
     loader = DataLoader(data, batch_size=32, sampler=sampler)
    -model = DDP(torch.nn.Linear(8, 1).to(local_rank), device_ids=[local_rank])
    +model = torch.nn.Linear(8, 1)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
    -    loss = torch.nn.functional.mse_loss(model(x.to(local_rank)), y.to(local_rank))
    +    loss = torch.nn.functional.mse_loss(model(x), y)
         optimizer.zero_grad()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
    -dist.all_reduce(loss)
    +loss = accelerator.reduce(loss, reduction="sum")
    -if dist.get_rank() == 0:
    +if accelerator.is_main_process:
    -    print(loss.item() / dist.get_world_size())
    +    print(loss.item() / accelerator.num_processes)
    -    torch.save(model.module.state_dict(), "model.pt")
    +    torch.save(model.state_dict(), "model.pt")
    -dist.destroy_process_group()

``mp.spawn(worker, ...)`` becomes a call of ``worker``: the launcher starts the processes (``torchlift launch`` or
torchrun), and a script that also starts processes would start them twice. A call of torch.distributed without an
equivalent is kept if it works on the process group that the accelerator opens. Code that cannot be replaced
(process groups, FSDP, RPC, hooks of the wrapper, a model on several devices, several modes) is reported, and the
script is left unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from torchlift.rewriter.facts.module import ModuleFacts
from torchlift.rewriter.facts.placement import Move

from ..rewriter.editing.edits import AddImport, Edit, Remove, Replace, with_keyword
from ..rewriter.facts.manual_ddp import Instead
from ..rewriter.facts.reasons import about
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "hand_written_ddp"
_LONG = 105
"""A call that would become longer is broken into lines."""
_INSIDE = frozenset({ID, "device_placement", "accelerator_setup"})


@rule(ID, doc=__doc__)
def hand_written_ddp(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Replace each piece, and remove the wrappers."""
    for name in facts.settings:
        yield AddImport(ID, facts.module, facts.abilities.module, name, reason="the accelerator takes over a setting")
    for wrapper in facts.unwrapped:
        if wrapper.move is Move.STATEMENT and wrapper.statement is not None:
            yield Remove(ID, wrapper.statement, reason="`prepare` replaces the wrapper", absorbs=_INSIDE)
        else:
            yield Replace(ID, wrapper.node, _argument, reason="`prepare` replaces the wrapper")
    for piece in facts.by_hand:
        yield _edit(facts, piece)


def _edit(facts: ModuleFacts, piece: Instead) -> Edit:
    if piece.keywords:
        return Replace(ID, piece.node, _with_keywords(facts, piece), reason=about(piece.because, piece.node))
    if not piece.text:
        return Remove(ID, piece.node, reason=about(piece.because, piece.node), absorbs=_INSIDE)
    text, reason = piece.text.format(facts.accelerator), about(piece.because, piece.node)
    return Replace(ID, piece.node, _made(facts, text), reason=reason, whole=True, absorbs=_INSIDE)


def _with_keywords(facts: ModuleFacts, piece: Instead) -> Callable[[cst.CSTNode], cst.CSTNode]:
    def make(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Call)
        broken = isinstance(node.whitespace_before_args, cst.ParenthesizedWhitespace)
        added = ", ".join(f"{name}={text.format(facts.accelerator)}" for name, text in piece.keywords)
        if piece.breaks and not broken and len(facts.module.code_for_node(node)) + len(added) > _LONG:
            node = _broken(node, facts.module.default_indent)
        for name, text in piece.keywords:
            node = with_keyword(node, name, cst.parse_expression(text.format(facts.accelerator)))
        if not broken and isinstance(node.whitespace_before_args, cst.ParenthesizedWhitespace):
            last = node.args[-1].with_changes(whitespace_after_arg=cst.ParenthesizedWhitespace(indent=True))
            node = node.with_changes(args=[*node.args[:-1], last])
        return node

    return make


def _broken(call: cst.Call, indent: str) -> cst.Call:
    """A call with its arguments on a separate line."""
    return call.with_changes(
        whitespace_before_args=cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(indent))
    )


def _made(facts: ModuleFacts, text: str) -> Callable[[cst.CSTNode], cst.CSTNode]:
    """Replace a statement with a statement, and an expression with an expression in the same parentheses."""

    def make(node: cst.CSTNode) -> cst.CSTNode:
        if isinstance(node, cst.BaseSmallStatement):
            line = cst.parse_statement(text, config=facts.module.config_for_parsing)
            assert isinstance(line, cst.SimpleStatementLine)
            return line.body[0].with_changes(semicolon=node.semicolon)
        made = cst.parse_expression(text)
        return made.with_changes(lpar=node.lpar, rpar=node.rpar) if isinstance(node, cst.BaseExpression) else made

    return make


def _argument(node: cst.CSTNode) -> cst.CSTNode:
    assert isinstance(node, cst.Call)
    return node.args[0].value
