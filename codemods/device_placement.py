"""
Leave the moving of models and batches to the accelerator.

``prepare`` places the model, and a prepared loader yields its batches on the device, so these moves are not needed.
Every other move is kept and uses the accelerator's device, which is correct for any value.

     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

    -device = "cuda" if torch.cuda.is_available() else "cpu"
    +accelerator = Accelerator()
    -model = torch.nn.Linear(8, 1).to(device)
    +model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
    -    x = x.view(len(x), -1).to(device)
    +    x = x.view(len(x), -1)
    -    noise = torch.randn(len(x), 8).to(device)
    +    noise = torch.randn(len(x), 8).to(accelerator.device)
         optimizer.zero_grad()
    -    loss = (model(x + noise) - y.cuda()).pow(2).mean()
    +    loss = (model(x + noise) - y).pow(2).mean()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()

A comment about the move alone is removed with it. So is one on its line, or above it with nothing left under it, that
plans nothing, gives no fact (a number, a name of other code) and is no code; any other comment is kept. An ``if`` that
asks for CUDA and holds nothing but such moves is removed, and the moves stay: with another accelerator they are needed
too. So is its ``else``, where that does the same without the move, or takes the same to the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import libcst as cst

from torchlift.rewriter.facts.module import Form, ModuleFacts
from torchlift.rewriter.facts.placement import Arrival, Move, Placement

from ..rewriter.editing.edits import (
    AddImport,
    Edit,
    InsertAfter,
    InsertBefore,
    Remove,
    Replace,
    opened,
    speaks_of_device,
    speaks_of_moving,
)
from ..rewriter.facts.reasons import about
from ..rewriter.findings import Finding
from ..rewriter.rule import rule

ID = "device_placement"


@rule(ID, doc=__doc__)
def device_placement(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Remove the moves that ``prepare`` makes, and change the others to the accelerator's device."""
    for statement in facts.visible:
        yield Remove(ID, statement, reason="the launcher chooses the GPUs of each process", drops=speaks_of_device)
    for string in facts.numbered:
        yield Replace(ID, string, _any_gpu, reason="each process has its own GPU")
    for guard in facts.opened:
        yield Replace(ID, guard, opened, reason="the move is right on any device: nothing else depends on CUDA here")
    for statement in facts.closed:
        yield Remove(ID, statement, reason="this is on the accelerator's device in any case", drops=speaks_of_moving)
    for arrival in facts.arrivals:
        yield from _arrives(facts, arrival)
    seen: set[cst.CSTNode] = set()
    reduced = {gather.node for gather in facts.gathers if gather.form is Form.REDUCE}
    for placement in facts.placements:
        reason = about(placement.because, _moved(placement))
        if placement.move is Move.STATEMENT and placement.statement is not None:
            yield Remove(ID, placement.statement, reason=reason, drops=speaks_of_moving)
        elif placement.copied is not None:
            yield from _copied(placement, reason, seen)
        elif placement.move is Move.LINK:
            yield Replace(ID, placement.node, _without_link(placement), reason=reason, drops=speaks_of_moving)
        elif placement.move is Move.HOST:
            if placement.node not in reduced:  # what is reduced is taken there by that edit
                yield Replace(ID, placement.node, _on_the_host, reason=reason)
        elif placement.move is Move.PLACE:
            yield Replace(ID, placement.node, partial(_placed, facts, placement), reason=reason)
        elif placement.target is not None:
            yield Replace(ID, placement.target, lambda _: _device(facts), reason=reason, whole=True)
        elif _is_cuda(placement.node):
            yield Replace(ID, placement.node, lambda node: _to_device(node, facts), reason=reason)


def _moved(placement: Placement) -> cst.CSTNode:
    """What is moved: the names of a line that does nothing else, or the value."""
    line = placement.statement
    if isinstance(line, cst.SimpleStatementLine) and isinstance(assign := line.body[0], cst.Assign):
        return assign.targets[0].target
    node = placement.node
    return node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) else node


def _arrives(facts: ModuleFacts, arrival: Arrival) -> Iterator[Edit]:
    """Move what a loop reads to the device, whatever the batches are."""
    names = ", ".join(arrival.names)
    batch = f"({names})" if len(arrival.names) > 1 else names
    reason = "its loader is not prepared, and the model is on the device"
    yield AddImport(ID, facts.module, f"{facts.abilities.module}.utils", "send_to_device", reason=reason)
    text = f"{names} = send_to_device({batch}, {facts.accelerator}.device)"
    if arrival.after is not None:
        yield InsertAfter(ID, arrival.after, text, reason=reason)
    else:
        yield InsertBefore(ID, arrival.loop.body.body[0], text, reason=reason)


