"""
Modules that only compute: in an evaluation a loss of the script's own gives figures of a batch, and ``nn.Softmax()``
goes on with what the model has given. Neither is its forward pass.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.values import State, origins
from ..syntax.walk import descendants
from ..training.training import Training
from ..training.weights import has_weights
from .engine.layout import holds_figure
from .loop_layouts import LoopLayouts


def without_criteria(
    state: State, reach: Reach, training: Training, loop: cst.For, layouts: LoopLayouts, *, going_on: bool = False
) -> Training:
    """
    The training as an evaluation loop sees it: without the calls of modules that have no weights and reduce the rows of
    a batch to a figure, and without what runs in them; with ``going_on`` also of those that are given what another
    forward pass gives.

    Unchanged where no other module runs in the loop. What such a module makes of a forward pass in its own arguments is
    the result of that pass: `loss = judge(model(x), y)`.
    """
    inside = set(descendants(loop))
    calls = [node for node in inside if node in training.forwards and isinstance(node, cst.Call)]
    bare = {
        call
        for call in calls
        if _is_bare(state, call) and (holds_figure(layouts.value(call)) or (going_on and _goes_on(state, call)))
    }
    losses = {call for call in bare if all(part is call or part not in calls for part in descendants(call))}
    if not losses:
        return training
    running = [node for node in reach.runs_in(loop) if isinstance(node, cst.Call) and node in training.forwards]
    deeper = (call for call in running if call not in inside and state.calls[call].unit.module_class(call) is not None)
    left = losses.union(call for call in deeper if _is_bare(state, call))
    if left.issuperset(running):
        return training
    return replace(training, forwards={call: one for call, one in training.forwards.items() if call not in left})


def _goes_on(state: State, call: cst.Call) -> bool:
    """Whether what a call is given comes from the forward pass of another one."""
    given = [state.values.get(arg.value) for arg in call.args]
    return any(output.node is not call for slot in given for output in origins(slot, Role.OUTPUT))


def _is_bare(state: State, call: cst.Call) -> bool:
    """Whether no module that a call runs has weights."""
    return not any(has_weights(state, model) for model in state.forwards[call])
