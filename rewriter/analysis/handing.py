"""
The accelerator's way: where it is made, which functions need it, and how it gets there.

A device parameter that a function no longer needs gives its place to the accelerator; otherwise a parameter is added.
Every call in the program is changed along, or the function is not given the accelerator at all.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from ..facts.module import HandDown, Handing, Home, Prepare, Side
from ..facts.roles import Origin, Role
from .device_names import DeviceName, cpu_condition
from .fields import DeviceField
from .flags import Flag
from .holding import Holders, base_call, receiver
from .modules import starred
from .names import Binding, Scope, is_docstring, parameters, positional
from .numbers import number
from .reach import Code, Reach
from .solver import Thing
from .starts import Start
from .things import Function, Klass, State, Unit, origins
from .walk import children, descendants


@dataclass(eq=False)
class Way:
    """Where the accelerator is made and which code it reaches."""

    home: tuple[Unit, Home] | None = None
    code: Code | None = None
    """The code whose statement makes it."""
    reaches: set[Code] = field(default_factory=set)
    hand_downs: list[tuple[Unit, HandDown]] = field(default_factory=list)
    handings: list[tuple[Unit, Handing]] = field(default_factory=list)
    replaced: set[Binding] = field(default_factory=set)
    """Device variables (and parameters) that are gone: their reads take the accelerator's device."""
    redefined: list[tuple[Unit, DeviceName]] = field(default_factory=list)
    """Device variables that other modules read: they are given the accelerator's device."""
    stores: dict[cst.FunctionDef, Unit] = field(default_factory=dict)
    """Constructors that are handed the accelerator and keep it for the methods of their object."""
    spelled: dict[Code, str] = field(default_factory=dict)
    """What the object is called, in code that reads the accelerator from it: ``self``."""
    early_stores: set[cst.FunctionDef] = field(default_factory=set)
    """Constructors whose base class needs the accelerator already."""
    joins: bool = False
    """The accelerator is made where a script that distributes itself joins its processes."""
    idle: list[Code] = field(default_factory=list)
    """Functions that nothing calls any more, because the accelerator does what they did."""
    dropped: list[tuple[Unit, cst.CSTNode]] = field(default_factory=list)
    """Parameters and arguments for such numbers that go."""
    given_up: set[Binding] = field(default_factory=set)
    """Parameters for the number of the process whose place the accelerator takes."""


