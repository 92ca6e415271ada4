"""
Figures of a script that mean something else once each process has its shard: a file that shows the rows of one shard, a
sum of batch means that is divided by the number of samples.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import libcst as cst

from ...facts.effects import Effect, EffectKind
from ...facts.module import Form, Gather
from ...facts.roles import TENSORS, Origin, Role
from ...findings import Finding, Severity
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value
from ..syntax.scopes import Binding
from ..syntax.walk import descendants
from ..training.training import Training, method_name
from .divergence import Equality
from .reductions import reduction_of


def one_share(state: State, unit: Unit, equality: Equality, effects: Iterable[Effect]) -> Iterator[Finding]:
    """Tensors of a batch that go into a file as they are: the file shows what the main process has of it."""
    for effect in effects:
        if effect.kind is not EffectKind.WRITE or effect.forward is not None:
            continue
        if any(isinstance(n, cst.Name) and n.value in ("onnx", "jit") for n in descendants(effect.node)):
            continue  # a batch to trace the model with
        names = equality.local_names(unit, effect.node)
        shown = [n for n in names if any(o.role is not Role.LOSS for o in origins(state.values.get(n), *TENSORS))]
        if shown and not any(_is_number(unit, name) for name in shown):
            yield Finding(
                "one-share",
                effect.node,
                f"each process has only its own rows of `{shown[0].value}`: the file shows those of the main process",
                "no action needed if a sample is enough; otherwise gather it on all processes before this line: "
                f"{shown[0].value} = accelerator.gather({shown[0].value})",
            )
            return


def _is_number(unit: Unit, name: cst.Name) -> bool:
    """Whether only a number is read off a tensor."""
    chain = [a for a in unit.names.ancestors(name) if isinstance(a, (cst.Attribute, cst.Call))][:4]
    words = {a.attr.value for a in chain if isinstance(a, cst.Attribute)} | {
        method_name(a) for a in chain if isinstance(a, cst.Call)
    }
    return not words.isdisjoint(("item", "size", "shape", "float", "len", "int"))


def mean_of_batches(state: State, unit: Unit, shared: Container[cst.CSTNode]) -> Iterator[Finding]:
    """Means of batches that are summed up and divided by the number of samples: N processes have fewer batches."""
    for loop, loaders in state.loaders.items():
        if loop not in shared or not isinstance(loop, cst.For) or loop not in unit.names.parents:
            continue
        inside = set(descendants(loop))
        for node in inside:
            if isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name) and _adds_mean(state, unit, node):
                binding = unit.names.binding(node.target)
                quotient = _divided(state, unit, binding, inside, loaders) if binding is not None else None
                if quotient is not None:
                    yield Finding(
                        "mean-of-batches",
                        quotient,
                        f"`{node.target.value}` adds up means over batches and is divided by the number of samples: on "
                        "N processes there are N times fewer batches, so the result is N times smaller",
                        "divide by the number of batches, len(loader), or keep the global batch: --keep-global-batch",
                    )


def filled_batches(unit: Unit, training: Training, gathers: Iterable[Gather]) -> Iterator[Finding]:
    """Losses of a loop that trains in one phase and evaluates in another: the last share is filled up with rows."""
    told: set[cst.CSTNode] = set()
    for gather in gathers:
        loop = next((n for n in unit.names.enclosing(gather.node, cst.For) if n in training.train_loops), None)
        if loop is None or loop in told or gather.form is not Form.REDUCE or gather.reduction != "mean":
            continue
        inside = set(descendants(loop))
        backwards = [record.node for record in training.backwards if record.node in inside]
        total = next(unit.names.enclosing(gather.node, cst.AugAssign), None)
        if total is not None and backwards and all(_in_a_phase(unit, b, inside) for b in backwards):
            told.add(loop)
            yield Finding(
                "filled-batch",
                gather.node,
                "this loop both trains and evaluates, and each process averages the loss over its own rows: at the end "
                "of the data a shard is padded with repeated rows, so the evaluation loss is close to that of the "
                "whole set but not equal to it",
                "no action needed if close is good enough; for the exact figure, use --keep-global-batch",
                Severity.NOTE,
            )


def _in_a_phase(unit: Unit, node: cst.CSTNode, inside: Container[cst.CSTNode]) -> bool:
    """Whether a node of a loop runs in one of several phases: ``if phase == "train":``, ``if train:``."""
    for around in unit.names.enclosing(node, cst.If):
        if isinstance(around, cst.If) and around in inside:
            test = around.test
            compared = isinstance(test, cst.Comparison) and isinstance(test.comparisons[0].comparator, cst.SimpleString)
            word = test.attr if isinstance(test, cst.Attribute) else test
            if compared or (isinstance(word, cst.Name) and "train" in word.value.lower()):
                return True
    return False


def _adds_mean(state: State, unit: Unit, node: cst.AugAssign) -> bool:
    if not isinstance(node.operator, cst.AddAssign):
        return False
    parts = list(descendants(node.value))
    if any(isinstance(p, cst.BinaryOperation) and isinstance(p.operator, cst.Multiply) for p in parts):
        return False
    for part in parts:
        if isinstance(part, (cst.Name, cst.Call)) and origins(state.values.get(part), Role.LOSS):
            return reduction_of(state, unit, part) == "mean"
    return False


def _divided(
    state: State, unit: Unit, total: Binding, inside: Container[cst.CSTNode], loaders: Iterable[Origin]
) -> cst.CSTNode | None:
    """The division of a total by the number of samples, after its loop."""
    given = [loader.node.args[0].value for loader in loaders if isinstance(loader.node, cst.Call) and loader.node.args]

    def samples(node: cst.BaseExpression) -> bool:
        binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
        values = bindings_value(unit.names, binding) if binding is not None else [node]
        for value in values:
            if isinstance(value, cst.Call) and method_name(value) == "len" and len(value.args) == 1:
                counted = value.args[0].value
                if origins(state.values.get(counted), Role.DATASET) or any(counted.deep_equals(d) for d in given):
                    return True
        return False

    for definition in total.definitions:
        change = unit.names.parents.get(definition)
        if isinstance(change, cst.AugAssign) and isinstance(change.operator, cst.DivideAssign):
            if change not in inside and samples(change.value):
                return change
    for read in total.reads:
        around = unit.names.parents.get(read)
        if isinstance(around, cst.BinaryOperation) and isinstance(around.operator, cst.Divide) and read not in inside:
            if around.left is read and samples(around.right):
                return around
    return None
