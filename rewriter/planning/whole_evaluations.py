"""Evaluations that every process runs on the whole data set: slower than to share them, and right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import libcst as cst

from ..analysis.dataflow.values import origins
from ..analysis.distributed.apart import condition, said
from ..analysis.layouts.batch_figures import Kind
from ..analysis.layouts.by_hand.plan import ShardedBatches
from ..analysis.layouts.evaluated_sums import summed_first
from ..analysis.layouts.metrics import Evaluation
from ..analysis.layouts.sums_of_means import mean_of_batches, not_summed
from ..analysis.syntax.walk import descendants
from ..facts.module import Form
from ..facts.roles import Role
from ..findings import Severity
from ..wording import worded
from .attempt import Attempt
from .program import ProgramFacts
from .reached_module import ReachedModule
from .shared_code import may_be_given

Left = Mapping[cst.CSTNode, str]
"""Evaluation loops that are left whole, and why."""


def with_left(evaluations: Sequence[Evaluation], left: Left) -> list[Evaluation]:
    """The evaluations, some of them left whole."""
    found = [replace(evaluation) for evaluation in evaluations]
    for evaluation in found:
        if evaluation.loop in left:
            evaluation.leave(left[evaluation.loop])
    return found


def leave_from_the_start(program: ProgramFacts, evaluations: Sequence[Evaluation]) -> None:
    """Leave the evaluations whole that can be gathered nowhere, wherever the accelerator comes."""
    _leave_shared(program, evaluations)
    _leave_trained_on(program, evaluations)
    _leave_alone(program, evaluations)
    _leave_drawn_from(program, evaluations)
    _leave_sums_of_means(program, evaluations)
    _leave_sums_of_rows(program, evaluations)


def without_accelerator(found: Attempt) -> Left:
    """The evaluations to leave whole because their gather cannot be written: the accelerator does not come there."""
    modules = {unit: ReachedModule(part, found.way) for unit, part in found.parts.items()}
    gathered = [(e.loop, e.unit, e.gather.node) for e in found.evaluations if e.gather is not None]
    lost = [loop for loop, unit, node in gathered if not modules[unit].here(node)]
    return dict.fromkeys(lost, "it has no access to the accelerator")


def undecided(found: Attempt) -> bool:
    """Whether a decision would be one process's own, and processes could part by it."""
    findings = (worded(reason) for part in found.parts.values() for reason in part.findings)
    return any(f.id == "local-decision" and f.severity is Severity.BLOCKED for f in findings)


def to_decide(found: Attempt) -> Left:
    """The evaluations whose figures differ until they are gathered, where a decision is open: left whole, they are
    equal everywhere."""
    shared = [e.loop for e in found.evaluations if e.understood and (e.gather is not None or e.parts)]
    because = "a decision depends on one of its metrics, which could not be gathered"
    return dict.fromkeys(shared, because) if shared and undecided(found) else {}


def _leave_shared(program: ProgramFacts, evaluations: Sequence[Evaluation]) -> None:
    """Leave the evaluation loops alone that files outside the program run as well, and that cannot gather there."""
    for evaluation in evaluations:
        code = evaluation.unit.names.function(evaluation.loop)
        user = program.shared.get(code)
        if user is None or not evaluation.understood:
            continue
        given = may_be_given(program.reach, program.shared, code)
        program.optional.update(given)
        if not given:
            evaluation.leave(f"{user} also runs it, with a loader that is not prepared")


def _leave_sums_of_means(program: ProgramFacts, evaluations: Sequence[Evaluation]) -> None:
    """Leave the evaluations whole that add up a mean of each batch, and divide by something else than their number:
    gathered batches are fewer. Not those over a loader of the training, which is prepared in any case."""
    if program.config.keep_global_batch:
        return
    trained = {loader for loop in program.training.train_loops for loader in program.reach.loaders(loop)}
    for evaluation in evaluations:
        if not evaluation.understood or not (evaluation.gather or evaluation.parts):
            continue
        unit, sums = evaluation.unit, {f.node: f.name for f in evaluation.figures if f.kind in (Kind.SUM, Kind.SCALED)}
        found = dict(mean_of_batches(program.reach, unit, {evaluation.loop}))
        joined = [gather for gather in (evaluation.gather, *evaluation.parts) if gather is not None]
        if program.abilities.adds_means:
            joined = summed_first(program.state, unit, found, joined)
        left = not_summed(found, joined)
        sums = {node: name for node, name in sums.items() if node not in found or node in left}
        for node in left:
            sums[node] = unit.names.one_line(node.target) if isinstance(node, cst.AugAssign) else ""
        if sums and trained.isdisjoint(evaluation.loaders):
            at, name = next(iter(sums.items()))
            evaluation.figures = ()
            evaluation.leave(f"`{name}` sums up a mean of each batch, and gathered batches are fewer", at=at)


def _leave_sums_of_rows(program: ProgramFacts, evaluations: Sequence[Evaluation]) -> None:
    """Leave the evaluations whole in which a model or a module gives the sum over its rows: of the rows that fill up a
    last batch nothing can be taken out of it again, and what is divided by does not count them."""
    if program.config.keep_global_batch:
        return
    for evaluation in evaluations:
        joined = [gather for gather in (evaluation.gather, *evaluation.parts) if gather is not None]
        name = next((name for gather in joined for name, reduction in gather.figures if reduction == "sum"), None)
        part = next((g for g in joined if g.form is Form.REDUCE and g.reduction == "sum"), None)
        if evaluation.understood and (name is not None or part is not None):
            text = name if name is not None else evaluation.unit.names.one_line(part.node) if part is not None else ""
            evaluation.figures = ()
            evaluation.leave(
                f"`{text}` is a sum over the rows of its batch, and would count the rows that fill up a last batch",
                at=part.node if part is not None else None,
            )


def _leave_trained_on(program: ProgramFacts, evaluations: Sequence[Evaluation]) -> None:
    """Leave the evaluation loops alone whose tensors a backward pass flows through: an attack on the model."""
    for evaluation in evaluations:
        gathers = (g for g in (evaluation.gather, *evaluation.parts) if g is not None)
        if any(program.gradient_path.cuts(evaluation.unit, gather) for gather in gathers):
            evaluation.leave("a backward pass goes through the value that would be gathered")


def _leave_alone(program: ProgramFacts, evaluations: Sequence[Evaluation]) -> None:
    """Leave the evaluation loops alone that only one process runs, by the script's own condition on the rank."""
    for evaluation in evaluations if program.existing is None else ():
        asked = condition(program.guards, evaluation.unit, evaluation.loop)
        if asked is not None:
            evaluation.leave(f"only processes with {said(asked)} run this evaluation")
            evaluation.alone = True


def _leave_drawn_from(program: ProgramFacts, evaluations: Sequence[Evaluation]) -> None:
    """Leave the evaluations whole of loaders that a training draws its batches from by itself, ``next(iter(loader))``:
    prepared, a loader would give shards, and each process would train on a shard of a shard."""
    batches = program.batches.batches if isinstance(program.batches, ShardedBatches) else []
    nodes = (node for _, batch in batches for node in descendants(batch.node))
    drawn = {o for node in nodes for o in origins(program.state.values.get(node), Role.LOADER)}
    for evaluation in evaluations:
        if not drawn.isdisjoint(evaluation.loaders):
            evaluation.leave("the training draws batches from the same loader by itself, and shares them")
