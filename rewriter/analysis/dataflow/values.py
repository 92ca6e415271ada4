"""
The things that flow: roles (from the facts), and the shapes through which roles travel on their way.

A shape is an allocation site: one for each place of the source that makes something, so there are finitely many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TypeVar, cast

import libcst as cst

from ...facts.module_paths import ModulePaths, Place
from ...facts.roles import Origin, Role
from ..syntax.names import Names
from ..syntax.nodes import FunctionNode
from ..syntax.scopes import Binding
from .running_code import RunningCode
from .solver import Slot, Solver, Thing
from .trails import Trace, Trail

Answer = TypeVar("Answer")

_DEEPEST = {"builtins": 3}
"""Parts of the longest name of something outside, by its first part."""
_DEEPEST_ELSEWHERE = 8
"""Public names have six or seven."""


@dataclass(eq=False)
class External:
    """Something outside the program, by its full name: ``torch.optim.SGD``."""

    qualified: str

    @property
    def is_none(self) -> bool:
        """Whether it is what may be given instead of something: it has no attributes."""
        return self.qualified == "builtins.None"


@dataclass(eq=False)
class Function:
    """A function of the program."""

    node: FunctionNode
    unit: Unit

    def decorated(self, *names: str) -> bool:
        """Whether one of its decorators has one of these names: ``property``, ``classmethod``."""
        return any(name in names for name in decorators(self.node))


def decorators(node: FunctionNode | cst.ClassDef) -> list[str]:
    """The last names of what a function or a class is decorated with."""
    found = []
    for decorator in node.decorators if isinstance(node, (cst.FunctionDef, cst.ClassDef)) else ():
        made = decorator.decorator.func if isinstance(decorator.decorator, cst.Call) else decorator.decorator
        found.append(made.attr.value if isinstance(made, cst.Attribute) else getattr(made, "value", ""))
    return found


@dataclass(eq=False)
class Klass:
    """A class of the program. ``role`` is that of its instances, where an outside base class decides it."""

    node: cst.ClassDef
    unit: Unit
    bases: tuple[Klass, ...] = ()
    externals: tuple[str, ...] = ()
    role: Role | None = None

    def lineage(self) -> dict[Klass, None]:
        """The class, and all its bases in the program: a base with its own before the next one."""
        found: dict[Klass, None] = {}
        pending = [self]
        while pending:
            here = pending.pop()
            if here not in found:
                found[here] = None
                pending += reversed(here.bases)
        return found

    def method(self, name: str) -> Function | None:
        """The function that an attribute of this name gives on an instance, searched through the bases."""
        own = self._methods.get(name)
        if own is not None:
            return self.unit.function(own)
        return next((found for base in self.bases if (found := base.method(name)) is not None), None)

    def names(self) -> dict[str, None]:
        """The names of its functions, and of those of its bases."""
        return {name: None for klass in self.lineage() for name in klass._methods}

    @cached_property
    def _methods(self) -> dict[str, cst.FunctionDef]:
        """The functions in the class's own body; of several of one name the first."""
        body = self.node.body.body if isinstance(self.node.body, cst.IndentedBlock) else ()
        return {s.name.value: s for s in reversed(body) if isinstance(s, cst.FunctionDef)}


@dataclass(eq=False)
class Instance:
    """An instance of a class of the program that has no role of its own."""

    klass: Klass
    node: cst.CSTNode


@dataclass(eq=False)
class Above:
    """``super()`` in a method: an object, seen from the bases of one of its classes."""

    receiver: Thing
    below: Klass

    def method(self, name: str) -> Function | None:
        """The method of the bases, by name."""
        return next((found for base in self.below.bases if (found := base.method(name)) is not None), None)


@dataclass(eq=False)
class Bound:
    """An attribute of a thing, about to be called: ``model.parameters``."""

    receiver: Thing
    name: str


@dataclass(eq=False)
class Sequence:
    """A tuple, list, set, generator or iterator. ``items`` are the known positions, ``rest`` holds all others."""

    items: list[Slot] = field(default_factory=list)
    rest: Slot = field(default_factory=Slot)
    wraps: list[Slot] = field(default_factory=list)
    """For ``enumerate``, ``zip`` and the like: what is iterated underneath."""
    taken: dict[int, Slot] = field(default_factory=dict)
    """For the ``args`` of ``def call(*args)``: what calls have handed over, by its place. It is in ``rest``, too."""


@dataclass(eq=False)
class Mapping:
    """A dict. ``entries`` are the values under constant keys, ``rest`` holds all others."""

    entries: dict[str, Slot] = field(default_factory=dict)
    rest: Slot = field(default_factory=Slot)
    values: Slot = field(default_factory=Slot)
    """All of them, whatever their keys."""


