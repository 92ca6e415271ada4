"""
Gradient accumulation by hand: a window of batches before each optimizer step, understood as a whole or left as it is.

Left as it is it stays right: gradients of every batch are averaged over the processes, and added up. It becomes the
accelerator's if nothing else depends on it: the window is counted with ``enumerate``, its short rest at the end of the
loader is stepped, the loss is divided by the window, and whatever reads the loss afterwards multiplies it back.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import CallRecord, State, Unit, origins
from ..analysis.layouts.loop_step import plain
from ..analysis.layouts.loss_reductions import LossReductions
from ..analysis.precision.switches import Switches
from ..analysis.syntax.nodes import counter
from ..analysis.syntax.walk import descendants, nodes_in
from ..analysis.training.training import Training
from ..facts.module import Accumulation
from ..facts.roles import Role

_GATED = ("step", "zero_grad")


@dataclass(eq=False)
class Window:
    """The accumulation of a program: what the rule edits, and what the constructor's argument reads."""

    unit: Unit
    fact: Accumulation
    steps: str
    """Source text of the number of batches in a window."""
    names: frozenset[str]


def window_of(
    state: State, reach: Reach, training: Training, code: Code | None, reductions: LossReductions
) -> Window | None:
    """The window of a program with one training loop that accumulates; None where there is none to take over."""
    found = [
        w
        for loop in training.train_loops
        if (w := _WindowReader(state, reach, training, code, reductions).read(loop)) is not None
    ]
    return found[0] if len(found) == 1 else None


class _WindowReader:
    """Reads one training loop."""

    def __init__(
        self, state: State, reach: Reach, training: Training, code: Code | None, reductions: LossReductions
    ) -> None:
        self.state, self.reach, self.training, self.code = state, reach, training, code
        self.reductions = reductions

    def read(self, loop: cst.CSTNode) -> Window | None:
        """The window of one loop, if each condition holds."""
        unit = next((u for u in self.reach.units if loop in u.names.parents), None)
        if unit is None or not isinstance(loop, cst.For) or not isinstance(loop.body, cst.IndentedBlock):
            return None
        body = loop.body.body
        number = counter(loop, from_zero=True)
        inside = set(descendants(loop))
        backwards = [r for r in self.training.backwards if r.node in inside]
        gates = [s for s in body if isinstance(s, cst.If) and s.orelse is None and self._steps_in(s)]
        if self.code is None or number is None or len(backwards) != 1 or len(gates) != 1:
            return None
        gate, record = gates[0], backwards[0]
        size = self._size(unit, gate.test, number.value, loop)
        if size is None or unit.names.statement(record.node) not in body or not self._only_there(gate, inside):
            return None
        return self._window(unit, loop, gate, record, size)

    def _window(
        self, unit: Unit, loop: cst.For, gate: cst.If, record: CallRecord, size: cst.BaseExpression
    ) -> Window | None:
        loss = _divided(loop, record, size)
        known = Switches(self.state, self.reach, self.code).known(unit, size) if self.code is not None else None
        models = self._models(unit, loop)
        if loss is None or known is None or not models:
            return None
        statement, quotient, name = loss
        where = unit.names.statement(quotient) if quotient is not None and not _in(quotient, record.node) else None
        products = _multiplied(unit, loop, name, size, {record.node, statement, quotient, where})
        func = record.node.func
        if products is None or not isinstance(func, cst.Attribute) or self.reductions.of(record).word != "mean":
            return None
        fact = Accumulation(loop, gate, statement, quotient, tuple(products), tuple(models))
        return Window(unit, fact, known.text, known.names)

    def _steps_in(self, gate: cst.If) -> bool:
        inside = set(descendants(gate.body))
        return any(record.node in inside for record in self.training.steps)

    def _only_there(self, gate: cst.If, inside: set[cst.CSTNode]) -> bool:
        """Whether the loop steps and clears gradients nowhere but directly in the gate's block."""
        direct = {
            small.value
            for statement in gate.body.body
            if isinstance(statement, cst.SimpleStatementLine)
            for small in statement.body
            if isinstance(small, cst.Expr)
        }
        for node in inside:
            if isinstance(node, cst.Call) and method_name(node) in _GATED and node in self.state.calls:
                held = origins(self.state.calls[node].receiver, Role.OPTIMIZER, Role.SCHEDULER, Role.MODEL, Role.SCALER)
                if held and node not in direct:
                    return False
        return True

    def _size(self, unit: Unit, test: cst.BaseExpression, number: str, loop: cst.For) -> cst.BaseExpression | None:
        """The size ``N`` from ``(i + 1) % N == 0 or i + 1 == len(loader)``; none where a rest is dropped."""
        if not isinstance(test, cst.BooleanOperation) or not isinstance(test.operator, cst.Or):
            return None
        sides = (test.left, test.right)
        for one, other in (sides, sides[::-1]):
            size = _modulus(one, number)
            if size is not None and self._is_end(unit, other, number, loop):
                return size
        return None

    def _is_end(self, unit: Unit, node: cst.BaseExpression, number: str, loop: cst.For) -> bool:
        text = "".join(unit.names.module.code_for_node(node).split())
        source = loop.iter.args[0].value if isinstance(loop.iter, cst.Call) else loop.iter
        length = f"len({unit.names.module.code_for_node(source)})"
        ends = (
            f"{number}+1=={length}",
            f"({number}+1)=={length}",
            f"{length}=={number}+1",
            f"{number}=={length}-1",
        )
        return text in ends or text in [f"({end})" for end in ends]

    def _models(self, unit: Unit, loop: cst.For) -> list[str]:
        """The names of the models that the loop runs forward."""
        found: dict[str, None] = {}
        for node in nodes_in(loop.body, cst.Call):
            if node in self.training.forwards:
                if not isinstance(node.func, (cst.Name, cst.Attribute)):
                    return []
                found[unit.names.module.code_for_node(node.func)] = None
        return list(found)


