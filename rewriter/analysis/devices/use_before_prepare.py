"""
What happens to a model between its move and ``prepare``, which moves it later: a forward or a copy in between needs it
on the device at once, so that the move must stay.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import libcst as cst

from ...facts.accelerator import Prepare, Side
from ...facts.roles import Origin, Role
from ...facts.torch_api import process_calls, questions
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.solver import Slot
from ..dataflow.values import CallRecord, State, Unit, origins
from ..syntax.definitions import unshadowed
from ..syntax.walk import descendants, nodes_in
from ..training.training import Training, whole

_HARMLESS = ("builtins.", "torch.nn.init.", "torch.nn.utils.", "logging.", "itertools.")
_HARMLESS_NAMES = frozenset({"torch.compile", "wandb.watch"})


@dataclass(eq=False)
class Stands:
    """Where the ``prepare`` call of a thing is."""

    unit: Unit
    prepare: Prepare

    def follows(self, unit: Unit, call: cst.CSTNode) -> bool:
        """Whether the ``prepare`` call comes after another one in the same code."""
        names, node = self.unit.names, self.prepare.node
        if unit is not self.unit or names.function(call) is not names.function(node):
            return False
        return names.order(call) <= names.end(node) if self.prepare.side is Side.AFTER else _before(self, call)


@dataclass(eq=False)
class Early:
    """Answers whether a model is needed on the device before ``prepare`` puts it there."""

    state: State
    reach: Reach
    training: Training
    stands: dict[Origin, Stands]
    _worked: dict[Origin, list[CallRecord]] | None = None
    _uses: dict[Origin, list[cst.Call]] = field(default_factory=dict)
    _sites: dict[Code, list[tuple[cst.Call, set[Code]]]] = field(default_factory=dict)
    _came: dict[tuple[Code, cst.Call], bool] = field(default_factory=dict)
    _hosted: list[CallRecord] | None = None

    def use(self, move: cst.Call, unit: Unit, model: Origin) -> cst.Call | None:
        """The first call that works with a model's weights after ``move`` and before the model is prepared."""
        stands = self.stands.get(model)
        if stands is None:
            return None
        code = stands.unit.names.function(stands.prepare.node)
        home = unit.names.function(move)
        for call in self._of(model):
            for here in self._places(call, {code, home}):
                where = self.reach.function_of(here)
                if where is home and unit.names.order(here) < unit.names.order(move):
                    continue
                if where is home and where is not code and self._runs_after(stands, code, home):
                    continue
                if where is not code or _before(stands, here):
                    return call
        return self._without(code, model) if stands.prepare.wraps is None else None

    def _runs_after(self, stands: Stands, code: Code, other: Code) -> bool:
        """Whether the function that prepares calls another one, and only after that."""
        sites = [site for site, below in self._calls(code) if other in below]
        return bool(sites) and not any(_before(stands, site) for site in sites)

    def _without(self, code: Code, model: Origin) -> cst.Call | None:
        """A call that works with a model on a way that does not come by the function that prepares it: a test alone."""
        within = self.reach.below(code)
        for call in self._of(model):
            seen: set[Code] = set()
            pending = [self.reach.function_of(call)]
            while pending:
                where = pending.pop()
                if where in within or where in seen:
                    continue
                seen.add(where)
                sites = [s for s in self.reach.sites(where) if self.reach.function_of(s) in self.reach.reachable]
                if not sites and seen != {where}:
                    return call
                pending += [self.reach.function_of(site) for site in sites if not self._comes_by(code, site)]
        return None

    def _comes_by(self, code: Code, site: cst.Call) -> bool:
        """Whether some function is called before a call, wherever that is reached; or by it, on one of two classes."""
        if (code, site) not in self._came:
            self._came[code, site] = self._is_called_before(code, site)
        return self._came[code, site]

    def _is_called_before(self, code: Code, site: cst.Call) -> bool:
        unit = self.state.calls[site].unit
        around = set(unit.names.ancestors(site))
        last = unit.names.end(site)  # Trainer(args).train(): what is called on is made first
        for call, below in self._calls(unit.names.function(site)):
            earlier = unit.names.order(call) <= last
            if call is site and len(self.reach.called(site)) < 2:
                continue  # what it calls leads to both: there one of them comes first
            if code in below and earlier and unit.names.block(call) in around:
                return True
        return False

    def drawn(self, call: cst.Call, loader: Origin) -> bool:
        """Whether something done with a batch happens before its loader is prepared."""
        stands = self.stands.get(loader)
        if stands is None or stands.prepare.wraps is not None:
            return False
        code = stands.unit.names.function(stands.prepare.node)
        given = self._iterates_argument(call)
        places = (
            here for here in self._places(call, {code}) if not given or here is call or self._may_give(here, loader)
        )
        return any(_before(stands, here) for here in places)

    def _iterates_argument(self, call: cst.Call) -> bool:
        """Whether the loop around a call goes through what its function is given."""
        names = self.state.calls[call].unit.names
        loops = (node.iter for node in names.enclosing(call, cst.For) if isinstance(node, cst.For))
        held = (names.binding(name) for source in loops for name in nodes_in(source, cst.Name))
        return any(b is not None and any(isinstance(d, cst.Param) for d in b.definitions) for b in held)

    def _may_give(self, site: cst.Call, loader: Origin) -> bool:
        """Whether a call may hand a loader on: not one that is given other loaders, and not this."""
        unit = self.state.calls[site].unit
        given = {o for arg in site.args for o in self._loaders(unit, arg.value)}
        return not given or loader in given

    def _loaders(self, unit: Unit, value: cst.BaseExpression) -> Iterator[Origin]:
        """The loaders that an argument holds there: none that a later assignment puts in the place of it."""
        binding = unit.names.binding(value) if isinstance(value, cst.Name) else None
        seen = unshadowed(unit.names, binding, value) if binding is not None and isinstance(value, cst.Name) else ()
        if seen and all(isinstance(definition, cst.Name) for definition in seen):
            for definition in seen:
                yield from origins(self.state.slot(definition), Role.LOADER)
        else:
            yield from origins(self.state.values.get(value), Role.LOADER)

    def away(self, move: cst.Call, unit: Unit, model: Origin) -> bool:
        """Whether a model may have been taken to the CPU, ``model.cpu()``, by the time that ``move`` brings it back."""
        if self._hosted is None:
            self._hosted = [r for r in self.state.calls.values() if _takes_away(r)]
        home = unit.names.function(move)
        around = set(unit.names.enclosing(move, cst.For, cst.While))
        for record in self._hosted:
            held = origins(record.receiver, Role.MODEL) if record.node is not move else ()
            if not any(whole(self.state, o) is model for o in held):
                continue
            first = record.unit is unit and unit.names.order(move) < unit.names.order(record.node)
            again = around.intersection(record.unit.names.enclosing(record.node, cst.For, cst.While))
            if not first or again or record.unit.names.function(record.node) is not home:
                return not self._built_by(move, model)
        return False

    def _built_by(self, move: cst.Call, model: Origin) -> bool:
        """``Net().to(device)``: the model is new."""
        return model.node in set(descendants(move))

    def _of(self, model: Origin) -> list[cst.Call]:
        """The calls that compute with a model's weights, copy them, or hand the model to code that was not seen."""
        if self._worked is None:
            self._worked = {}
            for record in self.state.calls.values():
                for used in self._worked_with(record):
                    self._worked.setdefault(used, []).append(record)
        if model not in self._uses:
            built, records = self._building(model), self._worked.get(model, ())
            self._uses[model] = [r.node for r in records if r.unit.names.function(r.node) not in built]
        return self._uses[model]

    def _building(self, model: Origin) -> Container[Code]:
        """What runs while a model is made, and sets the weights of its layers: nothing has moved it yet."""
        klass = self.state.klass.get(model)
        init = klass.method("__init__") if klass is not None else None
        return self.reach.below(init.node) if init is not None else ()

    def _worked_with(self, record: CallRecord) -> set[Origin]:
        """The models with whose weights a call works."""
        forward = self.training.forwards.get(record.node)
        if forward is not None:
            return {whole(self.state, forward)}
        if self.reach.called(record.node):
            return set()  # what the called function does with the model is seen there
        receivers = {whole(self.state, o) for o in origins(record.receiver, Role.MODEL)}
        if method_name(record.node) in questions.of_modules() and receivers and not _keeps_tensors(record):
            worked: set[Origin] = set()
        else:
            worked = set(receivers)
        if _keeps_tensors(record):  # `[p.clone() for p in parameters]`, in a class that is given these
            worked |= self._owners(record.receiver)
        given = {model for arg in record.node.args for model in self._models(arg, record)} - receivers
        return worked | given if given and self._reads_weights(record) else worked

    def _reads_weights(self, record: CallRecord) -> bool:
        """Whether a call that is given a model may do something with its weights."""
        name = outside_name(record)
        harmless = (
            name in _HARMLESS_NAMES
            or name.startswith(_HARMLESS)
            or process_calls.same_model(name)
            or method_name(record.node) == "prepare"
        )
        return not harmless and not origins(record.result, Role.OPTIMIZER, Role.SCHEDULER)

    def _models(self, arg: cst.Arg, record: CallRecord) -> set[Origin]:
        held = self.state.values.get(arg.value)
        models = {whole(self.state, o) for o in origins(held, Role.MODEL)}
        return models | self._owners(held) if outside_name(record) else models  # a list keeps the parameters themselves

    def _owners(self, slot: Slot | None) -> set[Origin]:
        """The models of which something holds parameters."""
        held = origins(slot, Role.PARAMETERS)
        return {whole(self.state, params.source) for params in held if params.source is not None}

    def _places(self, call: cst.Call, codes: set[Code]) -> list[cst.Call]:
        """The calls in some functions' own code through which ``call`` is reached."""
        where = self.reach.function_of(call)
        found = [call] if where in codes else []
        return found + [site for code in codes for site, below in self._calls(code) if where in below]

    def _calls(self, code: Code) -> list[tuple[cst.Call, set[Code]]]:
        """The calls of the program's functions in some code, each with everything that it reaches."""
        if code not in self._sites:
            calls = (n for n in self.reach.own(code) if isinstance(n, cst.Call))
            self._sites[code] = [
                (call, {c for callee in called for c in self.reach.below(callee)})
                for call in calls
                if (called := self.reach.called(call))
            ]
        return self._sites[code]


