"""
What becomes of figures where each process has its shard: a length from before the loader is prepared, an evaluation
that leaves out what does not fill a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.reasons import Reason
from ...facts.reasons.batches import DroppedBatches, EarlyLength, PhasesInOneLoop
from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..training.training import Training
from .last_batches import drops_last, option
from .phases import has_phases


def early_lengths(
    state: State, unit: Unit, shared: Container[cst.CSTNode], is_early: Callable[[cst.Call], bool]
) -> Iterator[Reason]:
    """
    Divisions by the length of a loader that was asked for before the loader is prepared: a loop over it is N times
    shorter.

    Args:
        state: the solved program.
        unit: a module.
        shared: the loops whose loaders are prepared.
        is_early: a call comes before `prepare`, in the same code.
    """
    looped = {o for loop, loaders in state.loaders.items() if loop in shared for o in loaders}
    for call in unit.names.calls:
        assign = unit.names.parents.get(call)
        if method_name(call) != "len" or len(call.args) != 1 or not isinstance(assign, cst.Assign):
            continue
        target = assign.targets[0].target
        binding = unit.names.binding(target) if isinstance(target, cst.Name) else None
        if binding is None or len(binding.definitions) != 1 or not is_early(call):
            continue
        if looped.isdisjoint(origins(state.values.get(call.args[0].value), Role.LOADER)):
            continue
        divided = next((read for read in binding.reads if _divides(unit, read)), None)
        if divided is not None:
            length = unit.names.module.code_for_node(call)
            yield EarlyLength(divided, binding.name, length, call)


def _divides(unit: Unit, read: cst.Name) -> bool:
    """Whether a variable is what something is divided by."""
    above = unit.names.parents.get(read)
    if isinstance(above, cst.AugAssign):
        return isinstance(above.operator, cst.DivideAssign)
    return isinstance(above, cst.BinaryOperation) and above.right is read and isinstance(above.operator, cst.Divide)


def dropped_batches(reach: Reach, unit: Unit, training: Training, shared: Container[cst.CSTNode]) -> Iterator[Reason]:
    """Evaluations of a loader that leaves out what does not fill a batch: here, a batch of each process."""
    for loop in reach.state.loaders:
        for loader in _evaluated(reach, training, loop) if loop in shared else ():
            if loader.node in unit.names.parents and True in (answers := drops_last(reach.state, loader)):
                given = option(loader.node)
                text = unit.names.module.code_for_node(given) if given is not None else ""
                yield DroppedBatches(loader.node, False not in answers, text, loader.site is not None)
                return


def _evaluated(reach: Reach, training: Training, loop: cst.CSTNode) -> Iterable[Origin]:
    """
    The loaders that a loop reads for an evaluation.

    A loop that trains in one phase and evaluates in another does not say which loader is for which. Where all but one
    leave out batches, that one may be the evaluation's; where all do, the first is taken to be for training.
    """
    loaders = list(reach.loaders(loop))
    if loop in training.eval_loops:
        return loaders
    unit = next((unit for unit in reach.units if loop in unit.names.parents), None)
    if unit is None or loop not in training.train_loops or not has_phases(reach, unit, training, loop):
        return ()
    return loaders[1:] if all(True in drops_last(reach.state, loader) for loader in loaders) else ()


def filled_batches(
    reach: Reach, unit: Unit, training: Training, gathers: Iterable[Gather], known: Container[cst.CSTNode]
) -> Iterator[Reason]:
    """Losses of a loop that trains in one phase and evaluates in another: the last share is filled up with rows.
    ``known``: statements for which a finding says more."""
    told: set[cst.CSTNode] = set()
    for gather in gathers:
        loop = next((n for n in unit.names.enclosing(gather.node, cst.For) if n in training.train_loops), None)
        if loop is None or loop in told or gather.form is not Form.REDUCE:
            continue
        total = next(unit.names.enclosing(gather.node, cst.AugAssign, cst.Expr), None)
        if total is not None and total not in known and has_phases(reach, unit, training, loop):
            told.add(loop)
            yield PhasesInOneLoop(gather.node, gather.reduction != "mean")
