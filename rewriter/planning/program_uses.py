"""Where a program uses what is prepared: steps, loops over loaders, and all calls that come to them. Found once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.drawn_batches import iterable_opened, iterator_drawn
from ..analysis.dataflow.object_fields import fields_of
from ..analysis.dataflow.solver import Thing
from ..analysis.dataflow.values import Instance, State, Unit, origins
from ..analysis.distributed.row_sources import row_sources
from ..analysis.syntax.nodes import dotted
from ..analysis.syntax.walk import descendants
from ..analysis.training.cached_batches import kept_generators
from ..analysis.training.draws import sites_of, split_draws, value_draws, weight_draws
from ..analysis.training.training import Training
from ..facts.roles import Origin, Role

_SETTINGS = frozenset("param_groups defaults state_dict load_state_dict".split())


class ProgramUses:
    """What uses and what touches the things that are prepared, in all modules of a program."""

    def __init__(self, reach: Reach, training: Training) -> None:
        self.state, self.reach = reach.state, reach
        self.drawn = {*_drawn(self.state, reach, training), *kept_generators(self.state, reach)}
        self.working: set[cst.CSTNode] = {record.node for record in (*training.steps, *training.backwards)}
        self.working.update(self.drawn, training.train_loops, training.eval_loops)
        self.passes = self._passes(reach, training)
        """For each loader where it is iterated without a model."""
        self.drawing = self._sites(weight_draws(self.state, reach))
        """The calls that come to a draw of weights."""
        self.splitting = self._sites([*split_draws(self.state, reach), *self._data_draws()])
        """The calls that come to a random split, or to the drawing of rows of the data."""
        self.kept = self._kept()
        """For each thing where an object gets it to keep."""
        self._active = self._coming_to(self.working)

    def calls(self, more: Iterable[cst.CSTNode]) -> Iterator[cst.Call]:
        """The calls that come to a use, or to one of more nodes."""
        further = list(more)
        active = self._active | self._coming_to(further) if further else self._active
        return (site for code in active for site in self.reach.sites(code))

    def _data_draws(self) -> list[cst.Call]:
        """What is drawn to make the rows of the data."""
        drawn = list(value_draws(self.state, self.reach))
        rows = row_sources(self.state, self.reach) if drawn else ()
        return [draw for draw in drawn if draw in rows]

    def _sites(self, draws: Iterable[cst.Call]) -> list[cst.Call]:
        return list(dict.fromkeys(site for draw in draws for site in sites_of(self.reach, draw)))

    def _coming_to(self, nodes: Iterable[cst.CSTNode]) -> set[Code]:
        """The functions in which some nodes are run, also by what these call."""
        wanted = set(nodes)
        units = ((unit, node) for node in wanted for unit in self.reach.units if node in unit.names.parents)
        codes = {unit.names.function(node) for unit, node in units}
        return {code for code in self.reach.reachable if not codes.isdisjoint(self.reach.below(code))}

    def _kept(self) -> dict[Origin, list[cst.CSTNode]]:
        """For each thing where an object gets it to keep: after that the object holds the unprepared one. An object
        that only reads and sets the groups of an optimizer may keep any: all have the same groups."""
        found: dict[Origin, list[cst.CSTNode]] = {}
        made: dict[Thing, cst.Call] = {
            thing: record.node
            for record in self.state.calls.values()
            for thing in record.result.things
            if isinstance(thing, Instance) or (isinstance(thing, Origin) and thing.role is Role.MODEL)
            if thing.node is record.node
        }
        fields = ((keeper, held) for keeper, held in self.state.fields() if keeper in made)
        kept = ((keeper, origin) for keeper, held in fields for origin in origins(held))
        for keeper, origin in dict.fromkeys(kept):  # in several fields
            if origin.role is not Role.OPTIMIZER or (keeper, origin) in self._stepping:
                found.setdefault(origin, []).extend(self._keeping(keeper, made[keeper], origin))
        return found

    def _keeping(self, keeper: Thing, made: cst.Call, origin: Origin) -> Iterator[cst.CSTNode]:
        """Where an object gets what it keeps: where it is made, or where it is set later, by a method or from
        outside."""
        inside = {code for function in self.reach.called(made) for code in self.reach.below(function)}
        stores = fields_of(self.state).stores(keeper, origin)
        if not stores or any(unit.names.function(value) in inside for unit, value in stores):
            yield made
            return
        pending, seen = list[Code](), set[Code]()
        for unit, value in stores:
            if not self._comes_from(value, origin):  # else it is prepared under that name
                yield value
                pending.append(unit.names.function(value))
        while pending:
            code = pending.pop()
            if code not in seen:
                seen.add(code)
                yield from self.reach.sites(code)
                pending += map(self.reach.function_of, self.reach.sites(code))

    def _comes_from(self, value: cst.BaseExpression, origin: Origin) -> bool:
        """Whether a thing is made in an expression, or given by a call in it that is not given the thing."""
        parts = list(descendants(value))
        read = (node for node in parts if isinstance(node, (cst.Name, cst.Attribute)))
        return origin.node in parts or not any(origin in origins(self.state.values.get(node)) for node in read)

    @cached_property
    def _stepping(self) -> set[tuple[Thing, Origin]]:
        """The objects that do more with an optimizer which they keep than to read or set its groups."""
        found: set[tuple[Thing, Origin]] = set()
        for unit in self.reach.units:
            for node in unit.names.every(cst.Attribute):
                held = origins(self.state.values.get(node), Role.OPTIMIZER)
                if held and not _only_settings(unit, node):
                    keeper = self.state.values.get(node.value)
                    found.update((thing, o) for thing in (keeper.things if keeper is not None else ()) for o in held)
        return found

    def _passes(self, reach: Reach, training: Training) -> dict[Origin, list[cst.CSTNode]]:
        """For each loader the places where it is iterated without a model: figures of the data, a batch to look at."""
        found: dict[Origin, list[cst.CSTNode]] = {}
        for loop, loaders in self.state.loaders.items():
            if loop not in training.train_loops and loop not in training.eval_loops and not _gives_on(reach, loop):
                for loader in loaders:
                    found.setdefault(loader, []).append(loop)
        for call, record in self.state.calls.items():
            if outside_name(record) == "builtins.iter" and call not in self.drawn:
                for loader in origins(record.first, Role.LOADER):
                    found.setdefault(loader, []).append(call)
        for places in found.values():
            seen: set[Code] = set()
            for place in places:
                unit = next((u for u in reach.units if place in u.names.parents), None)
                code = unit.names.function(place) if unit is not None else None
                if code is not None and code not in seen:
                    seen.add(code)
                    places.extend(reach.sites(code))
        return found


def uses_of(reach: Reach, training: Training) -> ProgramUses:
    """Those of a program, found once."""
    return reach.state.once(ProgramUses, lambda: ProgramUses(reach, training))


def _only_settings(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether an expression is set, or asked for what an optimizer has before and after ``prepare`` alike."""
    around = unit.names.parents.get(node)
    if isinstance(around, cst.Arg):
        call = unit.names.parents.get(around)
        return isinstance(call, cst.Call) and dotted(call.func) == "isinstance"
    return isinstance(around, cst.AssignTarget) or (
        isinstance(around, cst.Attribute) and around.attr.value in _SETTINGS
    )


def _gives_on(reach: Reach, loop: cst.CSTNode) -> bool:
    """Whether a loop is in a generator: it runs where the yielded values are consumed."""
    unit = next((u for u in reach.units if loop in u.names.parents), None)
    code = unit.names.function(loop) if unit is not None else None
    return code is not None and reach.yields(code)


def _drawn(state: State, reach: Reach, training: Training) -> set[cst.CSTNode]:
    """The calls that make the iterators from which training draws: ``batches = iter(loader)``, of the prepared one."""
    loaders: set[Origin] = set()
    looked_at: set[cst.CSTNode] = set()
    """What one batch is taken of: ``next(iter(loader))``."""
    for call, record in state.calls.items():
        source = iterator_drawn(record)
        if source is None:
            continue
        looked_at.add(source[0])
        if not isinstance(source[0], cst.Call) and any(
            loop in training.train_loops for loop in reach.batch_loops(call, record.unit)
        ):
            loaders.update(origins(source[1], Role.LOADER))
    opened = ((call, iterable_opened(record)) for call, record in state.calls.items() if call not in looked_at)
    return {call for call, of in opened if of is not None and not loaders.isdisjoint(origins(of[1], Role.LOADER))}
