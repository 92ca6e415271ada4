"""
Steps of a training that are left out by what is in a batch: ``if batch is None: continue``, ``if not mask.any(): ...``.

One process alone may have such a batch. All of them leave the step out where one of them does, so that none waits.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.reasons.decisions import LeftOut
from ..dataflow.modules import torch_name
from ..dataflow.values import Unit
from ..syntax.walk import nodes_in
from ..training.training import Training
from .conditions import TESTED
from .decisions import Decision, Joint, jumps, spelled

_BECAUSE = "all processes must leave this step out, or none"


def left_out_together(joint: Joint, unit: Unit, training: Training, found: Decision) -> Iterator[Gather | LeftOut]:
    """What makes such a condition that of all processes, and what is said of it; nothing of any other decision."""
    node = found.node
    torch = torch_name(joint.state, unit)
    if not isinstance(node, cst.If) or not found.hangs or node.test is not found.value or torch is None:
        return
    loop = next(unit.names.enclosing(node, cst.For, cst.While), None)
    if loop is None or not _only_goes_on(joint, unit, node) or not _is_step(joint, unit, training, node, loop):
        return
    if any(nodes_in(node.test, cst.NamedExpr, cst.Await)) or _remembers(joint, unit, node, loop):
        return
    text = f"bool({unit.names.module.code_for_node(node.test)})"
    yield Gather(node.test, (text,), _BECAUSE, Form.REDUCE, reduction="sum", number=torch, real=True)
    yield LeftOut(node, spelled(unit, node.test))


def _remembers(joint: Joint, unit: Unit, node: cst.If, loop: cst.CSTNode) -> bool:
    """Whether a condition asks for what earlier steps have left, and each process has its own of: a list that only some
    batches fill. It is no question about this batch."""
    for part in nodes_in(node.test, cst.Name, cst.Attribute):
        binding = unit.names.binding(part) if isinstance(part, cst.Name) else None
        owned = isinstance(part, cst.Attribute) and isinstance(part.value, cst.Name) and part.value.value == "self"
        before = owned or (
            binding is not None and any(loop not in unit.names.ancestors(one) for one in binding.definitions)
        )
        if before and joint.equality.is_local(unit, part):
            return True
    return False


def _only_goes_on(joint: Joint, unit: Unit, node: cst.If) -> bool:
    """Whether all that is done under a condition is to go on with the next batch, and nothing that all do together."""
    block = node.body
    last = block.body[-1] if isinstance(block, cst.IndentedBlock) else block
    small = last.body[-1] if isinstance(last, (cst.SimpleStatementLine, cst.SimpleStatementSuite)) else last
    ends = isinstance(small, cst.Continue) and node.orelse is None and len(list(jumps(block))) == 1
    return ends and joint.runs(block) is None and not isinstance(unit.names.parents.get(node), cst.If)


def _is_step(joint: Joint, unit: Unit, training: Training, node: cst.If, loop: cst.CSTNode) -> bool:
    """Whether a condition is one of the steps of a training over a prepared loader, to which all processes come, in the
    function that has its backward pass."""
    if loop not in training.train_loops or loop not in joint.equality.shared:
        return False
    around = [a for a in unit.names.enclosing(node, *TESTED, cst.Try, cst.With) if a is not loop]
    inside = [a for a in around if loop in unit.names.ancestors(a)]
    own = unit.names.function(node)
    return not inside and any(
        record.unit is unit and unit.names.function(record.node) is own and loop in unit.names.ancestors(record.node)
        for record in training.backwards
    )
