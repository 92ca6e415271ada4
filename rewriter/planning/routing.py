"""
The accelerator's way: which functions need it, and how it gets there from where it is made.

A device parameter that a function no longer needs gives its place to the accelerator; otherwise a parameter is added.
Every call in the program is changed along, or the function is not given the accelerator at all.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.running_order import without
from ..analysis.dataflow.values import Klass
from ..analysis.syntax.scopes import Scope
from ..facts.accelerator import Prepare, Side
from .accelerator_path import Way
from .holders import base_call, receiver
from .home import Homes, owner
from .shared_code import derived_from
from .signatures import Signatures


class Router:
    """Finds the way of the accelerator through a program."""

    def __init__(
        self,
        homes: Homes,
        shared: Container[Code] = (),
        keepers: Container[Klass] = (),
        optional: Container[Code] = (),
        guards: Container[Code] = (),
        apart: Container[Code] = (),
    ) -> None:
        self.homes = homes
        self.state, self.reach = homes.state, homes.reach
        self.shared = shared
        """Functions that files outside the program call as well."""
        self.optional = optional
        """Those of them that may get the accelerator as a last parameter, and make one where it is not given."""
        self.holders = homes.holders
        self.signatures = Signatures(
            self.state, self.reach, self.holders, homes.name, homes.starts, shared, optional, homes.placing, apart
        )
        self.keepers = keepers
        """Classes whose objects keep the accelerator."""
        self.guards = guards
        """Code that only asks which process this is, or waits: no signature changes for it."""
        self._changes = True
        self._runs_early: set[Code] | None = None
        self._orders: dict[Code, dict[cst.CSTNode, int]] = {}
        self._without: dict[Code, set[Code]] = {}

    def route(
        self, needs: dict[Code, None], essential: Container[Code], anchor: Code | None, prepares: list[Prepare]
    ) -> Way:
        """
        The way to all the code in ``needs``, from a home in the code that prepares or above it.

        The lowest home disturbs least. It is made where the object keeps its device, or higher up where processes must
        agree on a name before, or where code that cannot do without it is above or beside: a trainer that chooses its
        device, in a program that saves after it.
        """
        way = self._from(self._lowest(needs, anchor, prepares), needs)
        lacking = self.lacking(way, needs, essential)
        if way.code is None or not lacking:
            return way
        wanted = {**needs, **dict.fromkeys(self.homes.stamps)}

        def above(code: Code) -> Callable[[Way], Way]:
            return lambda lowest: self.homes.higher(lowest, code, wanted, prepares)

        best: Callable[[Way], Way] | None = None
        fewest = (len(lacking), len(needs))
        finders: list[Callable[[Way], Way]] = [partial(self.homes.constructed, needs=needs, prepares=prepares)]
        finders += map(above, self.reach.above(way.code)[1:])
        for find in finders:
            higher = self._from(find(way), needs)
            left = self.lacking(higher, needs, essential)
            rank = (len(left), sum(code not in higher.reaches | higher.behind for code in needs))
            kept = {code for code in way.reaches if code in essential and code not in self.guards}
            if higher.home is not None and left < lacking and kept <= higher.reaches and rank < fewest:
                best, fewest = find, rank
        lowest = self._lowest(needs, anchor, prepares)
        found = self._from(best(lowest) if best is not None else lowest, needs)
        if best is not None and found.home is not None and not found.home[1].gives:
            found.given_back = self.homes.given_back(way)
        return found

    def lacking(self, way: Way, needs: Iterable[Code], essential: Container[Code]) -> set[tuple[Code, str]]:
        """The code that must have the accelerator, or run after it is created, and does not."""
        needs = [code for code in needs if code not in self.guards or code not in way.behind]
        without = {(code, "has") for code in needs if code in essential and code not in way.reaches}
        early = {(code, "behind") for code in self.homes.stamps if code not in way.behind | way.reaches}
        kept = {(code, "keeps") for code in needs if code not in way.reaches and self._is_beside(code, way)}
        return without | early | kept

    def _is_beside(self, code: Code, way: Way) -> bool:
        """Whether some code is of an object of which another method makes the accelerator, perhaps later."""
        method = self.holders.method(code) if not self.holders.is_init(code) else None
        return method is not None and self._at_home(method[1], way)

    def _lowest(self, needs: dict[Code, None], anchor: Code | None, prepares: list[Prepare]) -> Way:
        way = Way()
        self.homes.find(needs, anchor, prepares, way)
        return way

    def _from(self, way: Way, needs: dict[Code, None]) -> Way:
        """The way from a home to all the code in ``needs``."""
        self._runs_early = None
        if way.home is None:
            return way
        code = way.home[0].names.function(way.home[1].node)
        way.code = code
        way.reaches.add(code)
        method = self.holders.method(code)
        if method is not None:
            way.spelled[code] = receiver(method[0])
        for target in needs:
            if target not in self.guards:
                self._reach(target, way, ())
        way.after = self._after(way)
        self._changes = False
        for target in needs:
            if target in self.guards:
                self._reach(target, way, ())
        self._changes = True
        for target in needs:
            if target not in way.after:  # nor does it know there which process this is
                self._reach(target, way, ())
        for unit, name in self.homes.devices:
            if owner(name) in way.reaches and name.binding in self.homes.lent:
                way.redefined.append((unit, name))
            elif owner(name) in way.reaches:
                way.replaced.add(name.binding)
        way.behind = {code for code in way.after if not self._sees(code, way)}
        return way

    def _after(self, way: Way) -> set[Code]:
        """The functions that run only after the home: the methods of an object whose constructor it is in, too."""
        assert way.code is not None
        before = set(self._early(way))
        first = {way.code, *self._methods(way.code)} - before
        pending: list[Code] = [*(unit.names.module for unit in self.reach.units), *self.state.escaped]
        while pending:
            code = pending.pop()
            if code not in before and code not in first:
                before.add(code)
                pending.extend(self.reach.callees(code))
        below = {code for gate in first for code in self.reach.below(gate)}
        return {code for code in below if code not in before and code is not way.code}

    def _methods(self, code: Code) -> Iterator[Code]:
        """The methods of the objects that a constructor makes, other than their constructors."""
        found = self.holders.method(code) if self.holders.is_constructor(code) else None
        for made in self.holders.family(found[1]) if found is not None else ():
            for klass in made.lineage():
                for statement in getattr(klass.node.body, "body", ()):
                    if isinstance(statement, cst.FunctionDef) and not self.holders.is_constructor(statement):
                        if self.holders.method(statement) is not None:
                            yield statement

    # The way down ----------------------------------------------------------------------------------------------------

    def _reach(self, code: Code, way: Way, trail: tuple[Code, ...]) -> bool:
        """Bring the accelerator into some code; False where that cannot be done."""
        if code in way.reaches:
            return True
        if code in trail or (isinstance(code, cst.Module) and code is not way.code):
            return False
        method = self.holders.method(code)
        if method is not None and not (code is method[0] and self.holders.is_init(code)):
            kept = (not self._sees(code, way) or self._wants(method[1])) and self._kept(
                code, *method, way, (*trail, code)
            )
            if (
                not kept
                and method[1] in self.keepers
                and not self._sees(code, way)
                and not self.holders.inits(method[1])
            ):
                return self._handed_to(code, method[0], way, trail) or self._kept_since(code, *method, way, trail)
            if kept or not self._sees(code, way):
                return kept
        if self._sees(code, way):
            if code in self._early(way):
                return False
            if self.signatures.parameter(code) is None or not self._handed_by_all(code, way, trail):
                way.reaches.add(code)
            return True
        return self._handed_by_all(code, way, trail) or self._around(code, way, trail)

    def _around(self, code: Code, way: Way, trail: tuple[Code, ...]) -> bool:
        """Let a function inside another one read what that is handed: the closure of an optimizer's step."""
        scope = self.reach.unit(code).names.scopes[code].parent
        outer = scope.function.node if scope is not None else None
        if not isinstance(outer, cst.FunctionDef) or outer in way.spelled:
            return False
        if outer not in way.reaches and not self._reach(outer, way, (*trail, code)):
            return False
        if outer in way.spelled:
            return False
        way.reaches.add(code)
        return True

    # Objects that keep it ---------------------------------------------------------------------------------------------

    def _wants(self, klass: Klass) -> bool:
        """Whether the objects of a class are handed the device: the accelerator takes its place."""
        return any(self.signatures.parameter(init) is not None for init in self.holders.inits(klass))

    def _kept(self, code: Code, method: cst.FunctionDef, klass: Klass, way: Way, trail: tuple[Code, ...]) -> bool:
        """Let a method, or a function inside one, read the accelerator from its object."""
        if code is not method and not self._inner(code, method, way, trail):
            return False
        home, at_home = way.code, self._at_home(klass, way)
        constructor = at_home and isinstance(home, cst.FunctionDef) and home.name.value == "__init__"
        shared = code in self.shared or method in self.shared
        inits = self.holders.inits(klass)
        if (shared and not self._all_have_one(klass, inits, constructor)) or (not self._keeps(klass) and not at_home):
            return False  # whoever calls a shared method has made its object, but has not run another method
        if at_home:
            assert home is not None
            if method in self._early(way) or not (constructor or self._runs_after(method, klass, home)):
                return False
        else:
            if not inits or not all(self._reach(init, way, trail) for init in inits):
                return False
            for init in inits:
                way.stores[init] = self.holders.unit(init)
                if method.name.value == "__init__" or self._runs_in(method, init):
                    way.early_stores.add(init)
        way.reaches.add(code)
        way.spelled[code] = receiver(method)
        return True

    def _keeps(self, klass: Klass) -> bool:
        """Whether all objects that have the methods of a class keep the accelerator."""
        family = self.holders.family(klass) if klass not in self.keepers else []
        return klass in self.keepers or (
            bool(family) and all(any(base in self.keepers for base in made.lineage()) for made in family)
        )

    def _all_have_one(self, klass: Klass, inits: list[cst.FunctionDef], constructor: bool) -> bool:
        """
        Whether every object that has the methods of a class has an accelerator: also those that files outside the
        program construct, of this class or of one that derives from it.

        Args:
            klass: the class.
            inits: the constructors of the objects that the program makes.
            constructor: whether these make the accelerator themselves; else they make one where they are given none.
        """
        derived = (other.method("__init__") for other in derived_from(self.reach, klass))
        others = {init.node for init in derived if init is not None} - set(inits)
        if not all(code in self.optional for code in others if code in self.shared):
            return False
        return constructor or (bool(inits) and all(i not in self.shared or i in self.optional for i in inits))

    def _kept_since(self, code: Code, method: cst.FunctionDef, klass: Klass, way: Way, trail: tuple[Code, ...]) -> bool:
        """Let a method read the accelerator from its object, where another method that has run before is handed it."""
        builder = self.holders.builder(method, klass)
        if builder is None or builder is way.code or not (self._changes or builder in way.stores):
            return False
        if not self._reach(builder, way, (*trail, code)):
            return False
        if code is not method and not self._inner(code, method, way, (*trail, code)):
            return False
        way.stores[builder] = self.holders.unit(builder)
        way.reaches.add(code)
        way.spelled[code] = receiver(method)
        return True

    def _runs_after(self, method: cst.FunctionDef, klass: Klass, home: Code) -> bool:
        """Whether a method runs in the method that makes the accelerator, and nowhere before it; or, of an object
        without a constructor, after that method."""
        if home not in self._without:
            self._without[home] = without(self.reach, home)
        bare = all(self.holders.init(made) is None for made in self.holders.family(klass))
        among = self.reach.reachable if bare else self.reach.below(home)
        return method in among and method not in self._without[home]

    def _handed_to(self, code: Code, method: cst.FunctionDef, way: Way, trail: tuple[Code, ...]) -> bool:
        """Hand the accelerator to a method whose object cannot keep it, a module of torch: ``model.fit(loader)``."""
        if code is method:
            return self._handed_by_all(code, way, trail)
        if method not in way.reaches and not self._reach(method, way, (*trail, code)):
            return False
        way.reaches.add(code)
        return True

    def _runs_in(self, method: cst.FunctionDef, init: cst.FunctionDef) -> bool:
        """Whether a constructor's base call runs a method."""
        return method.body in self.state.once((Router._run_by_base, init), lambda: self._run_by_base(init))

    def _run_by_base(self, init: cst.FunctionDef) -> frozenset[cst.CSTNode]:
        base = base_call(init)
        return frozenset(self.reach.runs(base, self.holders.unit(init)) if base is not None else ())

    def _inner(self, code: Code, method: cst.FunctionDef, way: Way, trail: tuple[Code, ...]) -> bool:
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
            for site in self._before_base(way.code):
                for early in self.reach.called(site):
                    self._runs_early.update(self.reach.below(early))
        return self._runs_early

    def _before_base(self, code: Code) -> Iterator[cst.Call]:
        """The calls of constructors that come before they run a constructor of a base class, which the home is in."""
        found = self.holders.method(code) if self.holders.is_constructor(code) else None
        inits = {
            method.node: None
            for made in (self.holders.family(found[1]) if found is not None else ())
            for klass in made.lineage()
            if (method := klass.method("__init__")) is not None and method.node is not code
        }
        for init in (node for node in inits if code in self.reach.below(node)):
            assert isinstance(init, cst.FunctionDef)
            names, base = self.reach.unit(init).names, base_call(init)
            for call in self.reach.own(init):
                if isinstance(call, cst.Call) and (base is None or names.order(call) < names.order(base)):
                    yield call

    def _sees(self, code: Code, way: Way) -> bool:
        """Whether the accelerator's name is visible in some code without being handed down, also where another file
        imports that: what is made below ``if __name__ == "__main__":`` is not there then."""
        unit = self.reach.unit(code)
        if way.home is None or way.home[0] is not unit or way.code is None or way.handed:
            return False
        if code in self.shared and isinstance(way.code, cst.Module):
            if not isinstance(unit.names.parents.get(unit.names.statement(way.home[1].node)), cst.Module):
                return False
        scope: Scope | None = unit.names.scopes[code].parent
        while scope is not None:
            if scope.node is way.code:
                return True
            scope = scope.parent
        return False

    def _handed_by_all(self, code: Code, way: Way, trail: tuple[Code, ...]) -> bool:
        if not isinstance(code, cst.FunctionDef):
            return False
        if self._changes and code in self.signatures.apart and way.code not in self.reach.below(code):
            self.signatures.hand_down(code, [], way)
            return True
        group = self.signatures.together(code)
        if not all(map(self.signatures.can_change, group)):
            return False
        if not self._changes and (len(group) > 1 or code in self.shared or self.signatures.parameter(code) is None):
            return False
        for member in group:
            sites = self.reach.sites(member)
            if not sites or any(self.reach.function_of(site) not in self.reach.reachable for site in sites):
                return False
            for site in sites:
                caller = self.reach.function_of(site)
                if not self._reach(caller, way, (*trail, *group)) or not self._behind_home(site, caller, way):
                    return False
        for member in group:
            self.signatures.hand_down(member, list(self.reach.sites(member)), way, alone=len(group) == 1)
        return True

    def _behind_home(self, site: cst.Call, caller: Code, way: Way) -> bool:
        """Whether a call in the home's own code comes after the statement that creates the accelerator."""
        if caller is not way.code or way.home is None:
            return True
        if caller not in self._orders:
            self._orders[caller] = {node: index for index, node in enumerate(_statements_of(caller))}
        order = self._orders[caller]
        unit = self.reach.unit(caller)
        home = order.get(way.home[1].node)
        here = next((order[n] for n in (site, *unit.names.ancestors(site)) if n in order), None)
        if home is None or here is None:
            return True
        return here >= home if way.home[1].side is Side.BEFORE else here > home


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