class Router:
    """Finds the way of the accelerator through a program."""

    def __init__(
        self,
        state: State,
        reach: Reach,
        devices: list[tuple[Unit, DeviceName]],
        name: str,
        shared: Container[Code] = (),
        keepers: Container[Klass] = (),
    ) -> None:
        self.state, self.reach, self.devices, self.name = state, reach, devices, name
        self.shared = shared
        """Functions that files outside the program call as well."""
        self.holders = Holders(state, reach)
        self.keepers = keepers
        """Classes whose objects keep the accelerator."""
        self._runs_early: set[Code] | None = None
        self._values_of: dict[Thing, list[cst.CSTNode]] = {}
        for node, slot in state.values.items():
            if isinstance(node, (cst.Name, cst.Attribute)):
                for thing in slot.things:
                    if isinstance(thing, Function):
                        self._values_of.setdefault(thing, []).append(node)

    def route(self, needs: dict[Code, None], anchor: Code | None, prepares: list[Prepare]) -> Way:
        """The way to all the code in ``needs``, from a home in the code that prepares or above it."""
        way = Way()
        chosen = self._home(needs, anchor, prepares, way)
        if chosen is None:
            return way
        _, code = chosen
        way.code = code
        way.reaches.add(code)
        method = self.holders.method(code)
        if method is not None:
            way.spelled[code] = receiver(method[0])
        for target in needs:
            self._reach(target, way, ())
        for name_unit, name in self.devices:
            owner = self._owner(name_unit, name.binding.scope)
            if owner in way.reaches and not self._before_home(name_unit, name, way):
                if name.binding in self.lent:
                    way.redefined.append((name_unit, name))
                else:
                    way.replaced.add(name.binding)
        return way

    # The home --------------------------------------------------------------------------------------------------------

    def _home(
        self, needs: dict[Code, None], anchor: Code | None, prepares: list[Prepare], way: Way
    ) -> tuple[Unit, Code] | None:
        above = self.reach.above(anchor)
        joined = self._joined(above, prepares, way)
        if joined is not None:
            way.joins = True
            way.home = joined
            return joined[0], joined[0].names.function(joined[1].node)
        for unit, name in self.devices:
            code = self._owner(unit, name.binding.scope)
            if code in above and name.definitions:
                home = self._instead(unit, name, needs)
                if not self._late(unit, code, home, prepares):
                    way.home = (unit, home)
                    return unit, code
        for field_ in self.fields:
            if field_.code in above and field_.code in self.reach.reachable:
                home = self._beside(field_, needs)
                if not self._late(field_.unit, field_.code, home, prepares):
                    way.home = (field_.unit, home)
                    return field_.unit, field_.code
        if anchor is None:
            return None
        unit = self.reach.unit(anchor)
        body = anchor.body if isinstance(anchor, cst.FunctionDef) else anchor
        first = self._first_use(unit, list(getattr(body, "body", ())), needs, prepares)
        if first is None:
            return None
        behind = any(first is p.node and p.side is Side.AFTER and p.wraps is None for p in prepares)
        side = Side.AFTER if behind and not self._runs_need(unit, first, needs) else Side.BEFORE
        way.home = (unit, Home(first, side, (), "before its first use; the script names no device"))
        flagged = self._flagged(unit, anchor, first, prepares)
        if flagged is not None:
            way.home = (unit, flagged)
        return unit, anchor

    def _joined(self, above: list[Code], prepares: list[Prepare], way: Way) -> tuple[Unit, Home] | None:
        """The home in the place of the statement by which a distributed script joins its processes."""
        for start in self.starts:
            unit, code = start.unit, start.unit.names.function(start.statement)
            if code not in above or code not in self.reach.reachable:
                continue
            node, whole = start.statement, start.whole
            for around in unit.names.ancestors(start.statement):
                if around is code:
                    break
                if isinstance(around, (cst.If, cst.Try)) and not _is_entry_guard(around):
                    node, whole = around, False
            names = [n for u, n in self.devices if u is unit and self._owner(u, n.binding.scope) is code]
            arguments: tuple[tuple[str, str], ...] = self.constructor
            for name in names:
                condition = cpu_condition(self.state, unit, name)
                if condition is not None and self._defined_by(unit, name, condition) < unit.names.order(node):
                    arguments = (("cpu", condition), *arguments)
                    break
            gives = any(node in name.definitions for name in names) and start.chooses is not None
            instead = whole or gives
            side = Side.INSTEAD if instead else Side.BEFORE
            home = Home(node, side, arguments, "it opens the group, and knows the place of the process")
            if not self._late(unit, code, home, prepares):
                way.idle = [start.chooses] if gives and not whole and start.chooses is not None else []
                return unit, home
        return None

    def _flagged(self, unit: Unit, anchor: Code, first: cst.CSTNode, prepares: list[Prepare]) -> Home | None:
        """The home of an accelerator that takes over the flag on which the script's moves hang: where it is known."""
        if self.flag is None or (self.flag.unit is not unit and self.flag.text != "True"):
            return None
        scope, order = unit.names.scopes[anchor], unit.names.order
        behind = self.flag.behind
        ready = order(behind) if behind is not None and unit.names.function(behind) is anchor else -1
        for word in _words(cst.parse_expression(self.flag.gives.partition(" =")[0] or self.flag.text)):
            binding = scope.lookup(word)
            if binding is None and word != "True" and starred(self.state, unit, word) is None:
                return None
            for definition in binding.definitions if binding is not None else ():
                if unit.names.function(definition) is anchor and not isinstance(definition, cst.Param):
                    ready = max(ready, order(definition))
        block = getattr(unit.names.parents[first], "body", ())
        node = next((s for s in block if order(s) > ready and order(s) >= order(first)), None)
        places = [order(p.wraps or p.node) for p in prepares if unit.names.function(p.node) is anchor]
        if node is None or any(place < order(node) for place in places):
            return None
        because = "where its flag is known; it takes over the choice of the device"
        arguments = (("cpu", self.flag.text),) if self.flag.text else ()
        return Home(node, Side.BEFORE, arguments, because, gives=self.flag.gives.format(self.name))

    def _late(self, unit: Unit, code: Code, home: Home, prepares: list[Prepare]) -> bool:
        """Whether the device is chosen only behind a place in the same code where the accelerator is needed."""
        order = unit.names.order
        places = [p.wraps or p.node for p in prepares]
        return any(0 <= order(p) < order(home.node) for p in places if unit.names.function(p) is code)

    def _instead(self, unit: Unit, name: DeviceName, needs: dict[Code, None]) -> Home:
        condition = cpu_condition(self.state, unit, name)
        arguments = (("cpu", condition),) if condition is not None else ()
        first = self._earlier(unit, name, condition, needs)
        if name.binding in self.lent:
            return Home(first or name.definitions[0], Side.BEFORE, arguments, "where the device is chosen")
        if first is not None:
            because = "in front of what needs it first; it takes over the choice of the device"
            return Home(first, Side.BEFORE, arguments, because, tuple(name.definitions))
        because = "takes the place of the device's definition"
        return Home(name.definitions[0], Side.INSTEAD, arguments, because, tuple(name.definitions[1:]))

    def _beside(self, field_: DeviceField, needs: dict[Code, None]) -> Home:
        """The home in front of the statement that gives an attribute the device."""
        name = field_.name()
        condition = cpu_condition(self.state, field_.unit, name)
        arguments = (("cpu", condition),) if condition is not None else ()
        first = self._earlier(field_.unit, name, condition, needs) or field_.statement
        return Home(first, Side.BEFORE, arguments, "where the device is chosen")

    def _earlier(
        self, unit: Unit, name: DeviceName, condition: str | None, needs: dict[Code, None]
    ) -> cst.CSTNode | None:
        """The statement in front of the device's definition that needs the accelerator already (a print, say), if the
        names that the constructor's arguments read are there by then."""
        order, definition = unit.names.order, name.definitions[0]
        block = getattr(unit.names.parents[definition], "body", ())
        ready = self._defined_by(unit, name, condition)
        for statement in block:
            if order(statement) >= order(definition):
                return None
            compound = isinstance(statement, (cst.FunctionDef, cst.ClassDef))
            if compound or order(statement) < ready or _is_header(statement):
                continue
            if self._runs_need(unit, statement, needs):
                found: cst.CSTNode = statement
                return found
        return None

    def _defined_by(self, unit: Unit, name: DeviceName, condition: str | None) -> int:
        """The position in the source behind which all names that a condition reads are defined."""
        found = -1
        scope = name.binding.scope
        asked = _words(cst.parse_expression(condition)) if condition is not None else ()
        for word in (*asked, *self.reads):
            binding = scope.lookup(word)
            for definition in binding.definitions if binding is not None else ():
                if not isinstance(definition, (cst.ImportAlias, cst.FunctionDef, cst.ClassDef, cst.Param)):
                    found = max(found, unit.names.order(definition))
        return found

    def _first_use(
        self, unit: Unit, block: list[cst.CSTNode], needs: dict[Code, None], prepares: list[Prepare]
    ) -> cst.CSTNode | None:
        """The first statement that needs the accelerator; inside an ``if`` or a ``with`` that holds all such code."""
        around = {n for p in prepares for n in (p.node, *unit.names.ancestors(p.node))}
        plain = (s for s in block if not isinstance(s, (cst.FunctionDef, cst.ClassDef)) and not _is_header(s))
        found = [s for s in plain if s in around or self._runs_need(unit, s, needs)]
        if not found:
            return None
        first = found[0]
        if len(found) == 1 and isinstance(first, (cst.If, cst.With)) and getattr(first, "orelse", None) is None:
            return self._first_use(unit, list(getattr(first.body, "body", ())), needs, prepares) or first
        return first

    def _runs_need(self, unit: Unit, statement: cst.CSTNode, needs: dict[Code, None]) -> bool:
        return any(self._needs_here(unit, node, needs) for node in self.reach.runs(statement, unit))

    def _needs_here(self, unit: Unit, node: cst.CSTNode, needs: dict[Code, None]) -> bool:
        if not isinstance(node, cst.Call) or node not in self.state.calls:
            return False
        return any(function in needs for function in self.reach.called(node)) or node in self.marked

    starts: Sequence[Start] = ()
    """Where a script that distributes itself joins its processes."""
    constructor: tuple[tuple[str, str], ...] = ()
    """Further arguments of the accelerator."""
    lent: Container[Binding] = ()
    """Device variables that other modules read."""
    fields: Sequence[DeviceField] = ()
    """Attributes that are given the device."""
    marked: frozenset[cst.CSTNode] = frozenset()
    """Calls that are edited themselves."""
    flag: Flag | None = None
    """The condition under which a script that names no device keeps to the CPU."""
    reads: frozenset[str] = frozenset()
    """Further names that the constructor's arguments read."""

    # The way down ----------------------------------------------------------------------------------------------------

    def _reach(self, code: Code, way: Way, trail: tuple[Code, ...]) -> bool:
        """Bring the accelerator into some code; False where that cannot be done."""
        if code in way.reaches:
            return True
        if code in trail or (isinstance(code, cst.Module) and code is not way.code):
            return False
        method = self.holders.method(code)
        if method is not None and not (code is method[0] and self._takes_by_hand(code)):
            kept = (not self._sees(code, way) or self._wants(method[1])) and self._kept(
                code, *method, way, (*trail, code)
            )
            if kept or not self._sees(code, way):
                return kept
        if self._sees(code, way):
            if code in self._early(way):
                return False
            if self._parameter(code) is None or not self._handed_by_all(code, way, trail):
                way.reaches.add(code)
            return True
        return self._handed_by_all(code, way, trail)

    # Objects that keep it ---------------------------------------------------------------------------------------------

    def _wants(self, klass: Klass) -> bool:
        """Whether the objects of a class are handed the device: the accelerator takes its place."""
        return any(self._parameter(init) is not None for init in self.holders.inits(klass))

    def _takes_by_hand(self, code: Code) -> bool:
        """Whether some code is a constructor that is handed the accelerator."""
        return self.holders.is_init(code)

    def _kept(self, code: Code, method: cst.FunctionDef, klass: Klass, way: Way, trail: tuple[Code, ...]) -> bool:
        """Let a method, or a function inside one, read the accelerator from its object."""
        if code is not method and not self._inner(code, method, klass, way, trail):
            return False
        if (
            code in self.shared
            or method in self.shared
            or (klass not in self.keepers and not self._at_home(klass, way))
        ):
            return False
        if self._at_home(klass, way):
            home = way.code
            assert home is not None
            constructor = isinstance(home, cst.FunctionDef) and home.name.value == "__init__"
            if method in self._early(way) or not (constructor or method in self.reach.below(home)):
                return False
        else:
            inits = self.holders.inits(klass)
            if not inits or not all(self._reach(init, way, trail) for init in inits):
                return False
            for init in inits:
                way.stores[init] = self.holders.unit(init)
                if method.name.value == "__init__" or self._runs_in(method, init):
                    way.early_stores.add(init)
        way.reaches.add(code)
        way.spelled[code] = receiver(method)
        return True

    def _runs_in(self, method: cst.FunctionDef, init: cst.FunctionDef) -> bool:
        """Whether a constructor's base call runs a method."""
        base = base_call(self.holders.unit(init), init)
        return base is not None and any(n is method.body for n in self.reach.runs(base, self.holders.unit(init)))

    def _inner(self, code: Code, method: cst.FunctionDef, klass: Klass, way: Way, trail: tuple[Code, ...]) -> bool:
        """Whether a function inside a method can read what the method can."""
        unit = self.reach.unit(code)
        name = receiver(method)
        binding = unit.names.scopes[code].lookup(name)
        own = unit.names.scopes[method].bindings.get(name)
        if binding is not own:
            return False
        return method in way.reaches or self._reach(method, way, trail)

    def _at_home(self, klass: Klass, way: Way) -> bool:
        """Whether the accelerator is made by a method of the same objects."""
        home = self.holders.method(way.code) if way.code is not None else None
        return home is not None and (self.holders.kin(klass, home[1]) or self.holders.kin(home[1], klass))

    def _early(self, way: Way) -> set[Code]:
        """The functions that run before the accelerator is made."""
        if self._runs_early is None:
            self._runs_early = set()
            assert way.code is not None and way.home is not None
            unit = way.home[0]
            for site in unit.names.calls:
                if unit.names.function(site) is way.code and site in self.state.calls:
                    behind = self._behind_home(site, way.code, way)
                    for function in self.reach.called(site) if not behind else ():
                        self._runs_early.update(self.reach.below(function))
        return self._runs_early

    def _sees(self, code: Code, way: Way) -> bool:
        """Whether the accelerator's name is visible in some code without being handed down."""
        unit = self.reach.unit(code)
        if way.home is None or way.home[0] is not unit or way.code is None:
            return False
        scope: Scope | None = unit.names.scopes[code].parent
        while scope is not None:
            if scope.node is way.code:
                return True
            scope = scope.parent
        return False

    def _handed_by_all(self, code: Code, way: Way, trail: tuple[Code, ...]) -> bool:
        if not isinstance(code, cst.FunctionDef) or not self._can_change(code):
            return False
        sites = [s for s in self.reach.sites(code) if self.reach.function_of(s) in self.reach.reachable]
        if not sites or len(sites) != len(self.reach.sites(code)):
            return False
        for site in sites:
            caller = self.reach.function_of(site)
            if not self._reach(caller, way, (*trail, code)) or not self._behind_home(site, caller, way):
                return False
        self._hand_down(code, sites, way)
        return True

    def _can_change(self, code: cst.FunctionDef) -> bool:
        """Whether all callers are known: a plain function, never used as a value."""
        unit = self.reach.unit(code)
        if code in self.shared or code in self.state.escaped or (code.decorators and not _harmless(code)):
            return False
        scope = unit.names.within.get(code)
        if self.holders.is_init(code):
            return self._can_construct(code)
        if scope is None or isinstance(scope.node, cst.ClassDef):
            return False
        function: Thing = unit.function(code)
        for node in self._values_of.get(function, ()):
            owner = next((u for u in self.reach.units if node in u.names.parents), None)
            parent = owner.names.parents.get(node) if owner is not None else None
            if not (isinstance(parent, cst.Call) and parent.func is node):
                return False
        return isinstance(function, Function)

    def _can_construct(self, init: cst.FunctionDef) -> bool:
        """Whether all constructions by a constructor are plain, and of nothing else besides."""
        for site in self.reach.sites(init):
            others = [f for f in self.reach.called(site) if f is not init]
            explicit = isinstance(site.func, cst.Attribute) and not _is_super(site.func.value)
            by_class = explicit and any(isinstance(t, Function) for t in self.state.calls[site].callees)
            if others or by_class:
                return False
        return True

    def _behind_home(self, site: cst.Call, caller: Code, way: Way) -> bool:
        """Whether a call in the home's own code stands behind the statement that makes the accelerator."""
        if caller is not way.code or way.home is None:
            return True
        order = {node: index for index, node in enumerate(_statements_of(caller))}
        unit = self.reach.unit(caller)
        home = order.get(way.home[1].node)
        here = next((order[n] for n in (site, *unit.names.ancestors(site)) if n in order), None)
        if home is None or here is None:
            return True
        return here >= home if way.home[1].side is Side.BEFORE else here > home

    def _parameter(self, code: Code) -> cst.Param | None:
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
        if len(binding.definitions) != 1 or param.default is not None:
            return []
        things = list(self.state.binding(binding).things)
        held = [t for t in things if isinstance(t, Origin)]
        return things if self.starts and number(things) is not None else list(held)

    def _hand_down(self, code: cst.FunctionDef, sites: list[cst.Call], way: Way) -> None:
        unit = self.reach.unit(code)
        scope = unit.names.scopes[code]
        param = self._parameter(code)
        places = positional(code)
        shift = 1 if self.holders.is_init(code) else 0  # the object itself is no argument of a construction
        if param is not None and any(argument_of(s, param, places.index(param) - shift) is None for s in sites):
            param = None
        if any(p.name.value == self.name for p in parameters(code)):
            way.reaches.add(code)
            return
        index: int | None = places.index(param) if param is not None else len([p for p in places if p.default is None])
        if param is None and isinstance(code.params.star_arg, cst.Param):
            index = None
        way.hand_downs.append((unit, HandDown(code, param, index)))
        place = index - shift if index is not None else None
        for site in sites:
            argument = argument_of(site, param, place) if param is not None and place is not None else None
            way.handings.append((self.state.calls[site].unit, Handing(site, argument, place)))
        if param is not None:
            binding = scope.bindings[param.name.value]
            of_device = bool(origins(self.state.binding(binding), Role.DEVICE))
            (way.replaced if of_device else way.given_up).add(binding)
            self._drop_numbers(code, sites, shift, way, param)
        way.reaches.add(code)

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

    def _owner(self, unit: Unit, scope: Scope) -> Code:
        return scope.function.node

    def _before_home(self, unit: Unit, name: DeviceName, way: Way) -> bool:
        return False


