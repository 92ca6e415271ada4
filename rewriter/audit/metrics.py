"""
Reduce the results of an evaluation over all processes before they are printed, logged, compared or returned.

If each process reads its own rows, a count or a sum of an evaluation loop covers only these rows: the accuracy is that
of 1/N of the data. If the main process prints it, it looks like the accuracy of the whole set. If it is compared with
the best value so far, it differs between processes, which then save, stop or change the learning rate at different
times.

     correct += (output.argmax(1) == target).sum()
    +dist.all_reduce(correct)
     print(correct / len(dataset))

With Accelerate or torchlift: `accelerator.gather_for_metrics(...)` in the loop, or `accelerator.reduce(...)` after it;
with Fabric `fabric.all_reduce` and `fabric.all_gather`. A metric of torchmetrics reduces over the processes by itself.
A script that only evaluates gets a `review`: started as one process, it reads all rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import Unit
from ..analysis.syntax.scopes import Binding
from ..analysis.syntax.walk import descendants
from ..facts.container_methods import adds
from ..facts.torch_api import process_calls
from ..findings import Finding, Severity
from .program import AuditedProgram
from .rule import AuditRule, Found

_WORDS = ("all_reduce", "reduce_", "synchronize", "sync_")
"""How functions of scripts are named that join what processes have found."""


def metrics_of_one_rank(program: AuditedProgram) -> Found:
    """The values that an evaluation over sharded rows accumulates, and that nothing reduces over the processes."""
    for loop in program.training.eval_loops:
        unit = program.unit_of(loop)
        if unit is None or not isinstance(loop, cst.For):
            continue
        loaders = program.loaders_of(loop)
        if not loaders or any(program.is_sharded(loader) is not True for loader in loaders):
            continue
        carried = list(_carried(unit, loop))
        if not carried or _joined(program, unit, loop):
            continue
        name, node = carried[0]
        yield (
            unit,
            Finding(
                "one-rank-metric",
                node,
                f"`{name}` counts the rows of one process: this evaluation reads a shard, and nothing joins the "
                "processes before its result is used",
                "join it: dist.all_reduce(...), or accelerator.gather_for_metrics(...) in the loop",
                Severity.ERROR if program.training.backwards else Severity.REVIEW,
            ),
        )


def _carried(unit: Unit, loop: cst.For) -> Iterator[tuple[str, cst.CSTNode]]:
    """The variables that a loop adds to, and that are read after it."""
    end = unit.names.end(loop)
    for node in descendants(loop.body):
        target: cst.BaseExpression | None = None
        if isinstance(node, cst.AugAssign):
            target = node.target
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and _takes_in(method_name(node)):
            target = node.func.value
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.BinaryOperation):
            left = node.targets[0].target
            reads = [n.value for n in descendants(node.value) if isinstance(n, cst.Name)]
            target = left if isinstance(left, cst.Name) and left.value in reads else None
        while isinstance(target, (cst.Attribute, cst.Subscript)):
            target = target.value
        if not isinstance(target, cst.Name) or target.value in ("self", "pbar", "writer"):
            continue
        binding = unit.names.binding(target)
        if binding is not None and _outlives(unit, binding, loop, end) and not _is_counter(node):
            yield target.value, node


def _is_counter(node: cst.CSTNode) -> bool:
    """``step += 1`` counts the steps of all processes alike."""
    return isinstance(node, cst.AugAssign) and isinstance(node.value, (cst.Integer, cst.Float))


def _outlives(unit: Unit, binding: Binding, loop: cst.For, end: int) -> bool:
    """Whether a variable is set before a loop and read after it, as a value."""
    before = any(unit.names.order(d) < unit.names.order(loop) for d in binding.definitions)
    return before and any(unit.names.order(read) > end for read in binding.reads)


def _joined(program: AuditedProgram, unit: Unit, loop: cst.For) -> bool:
    """Whether the code of an evaluation or of its callers reduces or gathers over the processes."""
    codes: list[tuple[Unit, Code]] = [(unit, unit.names.function(loop))]
    seen: set[Code] = set()
    while codes:
        here, code = codes.pop()
        if code in seen:
            continue
        seen.add(code)
        for node in program.reach.runs(code if isinstance(code, cst.Module) else getattr(code, "body", code), here):
            if isinstance(node, cst.Call) and _joins(program, node):
                return True
        if not program.reach.loops(loop, unit) or len(seen) < 3:
            codes += [(site.unit, site.unit.names.function(site.node)) for site in program.sites(code)]
    return False


def _takes_in(method: str) -> bool:
    """Whether a method adds to a list, a meter or a metric of a library."""
    return adds(method) or method == "add_batch"


def _joins(program: AuditedProgram, call: cst.Call) -> bool:
    """Whether a call combines values of all processes: by its name, or because it is a metric that does."""
    name = method_name(call)
    if name in process_calls.joining_names() or "gather" in name or name.startswith(_WORDS):
        return True
    record = program.state.calls.get(call)
    names = [getattr(t, "qualified", "") for t in record.callees] if record is not None else []
    return any(n.startswith(("torchmetrics.", "ignite.metrics", "torcheval.")) for n in names)


RULE = AuditRule("one-rank-metric", __doc__, metrics_of_one_rank)
