"""Who calls whom: which functions the script's start reaches, and in which loops a piece of code runs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

import libcst as cst

from ...facts.roles import Origin
from ..syntax.nodes import FunctionNode, positional
from ..syntax.scopes import Binding
from ..syntax.walk import descendants
from .call_binding import argument_for
from .program_flow import is_guard
from .values import CallRecord, State, Unit

_FUNCTIONS = frozenset({cst.FunctionDef, cst.Lambda})
_LOOPS = frozenset({cst.For, cst.While, cst.CompFor})
WAITING: frozenset[type[cst.CSTNode]] = frozenset({cst.FunctionDef, cst.Lambda, cst.ClassDef})

Code = cst.CSTNode
"""A function node, or a module node for code at module level."""


class Reach:
    """The call graph of a solved program. The first unit is the entry script."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.units = list(state.units.values())
        state.once(Reach, lambda: self)
        self._unit_of: dict[Code, Unit] = {}
        for unit in self.units:
            self._unit_of[unit.names.module] = unit
            self._unit_of.update(dict.fromkeys(unit.names.functions, unit))
        self._callees: dict[Code, dict[Code, None]] = {}
        self._called: dict[cst.CSTNode, list[FunctionNode]] = {}
        self._below: dict[Code, dict[Code, None]] = {}
        self._above: dict[Code, dict[cst.CSTNode, None]] = {}
        self._parts: dict[cst.CSTNode, tuple[cst.CSTNode, ...]] = {}
        self._turns: dict[cst.CSTNode, tuple[cst.CSTNode, ...]] = {}
        self._yields: dict[Code, bool] = {}
        self._inside: dict[cst.CSTNode, frozenset[cst.CSTNode]] = {}
        for function, sites in state.sites.items():
            assert isinstance(function, (cst.FunctionDef, cst.Lambda))
            for call in sites:
                self._callees.setdefault(self.function_of(call), {})[function] = None
                self._called.setdefault(call, []).append(function)
                for wrapper in state.wrappers.get(function, ()):
                    assert isinstance(wrapper, (cst.FunctionDef, cst.Lambda))
                    self._callees[self.function_of(call)][wrapper] = None
                    self._called.setdefault(call.func, []).append(wrapper)
        self.reachable = self._from_entry()

    def unit(self, code: Code) -> Unit:
        """The module that contains a function (or module-level code)."""
        return self._unit_of[code]

    def unit_of(self, node: cst.CSTNode, otherwise: Unit) -> Unit:
        """The module of a node."""
        return next((unit for unit in self.units if node in unit.names.parents), otherwise)

    def function_of(self, call: cst.Call) -> Code:
        """The function (or module) whose code makes a call."""
        return self.state.calls[call].unit.names.function(call)

    def idle(self, unit: Unit) -> Iterator[cst.FunctionDef | cst.If]:
        """The functions of a module that the program does not run, and what it runs only where it is started itself."""
        for function in unit.names.functions:
            if isinstance(function, cst.FunctionDef) and function not in self.reachable:
                yield function
        for statement in unit.names.module.body:
            if isinstance(statement, cst.If) and self._rests(unit, statement):
                yield statement

    def resting(self, unit: Unit, node: cst.CSTNode) -> cst.If | None:
        """The ``if __name__ == "__main__":`` around a node of a module that the program only imports."""
        around = unit.names.enclosing(node, cst.If)
        return next((each for each in around if isinstance(each, cst.If) and self._rests(unit, each)), None)

    def _rests(self, unit: Unit, statement: cst.If) -> bool:
        return unit is not self.units[0] and is_guard(statement) and statement.orelse is None

    def callees(self, code: Code) -> Iterator[Code]:
        """The functions of the program that a function's code calls, lambdas and nested functions it defines apart."""
        yield from self._callees.get(code, ())

    def below(self, code: Code) -> Mapping[Code, None]:
        """A function and all functions that it reaches."""
        if code not in self._below:
            self._below[code] = self._reached(code)
        return self._below[code]

    def _reached(self, code: Code) -> dict[Code, None]:
        found: dict[Code, None] = {code: None}
        pending = [code]
        while pending:
            for callee in self.callees(pending.pop()):
                if callee not in found:
                    found[callee] = None
                    pending.append(callee)
        return found

    def own(self, code: Code) -> tuple[cst.CSTNode, ...]:
        """The nodes of a function's (or module's) own code."""
        return self._of_body(code if isinstance(code, cst.Module) else code.body)  # type: ignore[attr-defined]

    def _of_body(self, body: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
        """The nodes that run with the body of a function: asked for again and again, and found once."""
        if body not in self._parts:
            self._parts[body] = tuple(_own(body))
        return self._parts[body]

    def parts(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes below one that run with it, what it calls apart."""
        return _own(node)

    def yields(self, code: Code) -> bool:
        """Whether a function is a generator: it runs where its values are consumed."""
        if code not in self._yields:
            own = self.own(code) if isinstance(code, cst.FunctionDef) else ()
            self._yields[code] = any(node.__class__ is cst.Yield for node in own)
        return self._yields[code]

    def runs_in(self, loop: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
        """Every node that runs in a turn of a loop."""
        if loop not in self._turns:
            unit = next((u for u in self.units if loop in u.names.parents), None)
            block = loop.body if isinstance(loop, (cst.For, cst.While)) else None
            self._turns[loop] = tuple(self.runs(block, unit)) if unit is not None and block is not None else ()
        return self._turns[loop]

    def is_run_in(self, loop: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether a node runs in the turns of a loop."""
        if loop not in self._inside:
            self._inside[loop] = frozenset(self.runs_in(loop))
        return node in self._inside[loop]

    def runs(self, node: cst.CSTNode, unit: Unit) -> Iterator[cst.CSTNode]:
        """Every node whose code runs when ``node`` does: the nodes below it, and the functions reached from there."""
        seen: set[Code] = set()
        pending: list[Iterable[cst.CSTNode]] = [_own(node)]
        while pending:
            for found in pending.pop():
                yield found
                for function in self._called.get(found, ()):
                    if function not in seen:
                        seen.add(function)
                        pending.append(self._of_body(function.body))

    def above(self, code: Code | None) -> list[Code]:
        """Some code, and its callers up to the modules that contain them."""
        found: list[Code] = []
        pending = [code] if code is not None else []
        while pending:
            here = pending.pop(0)
            if here in found:
                continue
            found.append(here)
            pending.extend(self.function_of(site) for site in self.sites(here))
            if not isinstance(here, cst.Module):
                pending.append(self.unit(here).names.module)
        return found

    def reached_from(self, codes: Iterable[Code]) -> set[Code]:
        """Some code, and all that comes to it by calls."""
        found: set[Code] = set()
        pending = list(codes)
        while pending:
            code = pending.pop()
            if code not in found:
                found.add(code)
                pending += map(self.function_of, self.sites(code))
        return found

    def sites(self, code: Code) -> tuple[cst.Call, ...]:
        """The calls that reach a function."""
        return tuple(self.state.sites.get(code, ()))

    def reached_sites(self, code: Code) -> Iterator[CallRecord]:
        """The calls that reach a function, of the code that the program runs."""
        for site in self.sites(code):
            if self.function_of(site) in self.reachable:
                yield self.state.calls[site]

    def given(self, parameter: Binding) -> Iterator[tuple[Unit, cst.BaseExpression]]:
        """What the calls of a function give to one of its parameters, and the module of each call; what a star hands
        over may be for any of them."""
        function = parameter.scope.node
        if not isinstance(function, (cst.FunctionDef, cst.Lambda)) or function in self.state.implied:
            return
        places = [param.name.value for param in positional(function)]
        for site in self.sites(function):
            unit = self.state.calls[site].unit
            first = 1 if places[:1] in (["self"], ["cls"]) else 0  # of a method, or an object that is called
            for index, arg in enumerate(site.args):
                place = places[index + first] if index + first < len(places) else ""
                if arg.star or (arg.keyword.value if arg.keyword is not None else place) == parameter.name:
                    yield unit, arg.value

    def takes_default(self, unit: Unit, param: cst.Param) -> bool:
        """Whether a call of its function may leave a parameter out, so that its default is what the function gets."""
        function = unit.names.parents.get(unit.names.parents.get(param, param))
        if not isinstance(function, (cst.FunctionDef, cst.Lambda)) or function in self.state.escaped:
            return True
        sites = self.sites(function)
        return not sites or any(argument_for(unit, function, param, self.state.calls[site]) is None for site in sites)

    def called(self, call: cst.Call) -> list[FunctionNode]:
        """The functions of the program that a call can reach."""
        return self._called.get(call, [])

    def called_at(self, node: cst.CSTNode) -> Iterable[FunctionNode]:
        """The functions of the program that run where a node of any kind does."""
        return self._called.get(node, ())

    def calls_of(self, codes: Container[Code]) -> Iterator[cst.CSTNode]:
        """The nodes that run one of some functions."""
        return (node for node, functions in self._called.items() if any(one in codes for one in functions))

    def loops(self, node: cst.CSTNode, unit: Unit) -> list[cst.CSTNode]:
        """The loops in whose turns a node runs, in its own function, from the inside out, comprehension clauses among
        them: what a loop goes through is made before it."""
        found: list[cst.CSTNode] = []
        here = node
        for around in unit.names.ancestors(node):
            if around.__class__ in _FUNCTIONS:
                break
            if around.__class__ in _LOOPS:
                if not isinstance(around, cst.For) or here is not around.iter:
                    found.append(around)
            elif isinstance(around, cst.BaseComp) and here is not around.for_in:
                clause: cst.CompFor | None = around.for_in
                while clause is not None:
                    found.append(clause)
                    clause = clause.inner_for_in
            here = around
        return found

    def batch_loops(self, node: cst.CSTNode, unit: Unit) -> Mapping[cst.CSTNode, None]:
        """The innermost loops over a loader in which a node runs, seen through its function's callers."""
        own = self._own_batch_loop(node, unit)
        return {own: None} if own is not None else self._batch_loops_above(unit.names.function(node))

    def _own_batch_loop(self, node: cst.CSTNode, unit: Unit) -> cst.CSTNode | None:
        return next((loop for loop in self.loops(node, unit) if self.state.loaders.get(loop)), None)

    def _batch_loops_above(self, code: Code) -> Mapping[cst.CSTNode, None]:
        """The loops over a loader from which some code is called."""
        if code not in self._above:
            found = self._above[code] = {}
            seen = {code}
            pending = list(reversed(self.sites(code)))
            while pending:
                call = pending.pop()
                unit = self.state.calls[call].unit
                loop = self._own_batch_loop(call, unit)
                caller = unit.names.function(call)
                if loop is not None:
                    found[loop] = None
                elif caller not in seen:
                    seen.add(caller)
                    pending += reversed(self.sites(caller))
        return self._above[code]

    def always_in_batch_loop(self, node: cst.CSTNode, unit: Unit, seen: frozenset[Code] = frozenset()) -> bool:
        """Whether a node runs only inside loops over loaders, by whatever way it is reached."""
        if any(self.state.loaders.get(loop) for loop in self.loops(node, unit)):
            return True
        code = unit.names.function(node)
        sites = [site for site in self.sites(code) if self.function_of(site) in self.reachable]
        if code in seen or not sites:
            return False
        return all(self.always_in_batch_loop(s, self.state.calls[s].unit, seen | {code}) for s in sites)

    def loaders(self, loop: cst.CSTNode) -> tuple[Origin, ...]:
        """The loaders that a loop iterates."""
        return tuple(self.state.loaders.get(loop, ()))

    def _from_entry(self) -> dict[Code, None]:
        """What the start of the entry script reaches; the other modules' top levels run when they are imported. What is
        handed to code that is not seen may be called by it, if what defines it and what hands it over run."""
        found: dict[Code, None] = {}
        for unit in self.units:
            found.update(self.below(unit.names.module))
        for function in (f for f in self.state.started if f in self._unit_of):
            found.update(self.below(function))
        pending = [f for f in self.state.escaped if f in self._unit_of]
        while handed := [f for f in pending if f not in found and self._is_handed(f, found)]:
            for function in handed:
                found.update(self.below(function))
        return found

    def _is_handed(self, function: Code, found: Mapping[Code, None]) -> bool:
        """Whether what runs defines a function, and hands it over."""
        ancestors = self._unit_of[function].names.ancestors(function)
        owner = next((each for each in ancestors if each.__class__ in _FUNCTIONS), None)
        calls = self.state.escaped[function]
        return (owner is None or owner in found) and any(
            call is None or call not in self.state.calls or self.function_of(call) in found for call in calls
        )


def reach_of(state: State) -> Reach:
    """The call graph of a solved program: one for all that ask."""
    return state.once(Reach, lambda: Reach(state))


def _own(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes below one that run with it: bodies of nested functions and classes wait until they are called."""
    return descendants(node, WAITING)