def _keeps_tensors(record: CallRecord) -> bool:
    """
    Whether a statement keeps tensors of a model as they are now: ``self.shadow[name] = p.data.clone()`` for each of its
    parameters, ``self.kept = list(model.state_dict().values())``. A later move of the model leaves them where they are.
    """
    whole_state = method_name(record.node) == "state_dict"
    for node in nodes_in(record.unit.names.statement(record.node), cst.Assign):
        words = {n.attr.value for n in nodes_in(node.value, cst.Attribute)}
        if "clone" in words:
            return True
        if isinstance(node.targets[0].target, (cst.Attribute, cst.Subscript)):
            if not words.isdisjoint(("data", "clone", "detach")) or (whole_state and "state_dict" in words):
                return True
    return False


def _takes_away(record: CallRecord) -> bool:
    """``model.cpu()``, ``model.to("cpu")``."""
    if not origins(record.receiver, Role.MODEL):
        return False
    if method_name(record.node) == "cpu":
        return True
    word = record.node.args[0].value if method_name(record.node) == "to" and record.node.args else None
    if isinstance(word, cst.Call) and method_name(word) == "device" and word.args:
        word = word.args[0].value
    return isinstance(word, cst.SimpleString) and word.evaluated_value == "cpu"


def _before(stands: Stands, call: cst.CSTNode) -> bool:
    """Whether a call of the function that prepares runs before it does."""
    names, node = stands.unit.names, stands.prepare.node
    if node in names.ancestors(call):
        return stands.prepare.side is Side.AFTER
    return names.order(call) < names.order(node)
