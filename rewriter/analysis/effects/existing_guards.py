"""What is already under a condition on the main process, and what no such condition may enclose."""

from __future__ import annotations

from collections.abc import Container

import libcst as cst

from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.drawn_batches import iterable_opened, iterator_drawn
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import plain_values
from ..syntax.walk import descendants, nodes_in
from ..training.training import Training


def starred(call: cst.Call) -> bool:
    """Whether a call hides some of its keywords in ``**``."""
    return any(arg.star == "**" for arg in call.args)


def guarded(state: State, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether only the main process (of the job, or of a machine) comes to a node: also where each call of its function
    is under such a condition."""
    return state.once((guarded, node), lambda: _guarded(state, unit, node, frozenset()))


def _guarded(state: State, unit: Unit, node: cst.CSTNode, seen: frozenset[cst.CSTNode]) -> bool:
    below: cst.CSTNode = node
    for around in unit.names.ancestors(node):
        if around.__class__ in _BRANCHES and below is around.body and names_main(state, around.test):
            return True
        below = around
    code = unit.names.function(node)
    sites = [] if code in seen or code in state.escaped else [state.calls[call] for call in state.sites.get(code, ())]
    return bool(sites) and all(_guarded(state, site.unit, site.node, seen | {code}) for site in sites)


def names_main(state: State, expression: cst.CSTNode) -> bool:
    """Whether an expression asks the accelerator for the main process."""
    return state.once((names_main, expression), lambda: _names_main(state, expression))


def _names_main(state: State, expression: cst.CSTNode) -> bool:
    for part in nodes_in(expression, cst.Attribute):
        if part.attr.value.endswith("main_process"):
            if origins(state.values.get(part.value), Role.ACCELERATOR):
                return True
    return False


def silent_elsewhere(state: State, unit: Unit, value: cst.BaseExpression | None) -> bool:
    """Whether what a bar is given as ``disable`` already asks which process this is, or is ``True``."""
    if value is None:
        return False
    read = [made for name in nodes_in(value, cst.Name) for made in plain_values(unit.names, name)]
    asked = any(origins(state.values.get(part), Role.PLACE) for each in (value, *read) for part in descendants(each))
    always = isinstance(value, cst.Name) and value.value == "True"
    return always or asked or any(names_main(state, each) for each in (value, *read))


def is_elif(unit: Unit, node: cst.If) -> bool:
    """Whether an ``if`` goes on with another one, and is no statement of a block."""
    return not isinstance(unit.names.parents.get(node), (cst.IndentedBlock, cst.Module))


def in_turn(state: State, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a call or a statement is already under ``accelerator.main_process_first()``."""
    return any(
        origins(state.calls[item.item].receiver, Role.ACCELERATOR)
        for around in unit.names.enclosing(node, cst.With)
        for item in getattr(around, "items", ())
        if isinstance(item.item, cst.Call) and item.item in state.calls
    )


class Together:
    """What all processes must do together: no guard may enclose it."""

    def __init__(self, state: State, reach: Reach, training: Training, reduced: Container[cst.CSTNode]) -> None:
        """``reduced``: nodes at which a rule will put a collective call."""
        self.state, self.reach, self.training, self.reduced = state, reach, training, reduced

    def __call__(self, unit: Unit, statement: cst.CSTNode) -> bool:
        """Whether a piece of code runs a model, draws from a loader or calls a collective."""
        return any(self._is(node) for node in self.reach.runs(statement, unit))

    def starts(self, call: cst.Call) -> bool:
        """Whether a call itself, not one of its arguments, is such a thing."""
        return self._is(call) or any(self(self.reach.unit(f), f.body) for f in self.reach.called(call))

    def _is(self, node: cst.CSTNode) -> bool:
        training = self.training
        if node in training.forwards or node in training.train_loops or node in training.eval_loops:
            return True
        if node in self.reduced:
            return True
        record = self.state.calls.get(node) if isinstance(node, cst.Call) else None
        if record is None:
            return False
        source = iterator_drawn(record) or iterable_opened(record)
        if source is not None and origins(source[1], Role.LOADER, Role.BATCH):
            return True
        return bool(origins(record.receiver, Role.ACCELERATOR)) and method_name(record.node) not in _LOCAL


_BRANCHES = frozenset({cst.If, cst.IfExp})
_LOCAL = frozenset("print save unwrap_model".split())
"""Methods of the accelerator that the main process may call alone."""
