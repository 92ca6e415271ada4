"""What chance decides about the data before the accelerator exists, which makes the generators equal."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Reach
from ..analysis.dataflow.values import Unit
from ..findings import Finding, Severity
from .accelerator_path import Way


def too_early(reach: Reach, way: Way, draws: list[tuple[Unit, cst.Call]]) -> Iterator[tuple[Unit, Finding]]:
    """The draws that happen before the accelerator exists."""
    for unit, call in draws:
        if _runs_before(reach, way, unit, call, frozenset()):
            yield (
                unit,
                Finding(
                    "unseeded",
                    call,
                    "this random split runs before seeds are synchronised: ranks would split differently",
                    "seed the script at the top (torch.manual_seed, np.random.seed, random.seed), or create the "
                    "accelerator first",
                    Severity.REVIEW,
                ),
            )


def _runs_before(reach: Reach, way: Way, unit: Unit, node: cst.CSTNode, seen: frozenset[cst.CSTNode]) -> bool:
    code = unit.names.function(node)
    if way.home is None or code in seen:
        return False
    if code is way.code:
        return unit.names.order(node) < unit.names.order(way.home[1].node)
    sites = reach.sites(code)
    return any(_runs_before(reach, way, reach.state.calls[s].unit, s, seen | {code}) for s in sites)
