"""
Where a ``prepare`` call goes: after the last statement that builds or loads what it takes, before the first use.

Statements are compared by their position in one block; where everything is built and used inside one compound
statement (a fold, a ``with``, the ``__main__`` guard), the same question is asked of its own block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.kept_loaders import taken_in
from ..analysis.dataflow.object_fields import fields_of
from ..analysis.dataflow.values import Instance, Klass, Sequence, State, Unit, origins
from ..analysis.syntax.nodes import dotted, is_docstring
from ..analysis.syntax.scopes import Binding
from ..analysis.syntax.walk import descendants, nodes_in
from ..analysis.training.training import Training, whole
from ..facts.accelerator import Prepare, Side
from ..facts.roles import Origin, Role
from ..facts.torch_api import questions
from .program_uses import uses_of

_ORDER = (Role.MODEL, Role.OPTIMIZER, Role.LOADER, Role.SCHEDULER)
_ELEMENTS = (cst.Element, cst.DictElement, cst.ListComp, cst.DictComp)
_TOUCHING = frozenset("load_state_dict apply requires_grad_ init_weights initialize half float double".split())


@dataclass(eq=False)
class Held:
    """Something to prepare, under the name by which the code holds it."""

    origin: Origin
    name: str
    definitions: list[cst.CSTNode]


def place(
    state: State, reach: Reach, training: Training, code: Code, things: list[Held]
) -> tuple[list[tuple[Prepare, list[Origin]]], list[Held]]:
    """The prepare calls for things that some code holds, each with what it takes, and the things that fit nowhere."""
    body = code.body if isinstance(code, cst.FunctionDef) else code
    placer = _Placer(state, reach, training, reach.unit(code))
    calls: list[tuple[Prepare, list[Origin]]] = []
    unplaced: list[Held] = []
    branches = _branches(reach, placer.unit, code, things)
    rest = [h for h in things if all(h not in held for held in branches.values())]
    for thing in list(rest):
        if (turn := _turn(placer, thing)) is not None:
            branches.setdefault(turn, []).append(thing)
            rest.remove(thing)
    for block, held in (*branches.items(), (body, rest)):
        remaining = held
        while remaining and (ready := placer.ready(block, remaining)) is not None:
            node, side, taken = ready
            taken.sort(key=lambda h: (_ORDER.index(h.origin.role), placer.unit.names.order(h.origin.place)))
            names: dict[str, None] = dict.fromkeys(h.name for h in taken)
            calls.append((Prepare(node, tuple(names), _why(taken), side=side), [h.origin for h in taken]))
            remaining = [h for h in remaining if h not in taken]
        unplaced += remaining
    return calls, unplaced


def _branches(reach: Reach, unit: Unit, code: Code, things: list[Held]) -> dict[cst.CSTNode, list[Held]]:
    """Things whose names are bound in one branch alone, by its block: they are prepared there, and only there."""
    found: dict[cst.CSTNode, list[Held]] = {}
    scope = unit.names.scopes[code]
    for held in things:
        binding = scope.bindings.get(held.name)
        if binding is not None and all(isinstance(d, cst.Name) for d in binding.definitions):
            reads = _own_reads(reach, unit, code, binding)
            nodes = binding.definitions
        else:
            reads, nodes = [], _spelled(unit, code, held.name) if "." in held.name else []
            if not held.definitions or not set(nodes).issuperset(held.definitions):
                continue  # another object has set it
        choices = [*(_choices(unit, node) for node in nodes), *reads]
        # of the entry guard, of a mode that all of it belongs to
        shared = frozenset.intersection(*choices) if binding is not None else frozenset()
        if all(choice > shared for choice in choices):
            blocks = {unit.names.block(d) for d in held.definitions}
            if len(blocks) == 1 and (binding is None or not _both(unit, binding)):
                found.setdefault(blocks.pop(), []).append(held)
    return found


def _turn(placer: _Placer, held: Held) -> cst.CSTNode | None:
    """The block of a loop that makes a thing in each turn and puts it into a container, ``models.append(model)``, for a
    later training: each is prepared there, after the loop only the last has a name."""
    unit = placer.unit
    blocks = {unit.names.block(definition) for definition in held.definitions}
    loops = {next(unit.names.enclosing(definition, cst.For, cst.While), None) for definition in held.definitions}
    loop = loops.pop() if len(blocks) == len(loops) == 1 else None
    inside = set(descendants(loop)) if loop is not None else set()
    if held.origin.role not in (Role.MODEL, Role.OPTIMIZER) or not inside.isdisjoint(placer.uses):
        return None
    for taken in taken_in(placer.state, unit, held.origin.role) if inside else ():
        node: cst.CSTNode | None = taken.node
        while not isinstance(node, (cst.Call, cst.Assign, type(None))):  # of ``pairs.append((model, optimizer))``
            node = unit.names.parents.get(node)
        place = taken.target if isinstance(node, cst.Assign) else node.func if isinstance(node, cst.Call) else None
        kept = place.value if isinstance(place, (cst.Subscript, cst.Attribute)) else None
        binding = unit.names.binding(kept) if isinstance(kept, cst.Name) else None
        if taken.loader is held.origin and node in inside and binding and inside.isdisjoint(binding.definitions):
            return blocks.pop()
    return None


def _spelled(unit: Unit, code: Code, name: str) -> list[cst.CSTNode]:
    """Where some code says ``self.loader``: what it sets in one branch may be bound nowhere else."""
    attributes = (node for node in unit.names.every(cst.Attribute) if unit.names.function(node) is code)
    return [node for node in attributes if dotted(node) == name]


def _own_reads(reach: Reach, unit: Unit, code: Code, binding: Binding) -> list[frozenset[cst.CSTNode]]:
    """The branches around each place where the code itself reads a variable, or else calls functions that do, those
    that these ask in themselves among them: a place that nothing guards shows that the variable is always bound."""
    own = [_choices(unit, read) for read in binding.reads if unit.names.function(read) is code]
    if own:
        return own
    asked: dict[cst.CSTNode, frozenset[cst.CSTNode]] = {}
    for read in binding.reads:  # what all reads of a function have around them
        function, choices = unit.names.function(read), _choices(unit, read)
        asked[function] = asked.get(function, choices) & choices
    calls = (node for node in reach.own(code) if isinstance(node, cst.Call))
    return [
        _choices(unit, call) | frozenset.intersection(*(asked[reader] for reader in readers))
        for call in calls
        if (readers := {f for called in reach.called(call) for f in reach.below(called) if f in asked})
    ]


def _choices(unit: Unit, node: cst.CSTNode) -> frozenset[cst.CSTNode]:
    """The branches around a node in its own code, each of which another run may pass over."""
    found: set[cst.CSTNode] = set()
    below = node
    for around in unit.names.ancestors(node):
        if isinstance(around, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            break
        if isinstance(around, (cst.If, cst.IfExp)) and below is not around.test:
            found.add(below)
        elif isinstance(around, cst.Try):
            found.add(around)
        below = around
    return frozenset(found)


def _both(unit: Unit, binding: Binding) -> bool:
    """Whether an ``if`` binds a variable on each of its sides."""
    choices = [node for d in binding.definitions for node in unit.names.enclosing(d, cst.If)]
    return any(node.orelse is not None and _binds(node, binding) for node in choices)


def _binds(node: cst.If | cst.Else, binding: Binding) -> bool:
    """Whether every side of a condition gives a variable its value."""
    inside = set(descendants(node.body))
    given = any(d in inside for d in binding.definitions)
    if isinstance(node, cst.Else):
        return given
    return given and node.orelse is not None and _binds(node.orelse, binding)


def _why(taken: list[Held]) -> str:
    kinds = ", ".join(dict.fromkeys(h.origin.role.value for h in taken))
    return f"the {kinds} {'is' if ',' not in kinds else 'are'} ready here, and not used yet"


class _Block:
    """A block's statements, and which of them contains a node."""

    def __init__(self, unit: Unit, body: cst.CSTNode) -> None:
        self.names = unit.names
        self.statements: list[cst.CSTNode] = list(getattr(body, "body", ()))
        self._index = {statement: index for index, statement in enumerate(self.statements)}

    def index(self, node: cst.CSTNode) -> int:
        """The position of the statement around a node; -1 if the node is elsewhere or in a function defined here."""
        here: cst.CSTNode | None = node
        while here is not None and here not in self._index:
            here = self.names.parents.get(here)
            if isinstance(here, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
                return -1
        return self._index[here] if here is not None else -1


def handed_on(reach: Reach, unit: Unit, origin: Origin) -> bool:
    """Whether an optimizer is built where it is given to others: ``Warmup(Adam(...), 4000)``, ``fit(net, Adam(...))``,
    ``trainer.set_optimizer(Adam(...))``, ``[Adam(net.parameters()) for net in nets]``."""
    return origin.role is Role.OPTIMIZER and given_on(reach, unit, origin)


def given_on(reach: Reach, unit: Unit, origin: Origin) -> bool:
    """Whether a thing is made as an element or an entry of a container, in the arguments of an object of the script's
    own, ``Task(Net(), 0.1)``, of a method by which one or a list keeps it, or of a function that keeps it."""
    argument = _given(unit, origin.place)
    if isinstance(argument, (*_ELEMENTS, cst.Assign)):
        return _is_kept_whole(unit, argument)
    around = unit.names.parents.get(argument) if isinstance(argument, cst.Arg) else None
    record = reach.state.calls.get(around) if isinstance(around, cst.Call) else None
    if record is None:
        return False
    receivers = record.receiver.things if record.receiver is not None else ()
    kept = any(isinstance(thing, Instance) and fields_of(reach.state).stores(thing, origin) for thing in receivers)
    kept = kept or any(isinstance(thing, Sequence) for thing in receivers)  # ``models.append(Net())``
    if kept or any(isinstance(thing, Klass) for thing in record.callees):
        return True
    return bool(reach.called(record.node)) and origin not in record.result.things


def _given(unit: Unit, node: cst.CSTNode) -> cst.CSTNode | None:
    """What is given something, also by methods that return it: ``[Net().to(device)]``."""
    return unit.names.parents.get(as_kept(unit, node))


def as_kept(unit: Unit, site: cst.CSTNode) -> cst.CSTNode:
    """What gives the object that a call makes: the call, or the methods that give a model on, ``Net().to(device)``."""
    node = site
    while isinstance(attribute := unit.names.parents.get(node), cst.Attribute) and attribute.value is node:
        call = unit.names.parents.get(attribute)
        if not isinstance(call, cst.Call) or attribute.attr.value not in questions.keeps_module():
            break
        node = call
    return node


def _is_kept_whole(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a variable is given the list, tuple or dict around a node, and no part of it: or an entry the node."""
    above: cst.CSTNode | None = node
    while isinstance(above, (*_ELEMENTS, cst.List, cst.Tuple, cst.Dict)):
        above = unit.names.parents.get(above)
    targets = [target.target for target in above.targets] if isinstance(above, cst.Assign) else []
    if above is node:
        return bool(targets) and all(isinstance(target, cst.Subscript) for target in targets)
    return bool(targets) and not any(isinstance(target, (cst.Tuple, cst.List)) for target in targets)


class _Placer:
    """Asks for places in one module; what uses and what touches is found once."""

    def __init__(self, state: State, reach: Reach, training: Training, unit: Unit) -> None:
        self.state, self.unit = state, unit
        uses = uses_of(reach, training)
        self.handed = {o.place for o in training.optimizers if handed_on(reach, unit, o)}
        # the model is prepared first, and the optimizer where it is built
        self.uses = [
            node for node in (*uses.working, *self.handed, *uses.calls(self.handed)) if node in unit.names.parents
        ]
        self.passes, self.kept = uses.passes, uses.kept
        self.drawing = [site for site in uses.drawing if site in unit.names.parents]
        self.splitting = [site for site in uses.splitting if site in unit.names.parents]
        self.taken = list(taken_in(state, unit))

    def ready(self, body: cst.CSTNode, remaining: list[Held]) -> tuple[cst.CSTNode, Side, list[Held]] | None:
        """The statement beside which the next call goes, on which side, and what it takes."""
        block = _Block(self.unit, body)
        statements = block.statements
        if not statements:
            return None
        used = [index for node in self.uses if (index := block.index(node)) >= 0]
        first_use = min(used, default=len(statements))
        places = {held: _built(block, held, first_use) for held in remaining}
        touched = {held: max(places[held], self._last_touch(block, held, first_use)) for held in remaining}
        early = [h for h in remaining if touched[h] < first_use and not self._keeps(block, h, touched[h])]
        if early:
            last = max(touched[h] for h in early)
            while given := [h for h in early if self._keeps(block, h, last)]:
                # to a model, which is prepared after it is built, to a container, or to a method that keeps it
                taken = [*self._models_of(given, early), *given]
                if len(taken) == len(early):  # a model is loaded after an object has its optimizer, which stays itself
                    taken = [h for h in given if h.origin.role is Role.LOADER]
                if not taken or len(taken) == len(early):
                    break
                early, last = taken, max(touched[h] for h in taken)
            if last < 0:  # all of it came through parameters
                first = next((s for s in statements if not is_docstring(s)), statements[0])
                return first, Side.BEFORE, early
            return statements[self._behind_others(block, last, first_use, early)], Side.AFTER, early
        for index in sorted({place for place in places.values() if first_use <= place < len(statements)}):
            here = [h for h in remaining if places[h] == index]
            found = self._inside(statements[index], here)
            if found is not None:
                return found
            if index > first_use:
                return self._next(block, remaining, used, first_use)
        return None

    def _models_of(self, optimizers: list[Held], others: list[Held]) -> Iterator[Held]:
        """What some optimizers train, of some other things: it is prepared with them."""
        for held in others:
            if held.origin.role is Role.MODEL and any(self._trains(h.origin, held.origin) for h in optimizers):
                yield held

    def _trains(self, optimizer: Origin, model: Origin) -> bool:
        held = origins(self.state.related.get(optimizer), Role.PARAMETERS)
        return optimizer.role is Role.OPTIMIZER and any(
            params.source is not None and whole(self.state, params.source) is model for params in held
        )

    def _next(
        self, block: _Block, remaining: list[Held], used: list[int], behind: int
    ) -> tuple[cst.CSTNode, Side, list[Held]]:
        """The place for what is built after a first training, for the next one: a second model, and its optimizer."""
        built = {held: [at for d in held.definitions if (at := block.index(d)) > behind] for held in remaining}
        begin = min(min(places) for places in built.values() if places)
        limit = min((index for index in used if index > begin), default=len(block.statements))
        here = [held for held, places in built.items() if places and min(places) < limit]
        last = max(max(_built(block, held, limit), self._last_touch(block, held, limit)) for held in here)
        return block.statements[self._behind_others(block, last, limit, here)], Side.AFTER, here

    def _behind_others(self, block: _Block, last: int, limit: int, held: list[Held]) -> int:
        """
        The position after the other models that are built before the first use, if nothing in between reads a thing.

        After ``prepare`` each process draws other random numbers: a net that is built later, and not prepared (a frozen
        target, a feature extractor), would have different weights on each process, and a random split other rows.
        """
        prepared = {h.origin for h in held}
        models = {
            block.index(record.node)
            for record in self.state.calls.values()
            if record.unit is self.unit
            for thing in record.result.things
            if isinstance(thing, Origin) and thing.role is Role.MODEL and thing.node is record.node
            if thing not in prepared
        }
        models.update(map(block.index, self.splitting))
        names = {h.name for h in held}
        for index in range(last + 1, limit):
            read = {n.value for n in nodes_in(block.statements[index], cst.Name)}
            if not names.isdisjoint(read):
                break
            if index in models:
                last = index
        return last

    def _keeps(self, block: _Block, held: Held, touched: int) -> bool:
        """Whether an object or a variable that is made up to a statement has the thing as it was before ``prepare``."""
        if held.origin.role is Role.MODEL:
            return False
        code, origin = self.unit.names.module.code_for_node, held.origin
        taken = (one for one in self.taken if one.loader is origin)
        taking = [one.node for one in taken if one.target is None or code(one.target) != held.name]
        kept = [node for node in self.kept.get(origin, ()) if not self._is_object_of(held, node)]
        return any(0 <= block.index(node) <= touched for node in (*kept, *taking))

    def _is_object_of(self, held: Held, call: cst.CSTNode) -> bool:
        """Whether a call makes the object that is given the prepared thing: ``bag`` of ``bag.optimizer``."""
        assign = self.unit.names.parents.get(as_kept(self.unit, call))
        target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
        return isinstance(target, cst.Name) and held.name.rpartition(".")[0] == target.value

    def _inside(self, statement: cst.CSTNode, held: list[Held]) -> tuple[cst.CSTNode, Side, list[Held]] | None:
        """A place in the blocks of a statement that builds things and uses them itself: an epoch, a fold."""
        around = {node for use in self.uses for node in self.unit.names.ancestors(use)}
        for nested in _blocks(statement) if statement in around else ():
            inside = _Block(self.unit, nested)
            found = self.ready(nested, [h for h in held if any(inside.index(d) >= 0 for d in h.definitions)])
            if found is not None and found[2]:
                return found
        return None

    def _last_touch(self, block: _Block, held: Held, limit: int) -> int:
        """The position of the last statement before ``limit`` that loads, initializes or builds upon a thing."""
        touching = [block.index(node) for node in (*self._touches(held), *self.passes.get(held.origin, ()))]
        return max((index for index in touching if index < limit), default=-1)

    def _touches(self, held: Held) -> Iterator[cst.Call]:
        if held.origin.role is Role.LOADER:
            return
        if held.origin.role is Role.MODEL:
            yield from self.drawing
        for call in self.unit.names.calls:
            record = self.state.calls.get(call)
            if record is None:
                continue
            if record.receiver is not None and held.origin in record.receiver.things:
                assert isinstance(call.func, cst.Attribute)
                if call.func.attr.value in _TOUCHING:
                    yield call
            elif any(o.node is call for o in origins(record.result, Role.OPTIMIZER, Role.SCHEDULER)):
                if call not in self.handed and any(self._is_about(arg, held.origin) for arg in call.args):
                    yield call

    def _is_about(self, arg: cst.Arg, origin: Origin) -> bool:
        """Whether an argument is a thing, or the parameters of it."""
        slot = self.state.values.get(arg.value)
        if slot is None:
            return False
        return origin in slot.things or any(o.source is origin for o in origins(slot, Role.PARAMETERS))


def _built(block: _Block, held: Held, limit: int) -> int:
    """The position of the statement that builds a thing for its use at ``limit``; -1 for a parameter. What is imported
    is there after all imports before that."""
    if any(isinstance(definition, cst.ImportAlias) for definition in held.definitions):
        imports = (cst.Import, cst.ImportFrom)
        lines = [s.body[0] if isinstance(s, cst.SimpleStatementLine) else None for s in block.statements[:limit]]
        return max((index for index, line in enumerate(lines) if isinstance(line, imports)), default=-1)
    found = [block.index(definition) for definition in held.definitions]
    return max((index for index in found if index < limit), default=max(found, default=-1))


def _blocks(statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
    parts = [getattr(statement, name, None) for name in ("body", "orelse", "finalbody")]
    for node in (*parts, *getattr(statement, "handlers", ())):
        if isinstance(node, cst.IndentedBlock):
            yield node
        elif isinstance(node, (cst.If, cst.Else, cst.Finally, cst.ExceptHandler)):
            yield from _blocks(node)
