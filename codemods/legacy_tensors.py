"""
Create tensors of legacy types on the accelerator's device.

``torch.cuda.FloatTensor`` combines a dtype, a device and a meaning of the arguments: numbers are sizes, anything
else is values. The modern functions name each of the three.

     import numpy as np
     import torch
     from torch.utils.data import DataLoader
    +from torchlift.runtime import Accelerator

    -cuda = torch.cuda.is_available()
     model = torch.nn.Linear(8, 1)
     loader = DataLoader(data, batch_size=32)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    -Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
    +accelerator = Accelerator()
    +model, optimizer, loader = accelerator.prepare(
    +    model, optimizer, loader
    +)
     for x, y in loader:
    -    x = x.type(Tensor)
    +    x = x.float()
    -    start = Tensor(len(x), 1).fill_(1.0)
    +    start = torch.empty(len(x), 1, device=accelerator.device).fill_(1.0)
    -    scale = Tensor(np.arange(8))
    +    scale = torch.as_tensor(np.arange(8), dtype=torch.float32, device=accelerator.device)
         optimizer.zero_grad()
         loss = (model(x * scale) * start - y).pow(2).mean()
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()

If the argument may be a number or an array, the call is left unchanged and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from ..rewriter.editing.edits import Edit, Replace
from ..rewriter.facts.legacy import Legacy, LegacyTensor
from ..rewriter.facts.module import ModuleFacts
from ..rewriter.findings import Finding, Severity
from ..rewriter.rule import rule

ID = "legacy_tensors"
_CASTS = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "bfloat16": "bfloat16",
    "int64": "long",
    "int32": "int",
    "int16": "short",
    "int8": "char",
    "uint8": "byte",
    "bool": "bool",
}
_DEFAULT = "float32"


@rule(ID, doc=__doc__)
def legacy_tensors(facts: ModuleFacts) -> Iterator[Edit | Finding]:
    """Replace each use of a legacy type with the function that does the same."""
    for tensor in facts.legacy:
        if tensor.use is Legacy.UNSURE:
            yield Finding(
                ID,
                tensor.node,
                "cannot tell whether these arguments are sizes or values",
                "write torch.empty(sizes, device=...) or torch.as_tensor(values, dtype=..., device=...)",
                Severity.REVIEW,
            )
        else:
            yield Replace(ID, tensor.node, _made(facts, tensor), reason=tensor.because)


def _made(facts: ModuleFacts, tensor: LegacyTensor) -> Callable[[cst.CSTNode], cst.CSTNode]:
    device = cst.parse_expression(f"{facts.accelerator}.device")
    dtype = cst.parse_expression(f"{tensor.torch}.{tensor.dtype}")

    def make(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Call)
        if tensor.use is Legacy.CAST:
            return _cast(node, tensor, device, dtype)
        values = tensor.use is Legacy.DATA
        name = "as_tensor" if values else "empty"
        extra = [_keyword("dtype", dtype)] if values or tensor.dtype != _DEFAULT else []
        given = list(node.args) or [cst.Arg(cst.Integer("0"))]
        func = cst.parse_expression(f"{tensor.torch}.{name}")
        return node.with_changes(func=func, args=_spaced([*given, *extra, _keyword("device", device)]))

    return make


def _cast(
    node: cst.Call, tensor: LegacyTensor, device: cst.BaseExpression, dtype: cst.BaseExpression
) -> cst.BaseExpression:
    assert isinstance(node.func, cst.Attribute)
    if tensor.placed and tensor.module and tensor.dtype == _DEFAULT:
        return node.func.value
    if tensor.placed:
        return node.with_changes(func=node.func.with_changes(attr=cst.Name(_CASTS[tensor.dtype])), args=[])
    func = node.func.with_changes(attr=cst.Name("to"))
    return node.with_changes(func=func, args=_spaced([cst.Arg(device), cst.Arg(dtype)]))


def _keyword(name: str, value: cst.BaseExpression) -> cst.Arg:
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(value, keyword=cst.Name(name), equal=equal)


def _spaced(args: list[cst.Arg]) -> list[cst.Arg]:
    """Arguments separated by a comma and a space; the script's own commas stay as they are."""
    last = len(args) - 1
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    result = []
    for index, arg in enumerate(args):
        if index < last and not isinstance(arg.comma, cst.Comma):
            arg = arg.with_changes(comma=comma)
        elif index == last:
            arg = arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)
        result.append(arg)
    return result
