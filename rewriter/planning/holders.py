"""
Objects that keep the accelerator: a class whose methods need it is given it when it is constructed.

``__init__`` stores it as ``self.accelerator``, and every method reads it there. That works where each construction in
the program can be changed along, and is left alone where torch itself handles the objects (modules, data sets).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.containers import members
from ..analysis.dataflow.fixed_attributes import fixed_in
from ..analysis.dataflow.values import Instance, Klass, State, Unit, decorators
from ..analysis.syntax.nodes import positional
from ..analysis.syntax.walk import descendants, nodes_in
from ..facts.torch_api import surroundings


class Holders:
    """The classes of a program, and who could keep the accelerator for which of their methods."""

    def __init__(self, state: State, reach: Reach) -> None:
        self.state, self.reach = state, reach
        self._classes: dict[cst.CSTNode, Klass] = {
            klass.node: klass for unit in reach.units for klass in unit.classes.values()
        }
        made: dict[Klass, None] = {}
        for record in state.calls.values():
            for thing in record.callees:
                if isinstance(thing, Klass):
                    made[thing] = None
        self.made = list(made)
        """The classes of which the program makes objects."""

    def method(self, code: Code) -> tuple[cst.FunctionDef, Klass] | None:
        """The method whose body contains some code, and its class; the code itself if it is a method."""
        unit = self.reach.unit(code)
        for node in (code, *unit.names.ancestors(code)):
            scope = unit.names.within.get(node)
            if isinstance(node, cst.FunctionDef) and scope is not None and scope.node in self._classes:
                return (node, self._classes[scope.node]) if _takes_self(node) else None
        return None

    def is_constructor(self, code: Code) -> bool:
        """Whether some code is the `__init__` of a class."""
        return isinstance(code, cst.FunctionDef) and code.name.value == "__init__" and self.method(code) is not None

    def is_init(self, code: Code) -> bool:
        """Whether some code is the constructor of a class of which there are objects."""
        return code in self._constructors

    @cached_property
    def _constructors(self) -> set[cst.CSTNode | None]:
        return {self.init(klass) for klass in self.made}

    def init(self, klass: Klass) -> cst.FunctionDef | None:
        """The constructor that runs first when an object of a class is made."""
        found = klass.method("__init__")
        return found.node if found is not None and isinstance(found.node, cst.FunctionDef) else None

    def inits(self, klass: Klass) -> list[cst.FunctionDef]:
        """The constructors of all objects that have the methods of a class; empty where one cannot be given more, and
        where the attributes of one are shown or saved: the accelerator would be among them."""
        found: dict[cst.FunctionDef, None] = {}
        for made in self.family(klass):
            init = self.init(made)
            if (
                init is None
                or made.role is not None
                or fixed_in(made, _KEPT)
                or not self._laid_open.isdisjoint(made.lineage())
            ):
                return []
            found[init] = None
        return list(found)

    def builder(self, method: cst.FunctionDef, klass: Klass) -> cst.FunctionDef | None:
        """
        The method that builds objects without a constructor, ``net.initialize(options)``: it runs once for each before
        another method, because it alone sets what that reads.
        """
        return next((one for one in self._run_before(method, klass) if self._is_called_once(one)), None)

    def _is_called_once(self, method: cst.FunctionDef) -> bool:
        """Whether a method is called on objects, and not in a loop."""
        sites = [self.state.calls[site] for site in self.reach.sites(method)]
        by_class = (t for site in sites for t in (site.receiver.things if site.receiver is not None else ()))
        looped = any(self.reach.loops(site.node, site.unit) for site in sites)
        return bool(sites) and not looped and not any(isinstance(thing, Klass) for thing in by_class)

    def _run_before(self, method: cst.FunctionDef, klass: Klass) -> list[cst.FunctionDef]:
        """The methods that an object without a constructor has run before another one, those that need no other first:
        what it reads, ``self.net``, they alone set."""
        made = self.family(klass)
        if not made or any(self.init(one) is not None or one.role is not None or fixed_in(one, _KEPT) for one in made):
            return []
        if not self._laid_open.isdisjoint(other for one in made for other in one.lineage()):
            return []
        found: dict[cst.FunctionDef, None] = {}
        pending = [method]
        for one in pending:
            needed = [
                setter for setter in self._needs(one, tuple(made)) if setter not in found and setter is not method
            ]
            found.update(dict.fromkeys(needed))
            pending += needed
        return sorted(found, key=lambda one: bool(self._needs(one, tuple(made))))

    def _needs(self, method: cst.FunctionDef, made: tuple[Klass, ...]) -> list[cst.FunctionDef]:
        """The other methods that alone set an attribute which a method reads of its object, whatever it is asked."""
        setters, unit = self._setters(made), self.unit(method)
        own = (node for node in self._own(method) if unit.names.function(node) is method)
        named = (node for node in own if not _is_target(unit, node))
        read = {node.attr.value for node in named if next(unit.names.enclosing(node, *_CHOICES), None) is None}
        alone = (setters[name][0] for name in sorted(read) if len(setters.get(name, ())) == 1)
        return [one for one in dict.fromkeys(alone) if isinstance(one, cst.FunctionDef) and one is not method]

    def _setters(self, made: tuple[Klass, ...]) -> dict[str, list[Code]]:
        """By attribute, the code that sets it: of objects of some classes, and of any others."""

        def find() -> dict[str, list[Code]]:
            classes = {other.node for one in made for other in one.lineage()}
            found: dict[str, dict[Code, None]] = {}
            for unit in self.reach.units:
                for node in unit.names.every(cst.Attribute):
                    if _is_target(unit, node):
                        around = self.method(unit.names.function(node))
                        if around is not None and around[1].node not in classes and _is_receiver(node, around[0]):
                            continue  # an attribute of another class
                        own = around is not None and _is_receiver(node, around[0])
                        setter: Code = around[0] if around is not None and own else unit.names.module
                        found.setdefault(node.attr.value, {})[setter] = None
            return {name: list(setters) for name, setters in found.items()}

        return self.state.once((Holders._setters, made), find)

    def _own(self, method: cst.FunctionDef) -> Iterator[cst.Attribute]:
        """The attributes of its own object that a method names."""
        nodes = nodes_in(method, cst.Attribute)
        return (node for node in nodes if _is_receiver(node, method))

    @cached_property
    def _laid_open(self) -> frozenset[Klass]:
        """The classes of objects of which all attributes are read or saved: ``vars(args)``, ``pickle.dump(args)``."""
        opened: list[cst.BaseExpression] = []
        for unit in self.reach.units:
            attributes = unit.names.every(cst.Attribute)
            opened += [node.value for node in attributes if node.attr.value == "__dict__" and not _is_set(unit, node)]
        for call, record in self.state.calls.items():
            name = outside_name(record)
            position = 0 if name == "builtins.vars" else surroundings.written_data(name)
            if position is not None:
                opened += [arg.value for arg in call.args[position : position + 1]]
        held = [members(self.state, slot) for node in opened if (slot := self.state.values.get(node)) is not None]
        self.state.solver.run()
        return frozenset(t.klass for slot in held for t in slot.things if isinstance(t, Instance))

    def family(self, klass: Klass) -> list[Klass]:
        """The classes that are, or derive from, a class, and of which there are objects."""
        return [made for made in self.made if klass in made.lineage()]

    def kin(self, one: Klass, other: Klass) -> bool:
        """Whether every object that has the methods of one class has those of the other, too."""
        family = self.family(one)
        return bool(family) and all(other in made.lineage() for made in family)

    def unit(self, code: Code) -> Unit:
        """The module of some code."""
        return self.reach.unit(code)


_KEPT = "accelerator"
"""The attribute by which objects keep it."""
_CHOICES = (cst.If, cst.IfExp, cst.Try, cst.BooleanOperation)


def _takes_self(method: cst.FunctionDef) -> bool:
    """Whether a method is an ordinary one: called on an object, with nothing around it that changes its signature."""
    if {"staticmethod", "classmethod"} & set(decorators(method)):
        return False
    return bool(positional(method))


def _is_set(unit: Unit, attributes: cst.Attribute) -> bool:
    """``self.__dict__.update(options)``, ``self.__dict__["name"]``: what else is in it does not matter."""
    around = unit.names.parents.get(attributes)
    return isinstance(around, cst.Subscript) or (isinstance(around, cst.Attribute) and around.attr.value == "update")


def _is_receiver(node: cst.Attribute, method: cst.FunctionDef) -> bool:
    return isinstance(node.value, cst.Name) and node.value.value == receiver(method)


def _is_target(unit: Unit, node: cst.Attribute) -> bool:
    """Whether an attribute is set, and not read: also one of several."""
    around = unit.names.parents.get(node)
    while isinstance(around, (cst.Element, cst.Tuple, cst.List)):
        around = unit.names.parents.get(around)
    if isinstance(around, cst.For):
        return around.target is node or node in set(descendants(around.target))
    if isinstance(around, cst.AnnAssign):
        return around.target is node
    return isinstance(around, (cst.AssignTarget, cst.AugAssign))


def receiver(method: cst.FunctionDef) -> str:
    """What a method calls its object: ``self``."""
    return positional(method)[0].name.value


def base_call(init: cst.FunctionDef) -> cst.CSTNode | None:
    """The statement of a constructor that runs that of its base class."""
    for statement in getattr(init.body, "body", ()):
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            call = small.value if isinstance(small, cst.Expr) else None
            func = call.func if isinstance(call, cst.Call) else None
            if isinstance(func, cst.Attribute) and func.attr.value == "__init__":
                return statement  # type: ignore[no-any-return]
    return None
