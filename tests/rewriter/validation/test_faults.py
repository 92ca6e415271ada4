"""
Faults, put mechanically into the emitted fixtures at every place that fits: how many of them the check finds.

The share found has a floor. What survives is listed in `SURVIVORS`, each with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import libcst as cst
import pytest

from torchlift.rewriter.facts.module_paths import ENTRY, ModulePaths, Place
from torchlift.rewriter.validation.check import ModuleTexts, check

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
MIGRATED = sorted(folder.parent.name for folder in FIXTURES.glob("*/after.py"))
SHOWN = "mnist_functions"
"""The fixture that is tried every day."""
FLOOR = 0.85
"""The share that is found in each fixture; over all of them it was 183 of 185."""

Mutate = Callable[[cst.CSTNode], "cst.CSTNode | None"]
"""What a fault makes of a node; None where it does not fit."""


def method(node: cst.CSTNode, *names: str) -> bool:
    """Whether a node is a call of a method of the accelerator."""
    func = node.func if isinstance(node, cst.Call) else None
    if not isinstance(func, cst.Attribute) or func.attr.value not in names:
        return False
    return cst.Module([]).code_for_node(func.value).endswith("accelerator")


def is_prepare(node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Assign):
        return False
    return method(node.body[0].value, "prepare")


def prepared(node: cst.CSTNode, change: Callable[[list[str]], list[str] | None], both: bool) -> cst.CSTNode | None:
    """A `prepare` with other arguments; `both`: with the names that take them changed alike."""
    if not is_prepare(node):
        return None
    assert isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], cst.Assign)
    assign = node.body[0]
    assert isinstance(assign.value, cst.Call)
    code = cst.Module([]).code_for_node
    given = [code(argument.value) for argument in assign.value.args]
    changed = change(given)
    if changed is None:
        return None
    target = ", ".join(changed) if both else code(assign.targets[0].target)
    return cst.parse_statement(f"{target} = {code(assign.value.func)}({', '.join(changed)})")


def without(part: str) -> Mutate:
    def change(given: list[str]) -> list[str] | None:
        kept = [name for name in given if part not in name.lower()]
        return kept if kept and len(kept) < len(given) else None

    return lambda node: prepared(node, change, both=True)


def swapped(node: cst.CSTNode) -> cst.CSTNode | None:
    return prepared(node, lambda given: [given[1], given[0], *given[2:]] if len(given) > 1 else None, both=False)


def backward_left(node: cst.CSTNode) -> cst.CSTNode | None:
    if not method(node, "backward"):
        return None
    assert isinstance(node, cst.Call)
    return cst.parse_expression(f"({cst.Module([]).code_for_node(node.args[0].value)}).backward()")


def on_loss(template: str) -> Mutate:
    def change(node: cst.CSTNode) -> cst.CSTNode | None:
        if not method(node, "backward"):
            return None
        assert isinstance(node, cst.Call)
        code = cst.Module([]).code_for_node
        receiver = code(node.func.value) if isinstance(node.func, cst.Attribute) else ""
        loss = template.format(loss=code(node.args[0].value), accelerator=receiver)
        return node.with_changes(args=[cst.Arg(cst.parse_expression(loss)), *node.args[1:]])

    return change


def unguarded(node: cst.CSTNode) -> cst.CSTNode | None:
    """A write that was guarded, or went through the accelerator, as every process would do it."""
    if method(node, "save"):
        assert isinstance(node, cst.Call)
        return node.with_changes(func=cst.parse_expression("torch.save"))
    return None


def in_branch(condition: str) -> Mutate:
    def change(node: cst.CSTNode) -> cst.CSTNode | None:
        if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Expr):
            return None
        call = node.body[0].value
        if not method(call, "backward", "wait_for_everyone", "clip_grad_norm_"):
            return None
        receiver = cst.Module([]).code_for_node(call.func.value)  # type: ignore[attr-defined]
        test = cst.parse_expression(condition.format(accelerator=receiver))
        return cst.If(test, cst.IndentedBlock([node.with_changes(leading_lines=[])]))

    return change


def gather_in_branch(node: cst.CSTNode) -> cst.CSTNode | None:
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Assign):
        return None
    if not method(node.body[0].value, "gather_for_metrics", "gather", "reduce"):
        return None
    receiver = cst.Module([]).code_for_node(node.body[0].value.func.value)  # type: ignore[attr-defined]
    test = cst.parse_expression(f"{receiver}.is_main_process")
    return cst.If(test, cst.IndentedBlock([node.with_changes(leading_lines=[])]))


def one_path(node: cst.CSTNode) -> cst.CSTNode | None:
    if not isinstance(node, cst.SimpleStatementLine) or not isinstance(node.body[0], cst.Assign):
        return None
    value, target = node.body[0].value, node.body[0].targets[0].target
    made = isinstance(value, cst.Call) and isinstance(value.func, cst.Name) and value.func.value == "Accelerator"
    if not made or not isinstance(target, cst.Name):
        return None
    block = cst.IndentedBlock([node.with_changes(leading_lines=[])])
    return cst.If(cst.parse_expression("torch.cuda.is_available()"), block)


def call_unchanged(node: cst.CSTNode) -> cst.CSTNode | None:
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name) or node.func.value[:1].isupper():
        return None
    kept = [a for a in node.args if not (isinstance(a.value, cst.Name) and a.value.value == "accelerator")]
    return node.with_changes(args=kept) if len(kept) < len(node.args) else None


OPERATORS: dict[str, Mutate] = {
    "a model taken out of prepare": without("model"),
    "an optimizer taken out of prepare": without("optim"),
    "a training loader taken out of prepare": without("train"),
    "two arguments of prepare swapped": swapped,
    "a backward left": backward_left,
    "a gather before the loss": on_loss("{accelerator}.gather({loss}).mean()"),
    "a loss detached": on_loss("({loss}).detach()"),
    "a guard removed": unguarded,
    "a collective on the main process": in_branch("{accelerator}.is_main_process"),
    "a collective on the other processes": in_branch("not {accelerator}.is_main_process"),
    "a gather on the main process": gather_in_branch,
    "the accelerator bound on one path": one_path,
    "a call left unchanged": call_unchanged,
}
_ELSEWHERE = "the function has as many ends of gradients as before: the detached generator takes the place of another"
SURVIVORS = {
    ("gan", "a loss detached"): _ELSEWHERE,
    ("legacy_gan", "a loss detached"): _ELSEWHERE,
}
"""Fixture and operator -> why the check does not find it."""


@cache
def parsed(name: str, which: str) -> cst.Module:
    return cst.parse_module((FIXTURES / name / f"{which}.py").read_text())


class _At(cst.CSTTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: cst.CSTNode, new: cst.CSTNode) -> None:
        super().__init__()
        self.old, self.new = old, new

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        return self.new if original_node is self.old else updated_node


def nodes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from nodes(child)


def mutants(name: str) -> Iterator[tuple[str, cst.Module]]:
    tree = parsed(name, "after")
    for node in nodes(tree):
        for operator, mutate in OPERATORS.items():
            new = mutate(node)
            if new is not None:
                mutant = tree.visit(_At(node, new))
                assert isinstance(mutant, cst.Module)
                yield operator, cst.parse_module(mutant.code)


def is_found(name: str, mutant: cst.Module) -> bool:
    text = ModuleTexts(ENTRY, parsed(name, "before"), mutant)
    return bool(check([text], (), ModulePaths({ENTRY: Place(ENTRY)})).violations)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == SHOWN else pytest.mark.slow) for n in MIGRATED])
def test_faults_are_found(name: str) -> None:
    outcomes = [(operator, is_found(name, mutant)) for operator, mutant in mutants(name)]
    assert len({operator for operator, _ in outcomes}) >= 5, "hardly a fault fits: the operators are out of date"
    survived = {operator for operator, found in outcomes if not found}
    assert sum(found for _, found in outcomes) >= FLOOR * len(outcomes)
    assert survived <= {operator for fixture, operator in SURVIVORS if fixture == name}


@pytest.mark.parametrize("name", MIGRATED)
def test_nothing_is_found_without_a_fault(name: str) -> None:
    assert not is_found(name, cst.parse_module(parsed(name, "after").code))
