"""What a script counts in steps, batches or rows while it loops: each process counts its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.module import Count
from ..dataflow.values import Unit
from ..syntax.nodes import dotted
from ..syntax.walk import descendants
from .training import Training

BARS = frozenset({"tqdm", "trange", "tqdm_notebook", "alive_bar"})


def counts(unit: Unit, training: Training, loops: Iterable[cst.CSTNode]) -> Iterator[Count]:
    """The cadences, the limits and the bars in some loops over shared loaders."""
    steps = {record.node for record in training.steps}
    for loop in loops:
        if not isinstance(loop, cst.For) or loop not in unit.names.parents:
            continue
        numbers = _numbers(unit, loop)
        for node in descendants(loop.body):
            if isinstance(node, cst.If):
                yield from _tested(unit, node, numbers, steps)
            elif (
                isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "update"
            ):
                bar = _bar(unit, node)
                if bar is not None:
                    yield bar


def _tested(unit: Unit, node: cst.If, numbers: set[str], steps: set[cst.Call]) -> Iterator[Count]:
    text = unit.names.module.code_for_node(node.test)
    if any(isinstance(p, cst.BinaryOperation) and isinstance(p.operator, cst.Modulo) for p in descendants(node.test)):
        if not any(inner in steps for inner in descendants(node.body) if isinstance(inner, cst.Call)):
            yield Count(node, "cadence", text)
    elif isinstance(node.test, cst.Comparison) and any(isinstance(n, cst.Break) for n in descendants(node.body)):
        if any(isinstance(n, cst.Name) and n.value in numbers for n in descendants(node.test)):
            yield Count(node, "limit", text)


def _numbers(unit: Unit, loop: cst.For) -> set[str]:
    """The number that ``enumerate`` gives to each batch."""
    header, target = loop.iter, loop.target
    numbered = any(isinstance(n, cst.Call) and dotted(n.func) == "enumerate" for n in descendants(header))
    first = target.elements[0].value if isinstance(target, cst.Tuple) and target.elements else None
    return {first.value} if numbered and isinstance(first, cst.Name) else set()


def bars(unit: Unit, holder: cst.CSTNode) -> Iterator[cst.Call]:
    """The calls that make the progress bars that a name may hold."""
    binding = unit.names.binding(holder) if isinstance(holder, cst.Name) else None
    for definition in binding.definitions if binding is not None else ():
        around = next((a for a in unit.names.ancestors(definition) if isinstance(a, (cst.WithItem, cst.Assign))), None)
        made = around.item if isinstance(around, cst.WithItem) else around.value if around is not None else None
        if isinstance(made, cst.Call) and dotted(made.func).rpartition(".")[2] in BARS:
            yield made


def _bar(unit: Unit, update: cst.Call) -> Count | None:
    """A bar with a total of its own that counts rows: ``bar.update(images.shape[0])``."""
    holder = update.func.value if isinstance(update.func, cst.Attribute) else None
    told = update.args[0].value if update.args else None
    if holder is None or told is None or isinstance(told, cst.Integer):
        return None
    for made in bars(unit, holder):
        total = [a.value for a in made.args if a.keyword is not None and a.keyword.value == "total"]
        if total and all(a.keyword is not None for a in made.args):
            return Count(update, "bar", unit.names.module.code_for_node(total[0]))
    return None
