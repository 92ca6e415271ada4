"""
What a wrapper around a model hides: its own attributes, methods and class. Asked where ``prepare`` wraps models.

Reading is done on the model itself. A method that trains would bypass the wrapper, and with it the exchange of
gradients: the script is not migrated to such a runtime before it calls the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from ..analysis.dataflow.call_graph import Reach
from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.values import Instance, State, Unit, origins
from ..analysis.devices.use_before_prepare import Stands
from ..analysis.effects.checkpoints import in_front
from ..analysis.training.training import Training
from ..facts.roles import Origin, Role
from ..facts.torch_api import questions
from ..findings import Finding, Severity

_OF_WRAPPERS = frozenset({"module", "training", "device", "forward"})


def hidden(
    state: State, unit: Unit, reach: Reach, training: Training, stands: Mapping[Origin, Stands]
) -> Iterator[cst.BaseExpression | Finding]:
    """The models to unwrap where something of their own is read, and findings where that would not train."""
    for node in state.evaluated(unit):
        if not isinstance(node, cst.Attribute):
            continue
        if node.attr.value in _OF_WRAPPERS | questions.of_modules() or not _is_wrapped(
            state, unit, reach, stands, node, node.value
        ):
            continue
        call = unit.names.parents[node]
        called = isinstance(call, cst.Call) and call.func is node
        if isinstance(call, cst.Call) and called and _runs_backward(reach, training, call):
            yield _apart(
                call,
                f"the training is in .{node.attr.value}()",
                "train in a function that is given the model and calls it",
            )
        elif isinstance(call, cst.Call) and called and _trains(state, unit, reach, training, call):
            yield _apart(
                call,
                f"training uses the result of .{node.attr.value}()",
                "call the method from forward() and call the model",
            )
        else:
            yield node.value
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is not None and call.args and outside_name(record) in ("builtins.isinstance", "builtins.len"):
            if _is_wrapped(state, unit, reach, stands, call, call.args[0].value):
                yield call.args[0].value


def kept_before(
    state: State, unit: Unit, reach: Reach, training: Training, stands: Mapping[Origin, Stands]
) -> Iterator[Finding]:
    """Findings for training that calls a model by an object which was given it before it was wrapped."""
    for call in unit.names.calls:
        func = call.func
        if call not in training.forwards or not isinstance(func, cst.Attribute):
            continue
        if not any(loop in training.train_loops for loop in reach.batch_loops(call, unit)):
            continue
        keepers = state.values.get(func.value)
        for model in origins(state.values.get(func), Role.MODEL):
            for keeper in keepers.things if keepers is not None and model in stands else ():
                if isinstance(keeper, Instance) and _is_kept(state, reach, stands[model], keeper, func.attr.value):
                    text = unit.names.one_line(func)
                    yield _kept(call, text)
                    break


def _kept(call: cst.Call, text: str) -> Finding:
    return Finding(
        "wrapped-model",
        call,
        f"`{text}` is the model as it was before prepare(...), because its object was made before that: Accelerate "
        "averages gradients only for calls of what prepare(...) gives, and these would stay local to each process",
        "make the object after prepare(...), or give it the prepared model, or migrate with --target torchlift, which "
        "wraps nothing",
        Severity.BLOCKED,
        case="kept",
    )


def _is_kept(state: State, reach: Reach, stands: Stands, keeper: Instance, attribute: str) -> bool:
    """Whether an object is made before the model is wrapped, and nothing outside its class gives it the model again."""
    maker = next((unit for unit in reach.units if keeper.node in unit.names.parents), None)
    if maker is None or not in_front(stands, maker, reach, keeper.node):
        return False
    scope = stands.unit.names.scopes[stands.unit.names.function(stands.prepare.node)]
    for name in stands.prepare.names:
        root, _, own = name.rpartition(".")
        binding = scope.lookup(root) if root else None
        if own == attribute and binding is not None and keeper in state.binding(binding).things:
            return False
    return not any(_gives_again(state, unit, keeper, attribute) for unit in reach.units)


def _gives_again(state: State, unit: Unit, keeper: Instance, attribute: str) -> bool:
    """Whether an assignment outside the class of an object sets such an attribute of it."""
    for target in unit.names.every(cst.AssignTarget):
        one = target.target if isinstance(target, cst.AssignTarget) else None
        parts = [e.value for e in one.elements] if isinstance(one, (cst.Tuple, cst.List)) else [one]
        own = [part for part in parts if isinstance(part, cst.Attribute) and part.attr.value == attribute]
        if any((slot := state.values.get(part.value)) is not None and keeper in slot.things for part in own):
            if keeper.klass.node not in unit.names.ancestors(target):
                return True
    return False


def _apart(call: cst.Call, cause: str, remedy: str) -> Finding:
    return Finding(
        "wrapped-model",
        call,
        f"{cause}, but Accelerate averages gradients only for calls of the model itself: those of a method would stay "
        "local to each process",
        f"{remedy}, or migrate with --target torchlift, which wraps nothing",
        Severity.BLOCKED,
        case="method",
    )


def _is_wrapped(
    state: State, unit: Unit, reach: Reach, stands: Mapping[Origin, Stands], node: cst.CSTNode, model: cst.CSTNode
) -> bool:
    """Whether an expression gives a model that is wrapped by then, seen from outside of its class."""
    held = [o for o in origins(state.values.get(model), Role.MODEL) if o in stands]
    if not held or unit.names.function(node) not in reach.reachable:
        return False
    classes = (unit.classes.get(a) for a in unit.names.ancestors(node) if isinstance(a, cst.ClassDef))
    if any(klass is not None and klass.role is not None for klass in classes):
        return False
    return any(not in_front(stands[origin], unit, reach, node) for origin in held)


def _runs_backward(reach: Reach, training: Training, call: cst.Call) -> bool:
    """Whether a method runs a backward pass: ``model.fit(loader, optimizer)``."""
    inside = {code for function in reach.called(call) for code in reach.below(function)}
    return any(reach.function_of(record.node) in inside for record in training.backwards)


def _trains(state: State, unit: Unit, reach: Reach, training: Training, call: cst.Call) -> bool:
    """Whether a method's tensors are computed in a loop that trains."""
    given = bool(origins(state.calls[call].result, Role.OUTPUT, Role.LOSS)) if call in state.calls else False
    return given and any(loop in training.train_loops for loop in reach.batch_loops(call, unit))
