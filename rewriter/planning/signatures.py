"""Signatures that change for the accelerator: whether a function's may, which parameter gives way, at which calls."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import cached_property

import libcst as cst

from ..analysis.dataflow.call_binding import argument_of
from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.solver import Thing
from ..analysis.dataflow.values import Bound, External, Function, Klass, State, decorators, origins
from ..analysis.distributed.init_sites import Start
from ..analysis.distributed.rank_spellings import number
from ..analysis.syntax.nodes import names_read, parameters, positional, with_names
from ..facts.accelerator import HandDown, Handing
from ..facts.roles import TENSORS, Origin, Role
from .accelerator_path import Way
from .computed_names import called_by_computed_names
from .holders import Holders
from .shared_code import first_statement, used_elsewhere

_HARMLESS = frozenset({"no_grad", "inference_mode", "enable_grad", "staticmethod", "classmethod"})
"""Decorators that leave the signature alone."""


class Signatures:
    """The functions of a program whose calls are all known, and what becomes of their parameters."""

    def __init__(
        self,
        state: State,
        reach: Reach,
        holders: Holders,
        name: str,
        starts: Sequence[Start],
        shared: Container[Code],
        optional: Container[Code],
        placing: Iterable[Code],
        apart: Container[Code] = (),
    ) -> None:
        self.state, self.reach, self.holders, self.name = state, reach, holders, name
        self.shared = shared
        """Functions that files outside the program call as well."""
        self.optional = optional
        """Those of them that may get it as a last parameter which nobody else has to give."""
        self.placing = list(placing)
        """Code that names a device, or moves something to one."""
        self.apart = apart
        """What trains and nothing in the script calls, other experiments and commands: it can make one of its own."""
        self.starts = starts
        """Where a script that distributes itself joins its processes."""
        self._values_of = state.once(_values_of, lambda: _values_of(state))
        self._named = state.once(_attributes, lambda: _attributes(reach))

    def can_change(self, code: cst.FunctionDef) -> bool:
        """Whether all callers are known: a plain function, never used as a value."""
        if code in self.shared and code not in self.optional:
            return False
        return self.state.once((Signatures.can_change, code), lambda: self._callers_are_known(code))

    def _callers_are_known(self, code: cst.FunctionDef) -> bool:
        unit = self.reach.unit(code)
        if (
            code in self.state.escaped
            or code in self.state.implied
            or code in self._by_computed_names
            or not set(decorators(code)) <= _HARMLESS
        ):
            return False
        scope = unit.names.within.get(code)
        if self.holders.is_init(code):
            return self._can_construct(code)
        if scope is None:
            return False
        if isinstance(scope.node, cst.ClassDef) and not self._is_of_class(code):
            return self._is_called_on_objects(code)
        function: Thing = unit.function(code)
        for node in self._values_of.get(function, ()):
            owner = next((u for u in self.reach.units if node in u.names.parents), None)
            parent = owner.names.parents.get(node) if owner is not None else None
            if not (isinstance(parent, cst.Call) and parent.func is node):
                return False
        return isinstance(function, Function)

    @cached_property
    def _by_computed_names(self) -> set[Code]:
        return called_by_computed_names(self.state, self.reach)

    def _is_of_class(self, code: cst.FunctionDef) -> bool:
        """Whether a function is a static or class method that every call names through the class alone."""
        plain = all(self.reach.called(site) == [code] for site in self.reach.sites(code))
        return plain and len(code.decorators) == 1 and decorators(code)[0] in ("staticmethod", "classmethod")

    def _is_called_on_objects(self, code: cst.FunctionDef) -> bool:
        """Whether a method is named by calls on an object alone, which run nothing else: torch calls it nowhere."""
        name = code.name.value
        if decorators(code) or name.startswith("__"):
            return False
        sites = set(self.reach.sites(code))
        beside = {other for site in sites for other in self.reach.called(site)}
        if not all(_names(site.func, name) for site in sites) or not all(map(self._is_plain_method, beside)):
            return False
        if any(isinstance(t, Klass) for s in sites for t in self._receivers(s)):
            return False  # Net.fit(model, rows): the object is an argument
        calling = {site.func for site in sites}
        named = self._named.get(name, ())
        return all(node in calling or self._of_tensor(node) or self._is_another(node, code) for node in named)

    def _is_another(self, node: cst.Attribute, code: Code) -> bool:
        """Whether an attribute is known to be another function alone: ``Base.initialize``, ``torch.save``."""
        held = self.state.values.get(node)
        return held is not None and bool(held.things) and not any(self._may_be(t, code) for t in held.things)

    def _may_be(self, thing: Thing, code: Code) -> bool:
        """Whether what an attribute holds may be a function of the program."""
        if isinstance(thing, Bound) and isinstance(thing.receiver, Klass):
            found = thing.receiver.method(thing.name)
        elif isinstance(thing, Bound):
            found = self.state.method_of(thing)
        else:
            found = thing if isinstance(thing, Function) else None
        return found.node is code if found is not None else not isinstance(thing, External)

    def _is_plain_method(self, code: Code) -> bool:
        """Whether some code is a method of an object of the program."""
        method = self.holders.method(code)
        return method is not None and method[0] is code and not decorators(method[0])

    def _of_tensor(self, node: cst.Attribute) -> bool:
        """Whether an attribute is one of a tensor: `loss.backward`, where a class has a method of that name."""
        held = self.state.values.get(node.value)
        things = held.things if held is not None else ()
        return bool(things) and all(isinstance(thing, Origin) and thing.role in TENSORS for thing in things)

    def _receivers(self, site: cst.Call) -> list[Thing]:
        receiver = self.state.calls[site].receiver
        return list(receiver.things) if receiver is not None else []

    def _can_construct(self, init: cst.FunctionDef) -> bool:
        """Whether all constructions by a constructor are plain: of its class, or of one of several classes."""
        for site in self.reach.sites(init):
            others = [f for f in self.reach.called(site) if not self.holders.is_init(f)]
            classes = [t for t in self.state.calls[site].callees if isinstance(t, Klass)]
            bare = any(klass.method("__init__") is None for klass in classes)
            explicit = isinstance(site.func, cst.Attribute) and not _is_super(site.func.value)
            by_class = explicit and any(isinstance(t, Function) for t in self.state.calls[site].callees)
            if others or bare or by_class:
                return False
        return True

    def together(self, code: cst.FunctionDef) -> list[cst.FunctionDef]:
        """
        A function, and those that its calls may run in its place: of a class that an option chooses, its constructor or
        a method, or of one of two modules that define the name.
        """
        found = [code]
        for member in found:
            calls = (f for site in self.reach.sites(member) for f in self.reach.called(site))
            found += dict.fromkeys(f for f in calls if isinstance(f, cst.FunctionDef) and f not in found)
        return found

    def parameter(self, code: Code) -> cst.Param | None:
        """The parameter of a function that only ever holds the device; else one that only holds a rank."""
        if not isinstance(code, cst.FunctionDef):
            return None
        numbers = []
        for param in positional(code):
            held = self._only_held(code, param)
            if held and all(isinstance(o, Origin) and o.role is Role.DEVICE for o in held):
                if not any(isinstance(o, Origin) and o.qualified == "follows" for o in held):
                    return param
            if held and self.starts and number(held) is not None:
                numbers.append(param)
        return numbers[0] if numbers else None

    def _only_held(self, code: cst.FunctionDef, param: cst.Param) -> list[Thing]:
        """What a parameter can hold that nothing else sets, and that every call gives; empty where it has no role."""
        binding = self.reach.unit(code).names.scopes[code].bindings[param.name.value]
        if len(binding.definitions) != 1 or (param.default is not None and not self._given_by_all(code, param)):
            return []
        things = list(self.state.binding(binding).things)
        held = [t for t in things if isinstance(t, Origin)]
        return things if self.starts and number(things) is not None else list(held)

    def _given_by_all(self, code: cst.FunctionDef, param: cst.Param) -> bool:
        """Whether every call gives a parameter, so that its default counts for nothing."""
        bound = self.holders.is_init(code) or "classmethod" in decorators(code)
        index = positional(code).index(param) - bound if param in positional(code) else -1
        return all(argument_of(site, param, index) is not None for site in self.reach.sites(code))

    def hand_down(self, code: cst.FunctionDef, sites: list[cst.Call], way: Way, *, alone: bool = True) -> None:
        """
        Give a function the accelerator: by the parameter that gives way to it, or by a new one.

        ``alone``: its calls call nothing else; what they hand over else goes by its name.
        """
        unit = self.reach.unit(code)
        scope = unit.names.scopes[code]
        uncalled = code in self.apart
        elsewhere = used_elsewhere(unit, code) is not None
        imported = elsewhere and isinstance(unit.names.parents.get(code), cst.Module)  # a part of an entry script
        optional = uncalled or imported or (code in self.shared and elsewhere)
        param = self.parameter(code) if alone and code not in self.shared and not imported else None
        places = positional(code)
        method = self.holders.method(code)
        bound = "classmethod" in decorators(code) or (method is not None and method[0] is code)
        shift = 1 if bound else 0  # the object (or class) itself is no argument of a call
        if param is not None and any(argument_of(s, param, places.index(param) - shift) is None for s in sites):
            param = None
        own = next((p for p in parameters(code) if p.name.value == self.name), None)
        if own is not None:
            given = places.index(own) - shift if own in places else None
            lacking = [site for site in sites if argument_of(site, own, -1 if given is None else given) is None]
            way.handings.extend((self.state.calls[site].unit, Handing(site, None, None)) for site in lacking)
            way.reaches.add(code)
            return
        index: int | None = places.index(param) if param is not None else len(places)
        defaults = any(place.default is not None for place in places)
        if param is None and not optional and (isinstance(code.params.star_arg, cst.Param) or defaults):
            index = None  # it is required: after a parameter that has a default it can be keyword-only alone
        makes = first_statement(code) if optional else None
        arguments = self._said_by(code, sites, shift, way) if optional else ()
        built = self._builds(code) if optional and not uncalled and not arguments else ()
        if built and not any(map(self._places, built)):
            arguments = (("device_placement", "False"),)  # who else builds such objects places them
        way.hand_downs.append((unit, HandDown(code, param, index, makes, arguments, uncalled)))
        place = index - shift if index is not None and alone and not optional else None
        handed = {handing.call for _, handing in way.handings} if not alone else ()
        for site in (site for site in sites if site not in handed):
            argument = argument_of(site, param, place) if param is not None and place is not None else None
            way.handings.append((self.state.calls[site].unit, Handing(site, argument, place)))
        if param is not None:
            binding = scope.bindings[param.name.value]
            of_device = bool(origins(self.state.binding(binding), Role.DEVICE))
            (way.replaced if of_device else way.given_up).add(binding)
            self._drop_numbers(code, sites, shift, way, param)
        way.reaches.add(code)

    def _places(self, klass: Klass) -> bool:
        """Whether methods of a class that files outside the program run name a device, or move something."""
        placing = (code for code in self.placing if code in self.shared)
        methods = (found[1] for code in placing if (found := self.holders.method(code)) is not None)
        return any(other in klass.lineage() or klass in other.lineage() for other in methods)

    def _builds(self, code: Code) -> tuple[Klass, ...]:
        """The classes whose objects a function builds that may get it, a method of theirs or one that calls that."""
        own = self.holders.method(code)
        below = (one for one in self.reach.below(code) if own is None and one in self.optional)
        found = (own, *map(self.holders.method, below))
        return tuple(dict.fromkeys(method[1] for method in found if method is not None))

    def _said_by(
        self, code: cst.FunctionDef, sites: list[cst.Call], shift: int, way: Way
    ) -> tuple[tuple[str, str], ...]:
        """The arguments of the accelerator in the words of a function's parameters, for one that it makes itself; none
        where a parameter does not hold what they read."""
        given = way.home[1].arguments if way.home is not None else ()
        read = {name for _, text in given for name in names_read(cst.parse_expression(text))}
        if not sites and read <= self.reach.unit(code).names.scope.bindings.keys():
            return given
        called: dict[str, str] = {}
        for index, param in enumerate(positional(code)):
            held = [argument_of(site, param, index - shift) for site in sites] if index >= shift else [None]
            texts = {arg.value.value for arg in held if arg is not None and isinstance(arg.value, cst.Name)}
            if len(texts) == 1 and None not in held:
                called[texts.pop()] = param.name.value
        if not read <= called.keys():
            return ()
        return tuple((keyword, with_names(text, called)) for keyword, text in given)

    def _drop_numbers(
        self, code: cst.FunctionDef, sites: list[cst.Call], shift: int, way: Way, taken: cst.Param
    ) -> None:
        """Further parameters for ranks and numbers of processes go, now that the function has the accelerator."""
        unit, places = self.reach.unit(code), positional(code)
        for index, param in enumerate(places):
            if param is taken or not self.starts or number(self._only_held(code, param)) is None:
                continue
            arguments = [argument_of(site, param, index - shift) for site in sites]
            if all(argument is not None for argument in arguments):
                way.dropped.append((unit, param))
                units = (self.state.calls[site].unit for site in sites)
                way.dropped.extend((u, a) for u, a in zip(units, arguments, strict=True) if a is not None)
                way.given_up.add(unit.names.scopes[code].bindings[param.name.value])


def _values_of(state: State) -> dict[Thing, list[cst.CSTNode]]:
    """The names and attributes that hold a function of the program, called or not."""
    found: dict[Thing, list[cst.CSTNode]] = {}
    for node, slot in state.values.items():
        functions = [thing for thing in slot.things if isinstance(thing, Function)]
        if functions and isinstance(node, (cst.Name, cst.Attribute)):
            for thing in functions:
                found.setdefault(thing, []).append(node)
    return found


def _attributes(reach: Reach) -> dict[str, list[cst.Attribute]]:
    """The attributes that a program reads, sets or calls, by their names."""
    found: dict[str, list[cst.Attribute]] = {}
    for unit in reach.units:
        for node in unit.names.every(cst.Attribute):
            found.setdefault(node.attr.value, []).append(node)
    return found


def _names(node: cst.CSTNode, name: str) -> bool:
    """Whether an expression names a method of something: ``model.fit``."""
    return isinstance(node, cst.Attribute) and node.attr.value == name


def _is_super(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "super"