@dataclass(eq=False)
class Unknown:
    """What a call of unknown origin gave. Its use may yet tell what it is."""

    node: cst.CSTNode
    qualified: str
    home: Slot


@dataclass(eq=False)
class Inner:
    """A module inside a model, one of those that ``model.modules()`` gives: whose parameters it has is known."""

    model: Origin


@dataclass(eq=False)
class Wrapped:
    """A wrapper around a model, by the call that makes it. It goes wherever the model goes until ``.module`` takes the
    model out of it."""

    node: cst.Call


@dataclass(eq=False)
class Unit:
    """One module of the program under analysis."""

    name: str
    names: Names
    functions: dict[cst.CSTNode, Function] = field(default_factory=dict)
    classes: dict[cst.ClassDef, Klass] = field(default_factory=dict)
    place: Place = field(default_factory=lambda: Place(""))

    @cached_property
    def goes_backward(self) -> bool:
        """Whether something in the module is called ``backward``."""
        return any(isinstance(n, cst.Attribute) and n.attr.value == "backward" for n in self.names.parents)

    def module_class(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """The innermost class of modules around a node: one of its layers may run for every model that has it."""
        around = (a for a in self.names.ancestors(node) if isinstance(a, cst.ClassDef) and a in self.classes)
        return next((a for a in around if self.classes[a].role is Role.MODEL), None)

    def function(self, node: FunctionNode) -> Function:
        """The thing that stands for a function of this module."""
        if node not in self.functions:
            self.functions[node] = Function(node, self)
        return self.functions[node]


@dataclass(eq=False)
class CallRecord:
    """What the solver learned of one call."""

    unit: Unit
    node: cst.Call
    callees: dict[Thing, None] = field(default_factory=dict)
    result: Slot = field(default_factory=Slot)
    receiver: Slot | None = None
    """What holds the object of a method call."""
    first: Slot | None = None
    """What holds the first argument."""


class State:
    """Everything that the statement, expression and call parts share while they build the flow graph."""

    def __init__(self, units: list[Unit], layout: ModulePaths = ModulePaths()) -> None:  # noqa: B008 (frozen)
        self.solver = Solver()
        self.layout = layout
        self.units = {unit.name: unit for unit in units}
        self.values: dict[cst.CSTNode, Slot] = {}
        self.calls: dict[cst.Call, CallRecord] = {}
        self.forwards: dict[cst.Call, dict[Origin, None]] = {}
        """The calls that run models, each with its models."""
        self.sites: dict[cst.CSTNode, dict[cst.Call, None]] = {}
        """For a function, the calls that reach it."""
        self.escaped: dict[cst.CSTNode, dict[cst.Call | None, None]] = {}
        """Functions handed to code outside the program, which may call them with anything: each with the calls that
        hand it over, None where no call does."""
        self.wrappers: dict[cst.CSTNode, dict[cst.CSTNode, None]] = {}
        """For a function, what decorators of the script have put in its place, which runs where it is called."""
        self.implied: set[cst.CSTNode] = set()
        """Functions that a call runs and hands none of its arguments to: ``__post_init__``."""
        self.hooks: dict[cst.CSTNode, dict[Origin, None]] = {}
        """Functions that models call in each forward pass, each with these models."""
        self.started: set[cst.CSTNode] = set()
        """Functions of the script that count as run, though nothing calls them."""
        self.commands: set[cst.CSTNode] = set()
        """Those of them that the command line starts, in the script's own process."""
        self.loaders: dict[cst.CSTNode, dict[Origin, None]] = {}
        """For a loop or a comprehension clause, the loaders that it iterates."""
        self.drawn: dict[cst.Call, Slot] = {}
        """The calls of ``next`` outside any loop of their function, each with what it gives."""
        self.klass: dict[Thing, Klass] = {}
        """The class of the program that a role-bearing instance belongs to."""
        self.related: dict[Origin, Slot] = {}
        """For an optimizer its parameters, for a scheduler its optimizer."""
        self.parts: dict[Thing, dict[Thing, None]] = {}
        """For a model, the models that are attributes of it."""
        self.wholes: dict[Thing, dict[Origin, None]] = {}
        """For a model, those of which it is an attribute."""
        self.trained: set[Origin] = set()
        """The models that training runs forward, as soon as that is known."""
        self.aside: dict[cst.Call, Callable[[], None] | None] = {}
        """Calls of what is looked up somewhere, each with what lets it hold what it gives."""
        self.running = RunningCode(unit.names.module for unit in units)
        """The code that the program runs, as far as that is known."""
        self._answers: dict[Hashable, object] = {}
        self._evaluated: dict[str, list[cst.CSTNode]] = {}
        self._placed = 0
        """So many of the values are among those of their modules."""
        self._uses: dict[Unknown, set[str]] = {}
        self._kinds: dict[Thing, Slot] = {}
        self._registered: dict[Thing, Slot] = {}
        self._bindings: dict[Binding, Slot] = {}
        self._fields: dict[tuple[Thing, str], Slot] = {}
        self._returns: dict[cst.CSTNode, Slot] = {}
        self._named: dict[str, Slot] = {}
        self._memo: dict[Hashable, Thing] = {}

    def reached(self, unit: Unit, site: cst.Call, function: cst.CSTNode, start: Callable[[], None]) -> None:
        """Note that a call reaches a function; ``start`` lets it hand over its arguments."""
        self.sites.setdefault(function, {})[site] = None
        self.running.call(unit.names.function(site), function, start)

    def escape(self, function: cst.CSTNode, call: cst.Call | None = None) -> None:
        """Note a function that code outside the program may call, and the call that hands it over."""
        self.escaped.setdefault(function, {})[call] = None
        self.running.add(function)

    def binding(self, binding: Binding) -> Slot:
        """The slot of a variable."""
        return self._bindings.setdefault(binding, Slot())

    def field(self, thing: Thing, name: str) -> Slot:
        """The slot of an attribute of a thing."""
        return self._fields.setdefault((thing, name), Slot())

    def fields(self) -> Iterator[tuple[Thing, Slot]]:
        """What has attributes, and the slot of each."""
        for (thing, _), slot in list(self._fields.items()):
            yield thing, slot

    def kinds(self, made: Thing) -> Slot:
        """The classes of the program that something with a role may belong to."""
        return self._kinds.setdefault(made, Slot())

    def registered(self, registry: Thing) -> Slot:
        """What decorators have put into a registry."""
        return self._registered.setdefault(registry, Slot())

    def returns(self, function: cst.CSTNode) -> Slot:
        """The slot of what a function returns."""
        return self._returns.setdefault(function, Slot())

    def external(self, qualified: str) -> External:
        """
        The thing outside the program with this full name.

        What is asked for attributes in a loop (``kind = kind.first.second``) has names without end: a word that comes
        again leads back to where it came first, and what is too long is cut, so that there are few.
        """
        parts = qualified.split(".")
        most = _DEEPEST.get(parts[0], _DEEPEST_ELSEWHERE)
        if parts[-1] in parts[1:-2]:
            qualified = ".".join(parts[: parts.index(parts[-1], 1) + 1])
        elif len(parts) > most:
            qualified = ".".join(parts[:most])
        thing = self._memo.setdefault(("external", qualified), External(qualified))
        assert isinstance(thing, External)
        return thing

    def class_of(self, thing: Thing | None) -> Klass | None:
        """The class of the program that an object has, of whatever role."""
        found = self.klass.get(thing) if isinstance(thing, Origin) else getattr(thing, "klass", None)
        return found if isinstance(found, Klass) else None

    def method_of(self, bound: Bound) -> Function | None:
        """The function of the program that a method call runs."""
        klass = self.class_of(bound.receiver)
        return klass.method(bound.name) if klass is not None else None

    def above(self, receiver: Thing, klass: Klass) -> Above:
        """A thing, seen from the bases of one of its classes."""
        thing = self._memo.setdefault(("above", receiver, klass), Above(receiver, klass))
        assert isinstance(thing, Above)
        return thing

    def bound(self, receiver: Thing, name: str) -> Bound:
        """The attribute of a thing, as something to call."""
        thing = self._memo.setdefault(("bound", receiver, name), Bound(receiver, name))
        assert isinstance(thing, Bound)
        return thing

    def sequence(self, node: cst.CSTNode, what: str = "") -> Sequence:
        """The sequence made at a place."""
        thing = self._memo.setdefault(("sequence", node, what), Sequence())
        assert isinstance(thing, Sequence)
        return thing

    def mapping(self, node: cst.CSTNode) -> Mapping:
        """The dict made at a place."""
        thing = self._memo.get(("mapping", node))
        if thing is None:
            thing = self._memo[("mapping", node)] = Mapping()
            self.solver.flow(thing.rest, thing.values)
        assert isinstance(thing, Mapping)
        return thing

    def entry(self, mapping: Mapping, key: str | None) -> Slot:
        """What a dict holds under a key; None stands for keys that are not known."""
        if key is None:
            return mapping.rest
        if key not in mapping.entries:
            mapping.entries[key] = Slot()
            self.solver.flow(mapping.entries[key], mapping.values)
        return mapping.entries[key]

    def instance(self, klass: Klass, node: cst.CSTNode) -> Instance:
        """The instance of a class of the program made at a place."""
        thing = self._memo.setdefault(("instance", klass, node), Instance(klass, node))
        assert isinstance(thing, Instance)
        return thing

    def unknown(self, node: cst.CSTNode, qualified: str, home: Slot) -> Unknown:
        """What a call of unknown origin gave."""
        thing = self._memo.setdefault(("unknown", node), Unknown(node, qualified, home))
        assert isinstance(thing, Unknown)
        return thing

    def used(self, unknown: Unknown, use: str) -> None:
        """Note a use: what an accelerator prepares and a loop iterates is a loader, whoever has made it."""
        uses = self._uses.setdefault(unknown, set())
        uses.add(use)
        if uses == {"prepared", "iterated"}:
            because = f"made by {unknown.qualified or 'a call'}, prepared by the accelerator, and iterated"
            self.solver.add(unknown.home, self.origin(Role.LOADER, unknown.node, because, unknown.qualified))

    def trace(self, node: cst.CSTNode, trail: Trail) -> Trace:
        """What is followed from a place on."""
        thing = self._memo.setdefault(("trace", node, trail), Trace(node, trail))
        assert isinstance(thing, Trace)
        return thing

    def wrapped(self, node: cst.Call) -> Wrapped:
        """The wrapper that a call puts around a model."""
        thing = self._memo.setdefault(("wrapped", node), Wrapped(node))
        assert isinstance(thing, Wrapped)
        return thing

    def inner(self, model: Origin) -> Inner:
        """The modules inside a model."""
        thing = self._memo.setdefault(("inner", model), Inner(model))
        assert isinstance(thing, Inner)
        return thing

    def origin(
        self,
        role: Role,
        node: cst.CSTNode,
        because: str,
        qualified: str = "",
        source: Origin | None = None,
        klass: Klass | None = None,
    ) -> Origin:
        """The origin of a role at a place, and of one class of the program: the same one each time it is asked for.
        Where one call makes layers of several classes of torch's, each is another one."""
        key = ("origin", role, node, source, klass, qualified if role is Role.MODEL else "")
        thing = self._memo.setdefault(key, Origin(role, node, because, qualified, source))
        assert isinstance(thing, Origin)
        return thing

    def part(self, owner: Thing, name: str, node: cst.CSTNode, because: str, qualified: str) -> Origin:
        """A layer that an outside class has as an attribute: the same one each time it is asked for."""
        thing = self._memo.setdefault(("part", owner, name), Origin(Role.MODEL, node, because, qualified))
        assert isinstance(thing, Origin)
        return thing

    def local(self, tensor: Origin) -> Origin:
        """
        The role of a Python value computed from a tensor of one process's shard.

        One for each kind of tensor, not one for each tensor: values of unknown code hold those of all that it is given.
        """
        if tensor.role is Role.LOCAL:
            return tensor
        because = f"computed from what was {tensor.because}"
        key = ("local", tensor.role, because)
        thing = self._memo.setdefault(key, Origin(Role.LOCAL, tensor.node, because, "", tensor))
        assert isinstance(thing, Origin)
        return thing

    def slot(self, expression: cst.CSTNode) -> Slot:
        """The slot of an expression's value."""
        return self.values.setdefault(expression, Slot())

    def evaluated(self, unit: Unit) -> list[cst.CSTNode]:
        """The nodes of a module that have a slot, in the order in which they got it."""
        if len(self.values) > self._placed:
            units = list(self.units.values())
            here = units[0]
            for node in islice(self.values, self._placed, None):
                if node not in here.names.parents:  # most come module by module
                    here = next((u for u in units if node in u.names.parents), here)
                if node in here.names.parents:
                    self._evaluated.setdefault(here.name, []).append(node)
            self._placed = len(self.values)
        return list(self._evaluated.get(unit.name, ()))

    def once(self, question: Hashable, find: Callable[[], Answer]) -> Answer:
        """The answer to a question about the solved program that many ask: it is looked for once."""
        if question not in self._answers:
            self._answers[question] = find()
        return cast("Answer", self._answers[question])

    def slot_named(self, name: str) -> Slot:
        """A slot that is found again by its name."""
        return self._named.setdefault(name, Slot())


def origins(slot: Slot | None, *roles: Role) -> list[Origin]:
    """The role-bearing things in a slot, of the given roles (of any when none is given)."""
    things = slot.things if slot is not None else ()
    return [t for t in things if isinstance(t, Origin) and (not roles or t.role in roles)]
