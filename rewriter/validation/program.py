"""A program as the check sees it: analysed again, with its training, its accelerator and what that prepares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.containers import members
from ..analysis.dataflow.loader_wrappers import wraps
from ..analysis.dataflow.solver import Slot
from ..analysis.dataflow.values import CallRecord, State, Unit, origins
from ..analysis.distributed.rank_questions import RankQuestions
from ..analysis.distributed.tracing import Tracer
from ..analysis.effects.effects import Output, output
from ..analysis.effects.existing_guards import Together
from ..analysis.syntax.definitions import unshadowed
from ..analysis.syntax.walk import nodes_in
from ..analysis.training.gradient_path import GradientPath
from ..analysis.training.training import Training, find, whole
from ..facts.accelerate_names import PREPARES
from ..facts.roles import Origin, Role

_CUTS = frozenset({"shard_batch", "split_between_processes"})


class EmittedProgram:
    """One text of a program, analysed."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.reach = Reach(self.state)
        self.training: Training = find(self.state, self.reach)
        self.tracer = Tracer(self.state, self.reach)
        self.ranks = RankQuestions(self.tracer)

    @cached_property
    def gradient_path(self) -> GradientPath:
        """The values that a backward pass may go through."""
        return GradientPath(self.reach, self.training)

    def models_of(self, optimizer: Origin) -> list[Origin]:
        """The whole models whose parameters an optimizer holds; of a name that was bound twice, only the last."""
        held = origins(self.state.related.get(optimizer), Role.PARAMETERS)
        models = [p.source for p in held if p.source is not None and p.source.role is Role.MODEL]
        unit = self.unit_of(optimizer.node)
        if unit is not None:
            models = [model for model in models if not self.replaced(unit, optimizer.node, model)]
        return list(dict.fromkeys(whole(self.state, model) for model in models))

    @cached_property
    def updated_by_hand(self) -> list[Origin]:
        """Without an optimizer: the models that losses are computed with, whose parameters the script updates."""
        training = self.training
        if training.optimizers or not training.backwards:
            return []
        calls = [call for call in training.forwards if call in self.gradient_path.nodes]
        outside = [call for call in calls if not self.in_class(self.state.calls[call])]
        return list(dict.fromkeys(whole(self.state, training.forwards[call]) for call in outside))

    own_rows = True
    """Each process has rows of its own: the loaders are prepared."""

    @cached_property
    def outputs(self) -> dict[Unit, Output]:
        """What the reached code of each module prints, writes and downloads."""
        state, reach, training = self.state, self.reach, self.training
        together = Together(state, reach, training, ())
        own = self.own_rows
        return {unit: output(state, unit, reach, training, together, own_rows=own) for unit in reach.units}

    @cached_property
    def records(self) -> list[CallRecord]:
        """The calls of the code that the script reaches, in the order of the modules and of their text."""
        records, reached = self.state.calls, self.reach.reachable
        return [
            records[call]
            for unit in self.reach.units
            for call in unit.names.calls
            if call in records and unit.names.function(call) in reached
        ]

    @cached_property
    def accelerated(self) -> list[CallRecord]:
        """The reached calls of methods of the accelerator."""
        return [record for record in self.records if origins(record.receiver, Role.ACCELERATOR)]

    @cached_property
    def cuts(self) -> frozenset[cst.Call]:
        """The calls that give this process its own rows of a batch that the script makes itself."""
        return frozenset(record.node for record in self.accelerated if method_name(record.node) in _CUTS)

    @cached_property
    def prepares(self) -> list[CallRecord]:
        """The calls that prepare something."""
        return [record for record in self.accelerated if method_name(record.node) in PREPARES]

    @cached_property
    def prepared(self) -> dict[Origin, CallRecord]:
        """What is prepared, each with a call that prepares it; a bar around a loader is no loader."""
        found: dict[Origin, CallRecord] = {}
        for record in self.prepares:
            for argument in record.node.args:
                for origin in self.held(record.unit, argument.value):
                    if origin.role is not Role.LOADER or not wraps(self.state, record.unit, argument.value, origin):
                        found.setdefault(origin, record)
        return found

    def is_whole_at(self, unit: Unit, node: cst.CSTNode, loader: Origin) -> bool:
        """Whether a loader is sure to be prepared only after something reads it: the code that makes it does so, or
        that alone calls what makes it, and no loop comes back to the reading."""
        record, names = self.prepared.get(loader), unit.names
        made = self._made_for(loader, names.function(node)) if record is not None and record.unit is unit else None
        if record is None or made is None or names.function(record.node) is not names.function(node):
            return False
        around = set(names.enclosing(record.node, cst.For, cst.While)) & set(names.enclosing(node, cst.For, cst.While))
        again = around - set(names.enclosing(made, cst.For, cst.While))
        return not again and names.order(record.node) > names.end(node)

    def _made_for(self, loader: Origin, code: Code) -> cst.CSTNode | None:
        """What makes a loader in some code, or the one call there of the functions that make it; None for neither."""
        node, seen = loader.node, set[Code]()
        while (home := self.unit_of(node)) is not None and (maker := home.names.function(node)) not in seen:
            if maker is code:
                return node
            seen.add(maker)
            sites = list(self.reach.sites(maker))
            if len(sites) != 1:
                return None
            node = sites[0]
        return None

    def preparing(self, origin: Origin) -> CallRecord | None:
        """The call that prepares something, or the whole that contains it; None if there is none."""
        found = self.prepared.get(origin)
        return found if found is not None or origin.role is not Role.MODEL else self.prepared.get(
            whole(self.state, origin)
        )  # fmt: skip

    def held(self, unit: Unit, node: cst.BaseExpression) -> list[Origin]:
        """What an expression can hold, including the elements of containers; of a variable only the values of its last
        definitions."""
        slots: list[Slot] = []
        for value in self._values(unit, node, frozenset()):
            slots.append(members(self.state, self.state.values.get(value) or Slot()))
        self.state.solver.run()
        return list(dict.fromkeys(origin for slot in slots for origin in origins(slot)))

    def _values(
        self, unit: Unit, node: cst.BaseExpression, seen: frozenset[cst.CSTNode]
    ) -> Iterator[cst.BaseExpression]:
        """The expressions whose values an expression has: itself, or for a variable the values of its last
        definitions."""
        binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
        if binding is None or node in seen:
            yield node
            return
        definitions = unshadowed(unit.names, binding, node)
        given = [self.value(unit, definition) for definition in definitions]
        if len(definitions) == len(binding.definitions) or not given or None in given:
            yield node
            return
        for value in given:
            assert value is not None
            yield from self._values(unit, value, seen | {node})

    def replaced(self, unit: Unit, expression: cst.CSTNode, origin: Origin) -> bool:
        """Whether the names in an expression held something only before they got another value."""
        reads = list(nodes_in(expression, cst.Name))
        reads = [name for name in reads if origin in origins(self.state.values.get(name))]
        return bool(reads) and all(origin not in self.held(unit, name) for name in reads)

    def value(self, unit: Unit, definition: cst.CSTNode) -> cst.BaseExpression | None:
        """The value of an assignment to a variable, for ``prepare`` its argument; None if it is not a single
        expression."""
        parent, position = unit.names.parents.get(definition), None
        if isinstance(parent, cst.Element):
            row = unit.names.parents.get(parent)
            if isinstance(row, (cst.Tuple, cst.List)):
                position, parent = list(row.elements).index(parent), unit.names.parents.get(row)
        assign = unit.names.parents.get(parent) if isinstance(parent, cst.AssignTarget) else None
        if not isinstance(assign, cst.Assign):
            return None
        value = assign.value
        if position is None:
            return value
        parts: Sequence[cst.Arg | cst.BaseElement] = ()
        if isinstance(value, cst.Call) and method_name(value) == "prepare":
            parts = value.args
        elif isinstance(value, (cst.Tuple, cst.List)):
            parts = value.elements
        return parts[position].value if position < len(parts) else None

    @cached_property
    def _stepping(self) -> set[Code]:
        """The functions in which an optimizer is stepped, and those that call them."""
        found: set[Code] = set()
        for record in self.training.steps:
            found.update(code for code in self.reach.above(self.reach.function_of(record.node)))
        return {code for code in found if not isinstance(code, cst.Module)}

    def steps_below(self, call: cst.Call) -> bool:
        """Whether a call runs a function in which an optimizer is stepped."""
        return any(function in self._stepping for function in self.reach.called(call))

    def in_class(self, record: CallRecord) -> bool:
        """Whether a call is a part of a class: of a model's own forward pass, for one."""
        return any(isinstance(above, cst.ClassDef) for above in record.unit.names.ancestors(record.node))

    def at(self, record: CallRecord) -> CodePlace:
        """The place of a call."""
        return CodePlace(record.unit, record.node)

    def unit_of(self, node: cst.CSTNode) -> Unit | None:
        """The module that a node is in."""
        return next((unit for unit in self.reach.units if node in unit.names.parents), None)

    def made(self, origin: Origin) -> CodePlace | None:
        """The place where something is created."""
        unit = self.unit_of(origin.place)
        return CodePlace(unit, origin.place) if unit is not None else None

    def at_every_site(
        self, unit: Unit, node: cst.CSTNode, seen: frozenset[Code], asked: Callable[[CallRecord, frozenset[Code]], bool]
    ) -> bool:
        """
        Whether the function of a node is called, and all its calls have the same answer yes.

        ``seen``: the functions through which the question came; ``asked`` is given them, and this function.
        """
        code = unit.names.function(node)
        sites = list(self.sites(code))
        return bool(sites) and code not in seen and all(asked(site, seen | {code}) for site in sites)

    def sites(self, code: Code) -> Iterator[CallRecord]:
        """The reached calls of a function."""
        yield from self.reach.reached_sites(code)
