"""What chance decides after ``prepare``, from where on torch's generator differs from process to process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.values import State, Unit
from ..analysis.devices.use_before_prepare import Stands
from ..analysis.training.draws import sites_of, split_draws, weight_draws
from ..facts.roles import Role
from ..findings import Finding, Severity
from .prepare import PreparePlan


def too_late(state: State, reach: Reach, plan: PreparePlan) -> Iterator[tuple[Unit, Finding]]:
    """The weights and the random splits that are drawn after the last ``prepare`` of a model."""
    prepared: dict[Code, list[Stands]] = {}
    for origin, stands in plan.stands.items():
        if origin.role is Role.MODEL:
            prepared.setdefault(stands.unit.names.function(stands.prepare.node), []).append(stands)
    callers = _callers(reach, prepared)
    for draws, finding in ((weight_draws(state, reach), _redrawn), (split_draws(state, reach), _split)):
        for draw in draws:
            sites = [(site, reach.function_of(site)) for site in sites_of(reach, draw)]
            below = (
                site
                for site, code in sites
                if code in prepared and not any(stands.follows(stands.unit, site) for stands in prepared[code])
            )
            above = (
                site
                for site, code in sites
                if code in callers and all(_ends_later(reach, site, call) for call in callers[code])
            )
            late = next(below, None) or next(above, None)
            if late is not None:
                yield state.calls[late].unit, finding(late)


def _callers(reach: Reach, codes: Iterable[Code]) -> dict[Code, list[cst.Call]]:
    """The code that comes to some code by calls, and those calls."""
    found: dict[Code, list[cst.Call]] = {}
    pending, seen = list(codes), set(codes)
    while pending:
        for site in reach.sites(pending.pop()):
            code = reach.function_of(site)
            found.setdefault(code, []).append(site)
            if code not in seen:
                seen.add(code)
                pending.append(code)
    return {code: calls for code, calls in found.items() if code in reach.reachable}


def _ends_later(reach: Reach, one: cst.Call, other: cst.Call) -> bool:
    """Whether a call of the same code is made after another one has returned."""
    names = reach.state.calls[one].unit.names
    if names.end(one) != names.end(other):
        return names.end(one) > names.end(other)
    return names.order(one) < names.order(other)  # `Trainer().fit()`


def _redrawn(site: cst.Call) -> Finding:
    return Finding(
        "late-draw",
        site,
        "weights are drawn here after prepare(...), from where on each process draws other numbers: ranks would train "
        "different weights",
        "draw them before the model is prepared; in a loop over folds, build the model and its optimizer in each round",
        Severity.BLOCKED,
    )


def _split(site: cst.Call) -> Finding:
    return Finding(
        "late-draw",
        site,
        "this random split is drawn after prepare(...), from where on each process draws other numbers: ranks would "
        "split differently, and train on rows that others test on",
        "draw it before the model is prepared, or give it a generator: generator=torch.Generator().manual_seed(0)",
        Severity.BLOCKED,
    )