def _modulus(node: cst.BaseExpression, number: str) -> cst.BaseExpression | None:
    """``N`` of ``(number + 1) % N == 0``."""
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return None
    target = node.comparisons[0]
    zero = isinstance(target.comparator, cst.Integer) and target.comparator.evaluated_value == 0
    if not isinstance(target.operator, cst.Equal) or not zero or not isinstance(node.left, cst.BinaryOperation):
        return None
    count = node.left.left
    if not isinstance(node.left.operator, cst.Modulo) or not isinstance(count, cst.BinaryOperation):
        return None
    sides = {part.value for part in (count.left, count.right) if isinstance(part, (cst.Name, cst.Integer))}
    return node.left.right if isinstance(count.operator, cst.Add) and sides == {number, "1"} else None


def _divided(
    loop: cst.For, record: CallRecord, size: cst.BaseExpression
) -> tuple[cst.CSTNode | None, cst.CSTNode | None, str] | None:
    """The statement, or the operand of the backward pass, that divides the loss by the window, and the loss's name."""
    func = record.node.func
    receiver = func.value if isinstance(func, cst.Attribute) else None
    if isinstance(receiver, cst.BinaryOperation) and _is_quotient(receiver, size):
        return (None, receiver, receiver.left.value) if isinstance(receiver.left, cst.Name) else None
    if not isinstance(receiver, cst.Name):
        return None
    found = [s for s in loop.body.body if _divides(s, receiver.value, size)]
    made = [q for s in plain(loop.body) if (q := _made_divided(s, receiver.value, size)) is not None]
    if len(found) == 1 and not made:
        return found[0], None, receiver.value
    return (None, made[0], receiver.value) if len(made) == 1 and not found else None


def _made_divided(statement: cst.CSTNode, name: str, size: cst.BaseExpression) -> cst.BinaryOperation | None:
    """The quotient of ``loss = criterion(...) / N``."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    if not isinstance(small, cst.Assign) or len(small.targets) != 1 or not isinstance(small.value, cst.BinaryOperation):
        return None
    target, value = small.targets[0].target, small.value
    plainly = isinstance(target, cst.Name) and target.value == name and not _reads(value.left, name)
    return value if plainly and _is_quotient(value, size) else None


def _reads(node: cst.CSTNode, name: str) -> bool:
    return any(n.value == name for n in nodes_in(node, cst.Name))


def _in(node: cst.CSTNode, around: cst.CSTNode) -> bool:
    return any(node is below for below in descendants(around))


def _divides(statement: cst.CSTNode, name: str, size: cst.BaseExpression) -> bool:
    """Whether a statement is ``loss = loss / N`` or ``loss /= N``."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    if isinstance(small, cst.AugAssign):
        divides = isinstance(small.operator, cst.DivideAssign) and bool(small.value.deep_equals(size))
        return divides and isinstance(small.target, cst.Name) and small.target.value == name
    if not isinstance(small, cst.Assign) or not isinstance(small.value, cst.BinaryOperation):
        return False
    pair = (small.targets[0].target, small.value.left)
    return all(isinstance(n, cst.Name) and n.value == name for n in pair) and _is_quotient(small.value, size)


def _is_quotient(node: cst.BinaryOperation, size: cst.BaseExpression) -> bool:
    return isinstance(node.operator, cst.Divide) and bool(node.right.deep_equals(size))


def _multiplied(
    unit: Unit, loop: cst.For, name: str, size: cst.BaseExpression, known: set[cst.CSTNode | None]
) -> list[cst.BinaryOperation] | None:
    """The products that undo the division where the loss is read; None where something reads the divided loss."""
    products: list[cst.BinaryOperation] = []
    body = plain(loop.body)
    divided = next((i for i, s in enumerate(body) if s in known), None)
    start = divided + 1 if divided is not None else 0
    for statement in body[start:]:
        for node in nodes_in(statement, cst.Name):
            if node.value != name or node not in unit.names.within:
                continue
            around = list(unit.names.ancestors(node))
            if any(a in known for a in around) or _is_target(unit, node):
                continue
            if divided is None:
                continue  # the loss itself is never divided, only what the backward pass starts from
            product = next((a for a in around[:3] if isinstance(a, cst.BinaryOperation)), None)
            if product is None or not isinstance(product.operator, cst.Multiply) or not product.right.deep_equals(size):
                return None
            products.append(product)
    return products


def _is_target(unit: Unit, node: cst.Name) -> bool:
    return isinstance(unit.names.parents.get(node), cst.AssignTarget)