def _is_entry_guard(node: cst.CSTNode) -> bool:
    """``if __name__ == "__main__":``."""
    return isinstance(node, cst.If) and any(
        isinstance(n, cst.Name) and n.value == "__name__" for n in descendants(node.test)
    )


def _words(node: cst.CSTNode) -> Iterator[str]:
    """The names that an expression reads, those of attributes apart."""
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, cst.Attribute):
        yield from _words(node.value)
    else:
        for child in children(node):
            yield from _words(child)


def _statements_of(code: Code) -> list[cst.CSTNode]:
    """All statements of some code, nested ones included, in source order."""
    body = code.body if isinstance(code, (cst.FunctionDef, cst.Lambda)) else code
    found: list[cst.CSTNode] = []
    pending = list(getattr(body, "body", ()))
    while pending:
        statement = pending.pop(0)
        found.append(statement)
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            continue
        inner: list[cst.CSTNode] = []
        for part in (getattr(statement, "body", None), getattr(statement, "orelse", None)):
            if isinstance(part, cst.IndentedBlock):
                inner.extend(part.body)
            elif isinstance(part, cst.Else):
                inner.extend(getattr(part.body, "body", ()))
            elif isinstance(part, cst.If):
                inner.append(part)
        pending[:0] = inner
    return found


def argument_of(site: cst.Call, param: cst.Param, index: int) -> cst.Arg | None:
    """The argument of a call that fills a parameter; None where a star or a default fills it."""
    for position, arg in enumerate(site.args):
        if arg.star:
            return None
        if arg.keyword is not None:
            if arg.keyword.value == param.name.value:
                return arg
        elif position == index:
            return arg
    return None


def _is_super(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "super"


def _is_header(statement: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    return isinstance(small, (cst.Import, cst.ImportFrom)) or is_docstring(statement)


def _harmless(code: cst.FunctionDef) -> bool:
    """Whether every decorator is torch's own kind that leaves the signature alone: ``@torch.no_grad()``."""
    for decorator in code.decorators:
        node = decorator.decorator.func if isinstance(decorator.decorator, cst.Call) else decorator.decorator
        name = node.attr.value if isinstance(node, cst.Attribute) else getattr(node, "value", "")
        if name not in ("no_grad", "inference_mode", "enable_grad"):
            return False
    return True
