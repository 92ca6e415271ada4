"""
One quick look at a file with the standard library's ``ast``: its calls in source order, and what its names hold.

This is no analysis; it sees only as far as assignments in the same file carry a name, and serves the gate alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_OURS = frozenset({"torchlift", "accelerate"})
_GUARDS = frozenset({"is_main_process", "is_local_main_process"})
_GATHERS = frozenset({"gather", "gather_for_metrics", "reduce"})


class Scope:
    """What one function, or the module, does with its names, in source order."""

    def __init__(
        self, function: str = "", outer: Scope | None = None, parameters: frozenset[str] = frozenset()
    ) -> None:
        self.function, self.outer, self.parameters = function, outer, parameters
        self.made: dict[str, str] = {}
        """Name -> what was called to make it: ``prepare``, ``StepLR``; the latest assignment counts."""
        self.gathered: set[str] = set()
        """Names that hold samples of all processes."""
        self.losses: set[str] = set()
        """Names that ``accelerator.backward`` is given."""
        self.returned: set[str] = set()


class Place(NamedTuple):
    """Where a statement stands: its function, whether only the main process passes, its innermost loop."""

    scope: Scope
    guarded: bool = False
    loop: ast.stmt | None = None
    turn: bool = False
    """Whether the main process goes first."""


class Call(NamedTuple):
    """A call with what is known at its place."""

    node: ast.Call
    name: str
    place: Place
    target: str
    """The one name that its statement assigns to; ``return`` in a return statement."""
    gathered: bool
    """Whether it speaks of samples that were gathered before."""

    @property
    def receiver(self) -> ast.expr | None:
        """The expression in front of the method's name."""
        return self.node.func.value if isinstance(self.node.func, ast.Attribute) else None


