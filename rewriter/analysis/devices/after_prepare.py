"""What happens after ``prepare``: which calls come after it, and whether a prepared model gets new layers there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import libcst as cst

from ...facts.roles import TENSORS, Origin, Role
from ...facts.torch_api import questions, surroundings
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name
from ..dataflow.expressions import PARAMETERS
from ..dataflow.values import CallRecord, Sequence, State, Unknown, origins
from ..syntax.names import Names
from ..training.draws import sites_of
from ..training.training import whole
from .use_before_prepare import Stands

_PUTS_IN = frozenset({"register_parameter", "register_buffer"})


class AfterPrepare:
    """
    Answers for some places of ``prepare``.

    Args:
        reach: the call graph.
        prepared_at: where the ``prepare`` calls are.
    """

    def __init__(self, reach: Reach, prepared_at: Iterable[Stands]) -> None:
        self._reach = reach
        self._prepared: dict[Code, list[Stands]] = {}
        for each in prepared_at:
            self._prepared.setdefault(each.unit.names.function(each.prepare.node), []).append(each)
        self._callers = _callers(reach, self._prepared)

    def site(self, node: cst.Call) -> cst.Call | None:
        """The call after ``prepare`` that comes to a call, or is it; None if there is none."""
        sites = [(site, self._reach.function_of(site)) for site in sites_of(self._reach, node)]
        for site, code in sites:
            if code in self._prepared and not any(each.follows(each.unit, site) for each in self._prepared[code]):
                return site
        for site, code in sites:
            if code in self._callers and all(ends_later(self._reach, site, call) for call in self._callers[code]):
                return site
        return None

    def site_again(self, node: cst.Call) -> cst.Call | None:
        """As ``site``; and the call in a loop that also prepares: from the second turn on it comes after."""
        sites = [(site, self._reach.function_of(site)) for site in sites_of(self._reach, node)]
        for site, code in sites:
            names = self._reach.state.calls[site].unit.names
            prepares = [each.prepare.node for each in self._prepared.get(code, ())]
            loops = set(names.enclosing(site, cst.For, cst.While))
            for other in (*prepares, *self._callers.get(code, ())):
                if not loops.isdisjoint(names.enclosing(other, cst.For, cst.While)):
                    return site
        return self.site(node)


class NewLayers:
    """
    The layers, and other weights, that prepared models get after ``prepare``.

    Args:
        state: the solved program.
        reach: its call graph.
        prepared_at: where each model is prepared.
    """

    def __init__(self, state: State, reach: Reach, prepared_at: Mapping[Origin, Stands]) -> None:
        self.state, self.reach, self._prepared_at = state, reach, prepared_at
        self._after: dict[Origin, AfterPrepare] = {}
        self._found: dict[Origin, dict[cst.Call, cst.Call]] = {}

    def of(self, model: Origin) -> Mapping[cst.Call, cst.Call]:
        """The calls that make a layer or weights for a prepared model after ``prepare``, each with the call there that
        comes to it."""
        if model not in self._found:
            anew = set(sites_of(self.reach, model.node)) if isinstance(model.node, cst.Call) else set()
            made = (
                [c for c in self._made(model) if not self._is_for_another(c, model)] if self._is_prepared(model) else ()
            )
            late = ((call, self._late(model, call)) for call in made)
            self._found[model] = {call: site for call, site in late if site is not None and site not in anew}
        return self._found[model]

    def moved(self, model: Origin) -> bool:
        """Whether the script moves a model, or a new layer of it, after ``prepare``."""
        found = self.of(model)
        for record in self.state.calls.values():
            if method_name(record.node) in ("to", "cuda"):
                held = [o for o in origins(record.receiver, Role.MODEL) if whole(self.state, o) is model]
                if any(o.node in found for o in held) or (held and self._late(model, record.node) is not None):
                    return True
        return False

    def may_precede(self, move: cst.Call, model: Origin) -> bool:
        """Whether a prepared model may have got new weights, on the CPU, by the time that a call moves it."""
        if model not in self._prepared_at or self._late(model, move) is None:
            return False
        unknown = (call for call in self._unknown(model) if self._late(model, call) is not None)
        return any(self._precedes(change, move) for change in (*self.of(model), *unknown))

    def _is_prepared(self, model: Origin) -> bool:
        return model in self._prepared_at

    def _is_for_another(self, call: cst.Call, model: Origin) -> bool:
        """
        Whether a part is made after a model, in the same code, and a variable has it that only constructors are given
        after that: ``base = load(); model = Net(base)`` a second time. Of the first model it is no part.
        """
        names = self.state.calls[call].unit.names
        assign, made = names.parents.get(call), model.node
        target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
        binding = names.binding(target) if isinstance(target, cst.Name) else None
        if binding is None or made not in names.parents or names.function(made) is not names.function(call):
            return False
        loops = set(names.enclosing(call, cst.For, cst.While))
        if names.order(made) > names.order(call) or loops.intersection(names.enclosing(made, cst.For, cst.While)):
            return False
        later = [read for read in binding.reads if names.order(read) > names.order(call)]
        return any(self._is_given(names, read) for read in later) and all(
            self._is_given(names, read) or self._is_asked(names, read) for read in later
        )

    def _is_given(self, names: Names, read: cst.CSTNode) -> bool:
        """Whether a constructor of a model is given a variable."""
        arg = names.parents.get(read)
        taker = names.parents.get(arg) if isinstance(arg, cst.Arg) else None
        made = origins(self.state.values.get(taker), Role.MODEL) if isinstance(taker, cst.Call) else []
        return any(one.node is taker for one in made)

    def _is_asked(self, names: Names, read: cst.CSTNode) -> bool:
        """Whether a method of a variable is called: ``base.resize(n)``."""
        asked = names.parents.get(read)
        return isinstance(asked, cst.Attribute) and isinstance(names.parents.get(asked), cst.Call)

    def _late(self, model: Origin, call: cst.Call) -> cst.Call | None:
        if model not in self._after:
            self._after[model] = AfterPrepare(self.reach, [self._prepared_at[model]])
        return self._after[model].site(call) if self.reach.function_of(call) in self.reach.reachable else None

    def _made(self, model: Origin) -> Iterator[cst.Call]:
        pending, seen = [model], {model}
        while pending:
            parts = [part for part in self._parts(pending.pop()) if part not in seen]
            seen.update(parts)
            pending += parts
            yield from (p.node for p in parts if isinstance(p.node, cst.Call) and p.node in self.state.calls)
        yield from (record.node for record in self._put_in if self._is_of(record, model))
        yield from self._weights.get(model, ())

    @cached_property
    def _put_in(self) -> list[CallRecord]:
        """The calls that give a module weights by name."""
        return [record for record in self.state.calls.values() if method_name(record.node) in _PUTS_IN]

    @cached_property
    def _weights(self) -> dict[Origin, list[cst.Call]]:
        """The calls that make the weights which models have as attributes, by the whole model."""
        found: dict[Origin, list[cst.Call]] = {}
        for thing, held in self.state.fields():
            if isinstance(thing, Origin) and thing.role is Role.MODEL:
                weights = (t for t in held.things if isinstance(t, Unknown) and t.qualified in PARAMETERS)
                made = [t.node for t in weights if isinstance(t.node, cst.Call)]
                if made:
                    found.setdefault(whole(self.state, thing), []).extend(made)
        return found

    def _parts(self, model: Origin) -> Iterator[Origin]:
        """The models that are attributes of a model, or that its constructor is given: ``nn.Sequential(*layers)``."""
        yield from (part for part in self.state.parts.get(model, {}) if isinstance(part, Origin))
        slots = [self.state.values.get(arg.value) for arg in getattr(model.node, "args", ())]
        seen: set[Sequence] = set()
        while slots:
            slot = slots.pop()
            yield from origins(slot, Role.MODEL)
            for thing in slot.things if slot is not None else ():
                if isinstance(thing, Sequence) and thing not in seen:
                    seen.add(thing)
                    slots += [*thing.items, thing.rest]

    def _unknown(self, model: Origin) -> Iterator[cst.Call]:
        """The calls of a model's methods of which nothing is known: they may make layers."""
        return (record.node for record in self._unseen if self._is_of(record, model))

    @cached_property
    def _unseen(self) -> list[CallRecord]:
        known = questions.of_modules() | surroundings.writing_methods()
        return [
            record
            for record in self.state.calls.values()
            if isinstance(record.node.func, cst.Attribute) and method_name(record.node) not in known
            if origins(record.receiver, Role.MODEL) and not self.reach.called(record.node)
            if record.node not in self.state.forwards and not origins(record.result, *TENSORS)
        ]

    def _is_of(self, record: CallRecord, model: Origin) -> bool:
        return any(whole(self.state, o) is model for o in origins(record.receiver, Role.MODEL))

    def _precedes(self, one: cst.Call, other: cst.Call) -> bool:
        """Whether one call may run before another: earlier in some code that comes to both, or in a loop with it."""
        later: dict[Code, list[cst.Call]] = {}
        for site in sites_of(self.reach, other):
            later.setdefault(self.reach.function_of(site), []).append(site)
        for site in sites_of(self.reach, one):
            names = self.state.calls[site].unit.names
            loops = set(names.enclosing(site, cst.For, cst.While))
            for move in later.get(self.reach.function_of(site), ()):
                again = loops.intersection(names.enclosing(move, cst.For, cst.While))
                if again or (site is not move and names.order(site) < names.order(move)):
                    return True
        return False


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


def ends_later(reach: Reach, one: cst.Call, other: cst.CSTNode) -> bool:
    """Whether a call of the same code is made after another one has returned."""
    names = reach.state.calls[one].unit.names
    if names.end(one) != names.end(other):
        return names.end(one) > names.end(other)
    return names.order(one) < names.order(other)  # `Trainer().fit()`
