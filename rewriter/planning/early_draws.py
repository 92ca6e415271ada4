"""What runs before the accelerator exists, which makes the generators equal, and what chance decides there."""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.running_order import follows
from ..analysis.dataflow.values import CallRecord, State, Unit
from ..analysis.layouts.random_splits import OwnSeed, divides, own_seeds
from ..analysis.syntax.walk import descendants
from ..analysis.training.draws import plain_draws
from ..facts.reasons import Reason
from ..facts.reasons.draws import OwnSeedDrawn, Unseeded
from ..facts.roles import Role
from ..facts.torch_api import randomness
from .accelerator_path import Way


def too_early(
    reach: Reach, way: Way, draws: list[tuple[Unit, cst.Call]], rows: Container[cst.CSTNode]
) -> Iterator[tuple[Unit, Reason]]:
    """The draws that happen before the accelerator exists: those that become neither rows (``rows``: what these are
    made of) nor a constant of a model only in the code that creates it, where they can be drawn after that."""
    before = Before(reach, way)
    classes = [klass for unit in reach.units for klass in unit.classes.values() if klass.role is Role.MODEL]
    kept = {node: (name, klass) for klass in classes for name, node in plain_draws(reach.state, klass)}
    for unit, call in draws:
        effect = "would go on with other values"
        if divides(reach.state, call):
            effect = "would split or order the data differently"
        elif call in rows:
            effect = "would make different data, and each read a part of its own"
        elif call in kept:
            name, klass = kept[call]
            effect = f"would compute other functions: `{name}` of {klass.node.name.value} is no parameter"
        elif unit.names.function(call) is not way.code:
            continue
        if before(unit, call):
            yield unit, _unseeded(unit, call, effect)


def seeded_apart(
    state: State, reach: Reach, way: Way, given: Container[cst.CSTNode], rows: Container[cst.CSTNode]
) -> Iterator[tuple[Unit, Reason]]:
    """
    The seeds that differ between processes, and by which rows are made, chosen or ordered.

    Not those of NumPy's and Python's generators that are made equal after that, when the accelerator is created, unless
    one of torch's differs as well; nor those that are drawn when the generators are equal. ``given``: calls whose
    values all processes receive from the main process; ``rows``: calls that rows are made of.
    """
    before = Before(reach, way)

    def is_draw(source: cst.CSTNode) -> bool:
        return isinstance(source, cst.Call) and randomness.draws(outside_name(state.calls[source])) is not None

    def differs(source: cst.CSTNode) -> bool:
        unit = state.calls[source].unit if isinstance(source, cst.Call) else None
        return source not in given and (not is_draw(source) or (unit is not None and before(unit, source)))

    seeds = [e for e in own_seeds(state, reach, rows) if not e.sources or any(map(differs, e.sources))]
    torch = any(each.generator == "torch" for each in seeds)
    for each in seeds:
        draw = each.draw
        if draw is None:
            continue
        equal = each.generator in ("numpy", "python") and not torch and before(each.unit, each.seed)
        if not equal or (any(map(is_draw, each.sources)) and before(draw.unit, draw.node)):
            yield each.unit, _apart(each, draw)


def _apart(found: OwnSeed, drawn: CallRecord) -> Reason:
    seed, draw = (unit.names.one_line(call) for unit, call in ((found.unit, found.seed), (drawn.unit, drawn.node)))
    sure = not found.sources or any(node in found.sources for node in descendants(found.seed))
    return OwnSeedDrawn(found.seed, seed, draw, found.divides, sure)


def _unseeded(unit: Unit, call: cst.Call, effect: str) -> Reason:
    text = unit.names.one_line(call)
    return Unseeded(call, text, effect)


class Before:
    """Whether code runs before the accelerator is created: it comes before that, or before a call that leads there."""

    def __init__(self, reach: Reach, way: Way) -> None:
        self.reach, self.way = reach, way
        self._leads: dict[Code, cst.CSTNode] = {}
        """The code that creates the accelerator, and all that calls it: the first node by which it comes there."""
        if way.home is not None and way.code is not None:
            self._leads[way.code] = way.home[1].node
            pending = [way.code]
            while pending:
                for site in reach.sites(pending.pop()):
                    code = reach.function_of(site)
                    names = reach.state.calls[site].unit.names
                    if code not in self._leads:
                        pending.append(code)
                        self._leads[code] = site
                    elif code is not way.code and names.order(site) < names.order(self._leads[code]):
                        self._leads[code] = site

    def __call__(self, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()) -> bool:
        code = unit.names.function(node)
        if not self._leads or code in seen:
            return False
        lead = self._leads.get(code)
        if lead is not None and (code is self.way.code or lead is node):
            return unit.names.order(node) < unit.names.order(lead)
        if lead is not None and unit.names.end(node) <= unit.names.end(lead):  # also an argument of that call
            return True
        if lead is None and isinstance(code, cst.Module):
            return True  # imported by code that creates it later
        return any(self(self.reach.state.calls[s].unit, s, seen | {code}) for s in self.reach.sites(code))


def is_past(reach: Reach, way: Way, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether the function that creates the accelerator has certainly run before a node, and has created it."""
    body = list(getattr(way.code.body, "body", ())) if isinstance(way.code, cst.FunctionDef) else []
    if way.code is None or way.home is None or way.home[1].node not in body:
        return False  # created under a condition, or at the top of a file
    before = body[: body.index(way.home[1].node)]
    leaves = any(isinstance(part, cst.Return) for statement in before for part in descendants(statement))
    return not leaves and follows(reach, unit, node, way.code)