class Survey:
    """One pass over a file in source order: its calls, and what its names hold."""

    def __init__(self, accelerators: frozenset[str], foreign: frozenset[str]) -> None:
        self.accelerators = accelerators
        self.foreign = foreign
        self.calls: list[Call] = []
        self.module: Scope | None = None
        self.makers: dict[str, set[str]] = {}
        """Name -> everything that was ever called to make it."""
        self.prepared: dict[str, int] = {}
        """Name -> line of the first ``prepare`` that gave it, whatever the function."""
        self.arguments: set[ast.AST] = set()
        """What is handed to ``prepare`` directly."""
        self.printed: set[ast.AST] = set()
        """Everything inside the arguments of ``accelerator.print``."""
        self.handed: set[ast.AST] = set()
        """Everything that the main process hands to the others."""
        self.copied: set[ast.AST] = set()
        """Everything that is kept in memory as a copy."""
        self.takers: set[str] = set()
        """Functions with a parameter for the accelerator."""
        self.models: set[str] = set()
        """Names whose ``parameters()``, ``train()`` or ``eval()`` are called."""
        self.given: dict[str, list[tuple[Scope, list[str]]]] = {}
        """Name of what is called -> the names that are assigned from it, with their function."""
        self.signatures: dict[str, list[str]] = {}
        """Name of a function -> its positional parameters; nothing where there are two of the name."""
        self.backward_loops: set[ast.stmt | None] = set()
        self.settled = False
        """The script shares its rows by itself, with a sampler that is told its place by the accelerator."""

    def is_ours(self, node: ast.expr | None) -> bool:
        """Whether an expression is the accelerator or reached through it: ``accelerator.gather(x).cpu``."""
        while isinstance(node, (ast.Attribute, ast.Call)):
            if isinstance(node, ast.Attribute) and dotted(node) in self.accelerators:
                return True
            node = node.value if isinstance(node, ast.Attribute) else node.func
        return isinstance(node, ast.Name) and node.id in self.accelerators

    def reaches(self, node: ast.expr, scope: Scope | None) -> bool:
        """Whether the name at the root of an expression is one that a function, or what is around it, has bound."""
        while isinstance(node, (ast.Attribute, ast.Call)):
            node = node.value if isinstance(node, ast.Attribute) else node.func
        while scope is not None and isinstance(node, ast.Name):
            if node.id in scope.parameters or node.id in scope.made:
                return True
            scope = scope.outer
        return False

    def is_handed_on(self, call: ast.Call) -> bool:
        """Whether a call hands an accelerator on, or hides what it hands on behind a star."""
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        starred = any(isinstance(value, ast.Starred) for value in values) or any(k.arg is None for k in call.keywords)
        return starred or any(dotted(value) in self.accelerators for value in values)

    def filled(self, scope: Scope, name: str) -> list[str]:
        """The names that the calls in this file hand to a parameter of a function; nothing where one is not a name."""
        places = self.signatures.get(scope.function, [])
        found = []
        for call in (c.node for c in self.calls if name in places and dotted(c.node.func) == scope.function):
            index = places.index(name)
            plain = call.args[index] if index < len(call.args) else None
            value = next((k.value for k in call.keywords if k.arg == name), plain)
            found.append("" if any(isinstance(a, ast.Starred) for a in call.args) else dotted(value))
        return found if all(found) else []

    def is_device(self, node: ast.expr) -> bool:
        """Whether an expression is the accelerator's device."""
        return isinstance(node, ast.Attribute) and node.attr == "device" and dotted(node.value) in self.accelerators

    def shares_rows(self, call: Call) -> bool:
        """Whether a sampler of torch's is given its place by the accelerator."""
        told = {k.arg: k.value for k in call.node.keywords}
        places = [told.get("num_replicas"), told.get("rank")]
        attributes = [p.attr if isinstance(p, ast.Attribute) and self.is_ours(p.value) else "" for p in places]
        return attributes == ["num_processes", "process_index"] and dotted(call.node.func) not in self.foreign

    def is_prepared(self, name: str, scope: Scope) -> bool:
        """Whether a name holds what ``prepare`` gave, as far as the function that uses it can tell."""
        if name in scope.made:
            return scope.made[name] == "prepare"
        if name in scope.parameters and scope.parameters & self.accelerators:
            return True  # handed over along with the accelerator, by whoever prepared it
        if name in scope.parameters or name.startswith("self."):
            return name in self.prepared
        return self.module is not None and self.module.made.get(name) == "prepare"

    def visit_all(self, body: Sequence[ast.stmt], place: Place) -> None:
        """Note the calls of a block and what its statements bind."""
        self.module = self.module or place.scope
        for statement in body:
            self._visit(statement, place)

    def _visit(self, node: ast.stmt, place: Place) -> None:
        target = self._note_calls(node, place)
        if target is not None:
            self._bind(node, target, place.scope)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            positional = (*node.args.posonlyargs, *node.args.args)
            arguments = (*positional, *node.args.kwonlyargs)
            self.signatures[node.name] = [] if node.name in self.signatures else [a.arg for a in positional]
            scope = Scope(node.name, place.scope, frozenset(argument.arg for argument in arguments))
            if scope.parameters & self.accelerators:
                self.takers.add(node.name)
            self.visit_all(node.body, Place(scope))
        elif isinstance(node, ast.If):
            guarded = place.guarded or self._is_guard(node.test)
            self.visit_all(node.body, place._replace(guarded=guarded))
            self.visit_all(node.orelse, place)
        else:
            loop = node if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) else place.loop
            turn = place.turn or (isinstance(node, ast.With) and any(self._is_turn(item) for item in node.items))
            self.visit_all(list(_inner(node)), Place(place.scope, place.guarded, loop, turn))

    def _is_turn(self, item: ast.withitem) -> bool:
        call = item.context_expr
        return (
            isinstance(call, ast.Call) and dotted(call.func).endswith("main_process_first") and self.is_ours(call.func)
        )

    def is_switched(self, node: ast.expr) -> bool:
        """Whether a value is another one on the main process: `x if accelerator.is_main_process else y`."""
        if isinstance(node, ast.UnaryOp):
            return self._is_guard(node.operand)
        return isinstance(node, ast.IfExp) and self._is_guard(node.test)

    def _is_guard(self, test: ast.expr) -> bool:
        """Whether a condition lets the main process pass and no other."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any(self._is_guard(value) for value in test.values)
        return isinstance(test, ast.Attribute) and test.attr in _GUARDS and dotted(test.value) in self.accelerators

    def _note_calls(self, node: ast.stmt, place: Place) -> list[str] | None:
        """Note the calls of one statement; return the names that it assigns to, None if it assigns nothing."""
        names: list[str] | None = None
        target = ""
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in _names(target)]
            target = names[0] if len(names) == 1 else ""
        elif isinstance(node, ast.Return) and node.value is not None:
            target = "return"
            place.scope.returned.update(_names(node.value))
        for call, alone in self._calls(node):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else dotted(call.func)
            mentions = name in ("item", "cpu") and _mentions(call.func, place.scope.gathered)
            here = place._replace(guarded=True) if alone else place
            self.calls.append(Call(call, name, here, target, mentions))
            if name in ("parameters", "train", "eval"):
                self.models.add(dotted(call.func).rpartition(".")[0])
            elif name == "DistributedSampler":
                self.settled = self.settled or self.shares_rows(self.calls[-1])
            elif name in ("backward", "prepare", "print"):
                self._note_special(call, name, place)
            elif name == "broadcast_object_list":
                self.handed.update(ast.walk(call))
            elif name == "deepcopy":
                self.copied.update(ast.walk(call))
        return names

    def _calls(self, node: ast.stmt) -> list[tuple[ast.Call, bool]]:
        """The calls of one statement, without those of the statements inside it; whether only the main process makes
        them."""
        found: list[tuple[ast.Call, bool]] = []
        stack: list[tuple[ast.AST, bool]] = [(node, False)]
        while stack:
            current, alone = stack.pop()
            if isinstance(current, ast.Call):
                found.append((current, alone))
            elif isinstance(current, ast.IfExp) and self._is_guard(current.test):
                stack += [(current.body, True), (current.orelse, alone)]
                continue
            elif current.__class__ is ast.Name or current.__class__ is ast.Constant:  # no calls below
                continue
            for name in current._fields:
                value = getattr(current, name)
                if value.__class__ is list:
                    parts = [v for v in value if isinstance(v, ast.AST) and not isinstance(v, ast.stmt)]
                    stack.extend([(part, alone) for part in parts])
                elif isinstance(value, ast.AST) and value._fields:
                    stack.append((value, alone))
        return found

    def _note_special(self, call: ast.Call, name: str, place: Place) -> None:
        """Note what a call of the accelerator says of its arguments, and where ``backward`` is called."""
        if name == "backward":
            self.backward_loops.add(place.loop)
        if not self.is_ours(call.func):
            return
        if name == "backward":
            place.scope.losses.update(dotted(argument) for argument in call.args)
        elif name == "prepare":
            self.arguments.update(call.args)
        else:
            self.printed.update(ast.walk(call))

    def _bind(self, node: ast.stmt, names: list[str], scope: Scope) -> None:
        """Note what names hold after an assignment."""
        value = getattr(node, "value", None)
        made, gathered = "", False
        if isinstance(value, ast.Call):
            made = value.func.attr if isinstance(value.func, ast.Attribute) else dotted(value.func)
            ours = self.is_ours(value.func)
            if made == "prepare" and ours:
                self.prepared.update((name, node.lineno) for name in names if name not in self.prepared)
            elif made == "prepare":
                made = ""
            else:
                self.given.setdefault(made, []).append((scope, names))
            gathered = ours and made in _GATHERS
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            value = None
        if value is not None and (gathered or _mentions(value, scope.gathered)):
            scope.gathered.update(names)
        elif not isinstance(node, ast.AugAssign):
            scope.gathered.difference_update(names)
        scope.made.update(dict.fromkeys(names, made))
        for name in names:
            self.makers.setdefault(name, set()).add(made)


def dotted(node: ast.AST | None) -> str:
    """Return ``a.b.c`` for a chain of names, the empty string for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _names(target: ast.expr) -> Iterator[str]:
    """The names, and attributes of names, that an assignment binds."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _names(element)
    elif isinstance(target, ast.Starred):
        yield from _names(target.value)
    elif name := dotted(target):
        yield name


def _mentions(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression reads one of some names."""
    return bool(names) and any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))