def _any_gpu(node: cst.CSTNode) -> cst.CSTNode:
    """Change ``"cuda:0"`` (or a computed name) to ``"cuda"``, with the same quotes; so a number, ``0``."""
    text = next((n for n in _texts(node) if ":" in n.value), None)
    if text is None:
        return cst.SimpleString('"cuda"')
    quote = text.value[0] if isinstance(text, cst.SimpleString) else getattr(node, "start", '"')[-1]
    return cst.SimpleString(f"{quote}{text.value.partition(':')[0].lstrip(quote)}{quote}")


def _texts(node: cst.CSTNode) -> Iterator[cst.SimpleString | cst.FormattedStringText]:
    if isinstance(node, (cst.SimpleString, cst.FormattedStringText)):
        yield node
    for child in node.children:
        yield from _texts(child)


def _copied(placement: Placement, reason: str, seen: set[cst.CSTNode]) -> Iterator[Edit]:
    """A comprehension that did nothing but move becomes a plain copy."""
    assert placement.copied is not None
    node, text = placement.copied
    if node not in seen:
        seen.add(node)
        made = cst.parse_expression(text)
        absorbs = frozenset({ID, "accelerator_setup"})
        yield Replace(ID, node, lambda _: made, reason=reason, whole=True, absorbs=absorbs, drops=speaks_of_moving)


def _without_link(placement: Placement) -> Callable[[cst.CSTNode], cst.CSTNode]:
    assert isinstance(placement.node, cst.Call)
    kept = len(placement.keeps)
    positions = [i for i, arg in enumerate(placement.node.args) if arg in placement.keeps]

    def make(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
        inner = _unpinned(node.func.value)
        if not kept:
            if node.lpar:
                return inner.with_changes(lpar=[*node.lpar, *inner.lpar], rpar=[*inner.rpar, *node.rpar])
            return inner
        args = [node.args[i] for i in positions]
        args[-1] = args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return node.with_changes(func=node.func.with_changes(value=inner), args=args)

    return make


def _unpinned(node: cst.BaseExpression) -> cst.BaseExpression:
    """Change ``x.pin_memory()`` to ``x``: it served the move, and a tensor on a GPU cannot be pinned."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "pin_memory":
        return _unpinned(node.func.value)
    return node


def _on_the_host(node: cst.CSTNode) -> cst.CSTNode:
    """Change ``x.numpy()`` to ``x.cpu().numpy()``, any other ``x`` to ``x.cpu()``."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "numpy":
        return node.with_changes(func=node.func.with_changes(value=_taken(node.func.value)))
    assert isinstance(node, cst.BaseExpression)
    return _taken(node)


def _taken(value: cst.BaseExpression) -> cst.Call:
    return cst.Call(cst.Attribute(value, cst.Name("cpu")))


def _is_cuda(call: cst.BaseExpression) -> bool:
    return isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.func.attr.value == "cuda"


def _to_device(node: cst.CSTNode, facts: ModuleFacts) -> cst.CSTNode:
    """Change ``x.cuda(...)`` to ``x.to(accelerator.device, ...)``."""
    assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
    kept = [arg for arg in node.args if arg.keyword is not None and arg.keyword.value == "non_blocking"]
    args = [cst.Arg(_device(facts)), *kept]
    return node.with_changes(func=node.func.with_changes(attr=cst.Name("to")), args=args)


def _placed(facts: ModuleFacts, placement: Placement, node: cst.CSTNode) -> cst.CSTNode:
    """Change ``x`` to ``x.to(accelerator.device)``, or to the device of what it is combined with."""
    assert isinstance(node, cst.BaseExpression)
    beside = placement.beside
    device = cst.Attribute(beside.deep_clone(), cst.Name("device")) if beside is not None else _device(facts)
    return cst.Call(cst.Attribute(node, cst.Name("to")), [cst.Arg(device)])


def _device(facts: ModuleFacts) -> cst.BaseExpression:
    return cst.Attribute(cst.Name(facts.accelerator), cst.Name("device"))
