"""
Random numbers in code that treats the same rows on all processes: one batch that is kept and trained on again and
again, a test set that is one tensor, a number that is drawn before a batch is cut by hand.

After `prepare` torch's generators differ between processes, so that dropout makes each process's output another one,
although all pass the same rows. Where a decision depends on such an output, or on such a number, all processes take
that of the main process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.module import Gather
from ...facts.reasons import Reason
from ...facts.reasons.decisions import Differs
from ...facts.roles import Origin
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.constant_values import constants_of
from ..dataflow.values import CallRecord, State, Unit
from ..syntax.nodes import keyword
from ..training.draws import drawn
from ..training.modes import in_training_mode, is_given_mode, is_never_noisy, is_only_evaluated, noisy_layer
from ..training.training import Training, in_model, whole, without_gradient
from .decisions import Decision, deciding, joint_of, undecided
from .divergence import Equality
from .random_evaluations import Receiver, is_in_training_alone, main_decides, spelled_call


class _Pass(NamedTuple):
    """A call of a model, or one that draws."""

    call: cst.Call
    draw: str
    """What draws the random numbers, as the script spells it."""


def agreements_on_noise(
    training: Training,
    equality: Equality,
    own: Iterable[tuple[Unit, Gather]],
    early: Callable[[cst.Call, Origin], bool],
    open_to: Callable[[Unit, cst.CSTNode], bool],
) -> Iterator[tuple[Unit, Gather | Reason]]:
    """
    What makes the decisions equal that depend on such passes, or the findings for those that stay different.

    Args:
        training: that of the program.
        equality: what is equal on all processes, were it not for those passes.
        own: what is made whole already.
        early: whether a model is run only before its ``prepare``.
        open_to: whether a piece of code may be changed: all processes run it, and no other program calls it.
    """
    reach = equality.reach
    found = (*_passes(reach, training, equality, early), *_draws(reach, training, equality))
    passes = {each.call: each for each in found}
    if not passes:
        return
    plain, gathers = equality.but((), own), list(own)
    joint = joint_of(plain)
    draw = next(iter(passes.values())).draw
    receiver = Receiver(
        reach, plain, f"random numbers of each process differ ({draw}), and all must decide alike", open_to
    )

    def left(noisy: Equality) -> list[tuple[Unit, Decision]]:
        def differs(unit: Unit, node: cst.CSTNode) -> bool:
            return not plain.is_local(unit, node) and noisy.is_local(unit, node)

        return [(unit, found) for unit in reach.units for found in deciding(unit, reach, joint, differs)]

    noisy = equality.but(passes, gathers)
    while new := receiver.decided(noisy, left(noisy)):
        yield from new
        gathers += new
        noisy = equality.but(passes, gathers)
    for unit, decision in left(noisy):
        source, remedy = noisy.source_of(unit, decision.value), main_decides(unit, decision)
        draw = passes[source].draw if isinstance(source, cst.Call) and source in passes else draw
        yield unit, undecided(unit, decision, Differs.BY_NOISE, remedy, source, draw=draw)


def _passes(
    reach: Reach, training: Training, plain: Equality, early: Callable[[cst.Call, Origin], bool]
) -> Iterator[_Pass]:
    """The calls of trained models, after ``prepare``, whose outputs differ by random numbers alone."""
    evaluated = [loop for loop in training.eval_loops if loop not in plain.shared]
    trains = _training_turns(reach, training)
    for call, model in training.forwards.items():
        unit, above = reach.state.calls[call].unit, whole(reach.state, model)
        if above not in training.models or early(call, above) or plain.is_local(unit, call):
            continue
        if any(reach.is_run_in(loop, call) for loop in evaluated):
            continue  # what is decided on those figures is received already, or there is a finding
        trained = not without_gradient(unit, call) and any(reach.is_run_in(loop, call) for loop in trains)
        if draw := _noise(reach, training, unit, call, model, trained=trained):
            yield _Pass(call, draw)


def _draws(reach: Reach, training: Training, plain: Equality) -> Iterator[_Pass]:
    """The draws in a turn of a loop that trains: those of its batches, which the main process makes for all, apart."""
    state = reach.state
    for loop in _training_turns(reach, training):
        for node in reach.runs_in(loop) if loop not in plain.shared else ():
            record = state.calls.get(node) if isinstance(node, cst.Call) else None
            if (
                record is not None
                and _draws_apart(reach.state, record)
                and not plain.is_local(record.unit, record.node)
            ):
                if not in_model(record.unit, record.node):
                    yield _Pass(record.node, spelled_call(record.unit, record.node))


def _training_turns(reach: Reach, training: Training) -> list[cst.CSTNode]:
    """The innermost loops around backward passes."""
    return list(dict.fromkeys(loop for r in training.backwards for loop in _loops(reach, r.unit, r.node)))


def _loops(reach: Reach, unit: Unit, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The innermost loops in which a node runs, through whatever function."""
    pending, seen = [(unit, node)], {node}
    while pending:
        unit, node = pending.pop()
        if own := reach.loops(node, unit):
            yield own[0]
            continue
        sites = [site for site in reach.sites(unit.names.function(node)) if site not in seen]
        seen.update(sites)
        pending += [(reach.state.calls[site].unit, site) for site in sites]


def _draws_apart(state: State, record: CallRecord) -> bool:
    """Whether a call draws from torch's own generator."""
    found = drawn(record)
    own = found is not None and found.generator == "torch" and keyword(record.node, "generator") is None
    return own and not is_never_noisy(state, record.node)


def _noise(reach: Reach, training: Training, unit: Unit, call: cst.Call, model: Origin, *, trained: bool) -> str:
    """What draws from torch's generator in a forward pass; what is trained on runs in training mode."""
    state = reach.state
    quiet = is_only_evaluated(reach, training, model) or not (trained or in_training_mode(reach, unit, call))
    for node in reach.runs(call, unit):
        record = state.calls.get(node) if isinstance(node, cst.Call) else None
        if record is None or not _draws_apart(state, record):
            continue
        off = quiet and (is_given_mode(record.node) or is_in_training_alone(reach, record.unit, record.node))
        if not off and not constants_of(state).never(record.unit, record.node):
            return spelled_call(record.unit, record.node)
    layer = _layer(reach, training, unit, call, model) if not quiet else None
    return f"{spelled_call(*layer)} in training mode" if layer is not None else ""


def _layer(reach: Reach, training: Training, unit: Unit, call: cst.Call, model: Origin) -> tuple[Unit, cst.Call] | None:
    """The call that makes a layer with noise, or a model of a library, which may have such layers."""
    record = reach.state.calls.get(model.node) if isinstance(model.node, cst.Call) else None
    known = record is None or outside_name(record).startswith("torch.nn.") or reach.state.klass.get(model) is not None
    layer = noisy_layer(reach, training, unit, call)
    return (record.unit, record.node) if layer is None and record is not None and not known else layer