def _inner(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statements directly inside a compound one that is no function and no ``if``."""
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(node, name, ())
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from part.body


def accelerators_of(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """Names and attributes that hold an accelerator and nothing else, by construction or as a parameter."""
    classes: set[str] = set()
    names: set[str] = set()
    others: set[str] = set()
    assigned: list[ast.Assign] = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] in _OURS:
            classes.update(alias.asname or alias.name for alias in node.names if alias.name == "Accelerator")
        elif isinstance(node, ast.Import):
            ours = [alias for alias in node.names if alias.name.partition(".")[0] in _OURS]
            classes.update(f"{alias.asname or alias.name}.Accelerator" for alias in ours)
        elif isinstance(node, ast.arg) and node.arg == "accelerator":
            names.add(node.arg)
        elif isinstance(node, ast.Assign):
            assigned.append(node)
    for node in assigned:
        made = isinstance(node.value, ast.Call) and dotted(node.value.func) in classes
        handed = dotted(node.value) == "accelerator" and "accelerator" in names
        for target in node.targets:
            (names if made or handed else others).update(_names(target))
    return frozenset(names - others)


def foreign_modules(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """Names that imports bind to something outside torch: ``json``, ``np``, ``plt``."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(a.asname or a.name.partition(".")[0] for a in node.names if not _is_torch(a.name))
        elif isinstance(node, ast.ImportFrom) and not _is_torch(node.module or ""):
            names.update(alias.asname or alias.name for alias in node.names)
    return frozenset(names)


def _is_torch(module: str) -> bool:
    """Whether a module belongs to torch's family, or to ours."""
    root = module.partition(".")[0]
    return root.startswith("torch") or root in _OURS
