"""
Names: which binding a name refers to, by Python's scoping rules, and where everything stands in the tree.

One walk over the module that skips white space; LibCST's metadata providers answer the same questions ten times slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import libcst as cst

from .walk import children

FunctionNode = cst.FunctionDef | cst.Lambda
LoopNode = cst.For | cst.While
_FUNCTIONS = frozenset({cst.FunctionDef, cst.Lambda})
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.GeneratorExp, cst.DictComp)


class ScopeKind(Enum):
    """The kinds of Python scope."""

    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    COMPREHENSION = "comprehension"


@dataclass(eq=False)
class Binding:
    """One variable: a name in a scope, with every place that gives it a value and every place that reads it."""

    name: str
    scope: Scope
    definitions: list[cst.CSTNode] = field(default_factory=list)
    """The nodes that bind it: target names, parameters, imports, functions and classes."""
    reads: list[cst.Name] = field(default_factory=list)


@dataclass(eq=False)
class Scope:
    """A Python scope and the variables that live in it."""

    kind: ScopeKind
    node: cst.CSTNode
    parent: Scope | None
    qualname: str
    bindings: dict[str, Binding] = field(default_factory=dict)
    outer: dict[str, ScopeKind | None] = field(default_factory=dict)
    """Names declared ``global`` (-> MODULE) or ``nonlocal`` (-> None) here."""

    def bind(self, name: str) -> Binding:
        """The variable that an assignment to ``name`` in this scope changes, made if need be."""
        scope: Scope = self
        if name in self.outer:
            scope = self.module if self.outer[name] is ScopeKind.MODULE else self._enclosing_with(name)
        if name not in scope.bindings:
            scope.bindings[name] = Binding(name, scope)
        return scope.bindings[name]

    def lookup(self, name: str) -> Binding | None:
        """The variable that a read of ``name`` in this scope sees; None for a builtin or a star import's name."""
        scope: Scope | None = self.module if self.outer.get(name) is ScopeKind.MODULE else self
        first = True
        while scope is not None:
            if name in scope.bindings and (first or scope.kind is not ScopeKind.CLASS):
                return scope.bindings[name]
            first = first and scope.kind is ScopeKind.COMPREHENSION
            scope = scope.parent
        return None

    @property
    def module(self) -> Scope:
        """The module's scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    @property
    def function(self) -> Scope:
        """The innermost function's scope around (or the module's, or a class's): where statements are run."""
        scope = self
        while scope.kind is ScopeKind.COMPREHENSION and scope.parent is not None:
            scope = scope.parent
        return scope

    def _enclosing_with(self, name: str) -> Scope:
        scope = self.parent
        while scope is not None and not (scope.kind is ScopeKind.FUNCTION and name in scope.bindings):
            scope = scope.parent
        return scope or self.module


@dataclass(eq=False)
class Names:
    """Every name of a module resolved, and the shape of its tree."""

    module: cst.Module
    scope: Scope
    parents: dict[cst.CSTNode, cst.CSTNode] = field(default_factory=dict)
    scopes: dict[cst.CSTNode, Scope] = field(default_factory=dict)
    """The scope that a module, function, lambda, class or comprehension opens."""
    within: dict[cst.CSTNode, Scope] = field(default_factory=dict)
    """The scope in which a name, call, attribute, loop or statement stands."""
    calls: list[cst.Call] = field(default_factory=list)
    loops: list[LoopNode] = field(default_factory=list)
    functions: list[FunctionNode] = field(default_factory=list)
    classes: list[cst.ClassDef] = field(default_factory=list)
    stars: list[str] = field(default_factory=list)
    """Modules whose names came in through ``from m import *``."""
    returns: dict[cst.CSTNode, list[cst.Return]] = field(default_factory=dict)
    """For a function its ``return`` statements."""
    _order: dict[cst.CSTNode, int] = field(default_factory=dict)
    _ends: dict[cst.CSTNode, int] = field(default_factory=dict)
    _functions: dict[cst.CSTNode, cst.CSTNode] = field(default_factory=dict)

    def binding(self, name: cst.Name) -> Binding | None:
        """The variable that this name node reads or writes."""
        scope = self.within.get(name)
        return scope.lookup(name.value) if scope else None

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node, from the inside out."""
        found = self.parents.get(node)
        while found is not None:
            yield found
            found = self.parents.get(found)

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The statement of a block in which a node stands: a line of small statements, or a compound statement."""
        here = node
        for around in self.ancestors(node):
            if isinstance(around, (cst.IndentedBlock, cst.Module, cst.SimpleStatementSuite)):
                return here
            here = around
        return here

    def block(self, node: cst.CSTNode) -> cst.CSTNode:
        """The block (indented block, suite or module) in which the statement around a node stands."""
        statement = self.statement(node)
        return self.parents.get(statement, self.module)

    def every(self, *kinds: type[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        """The nodes of some kinds, in the order of the walk."""
        return (node for node in self.parents if node.__class__ in kinds)

    def order(self, node: cst.CSTNode) -> int:
        """The position of a node in the source, as a number to compare with others."""
        if not self._order:
            # ``parents`` is filled in the order of the walk, which is that of the source within a statement list.
            self._order = dict(zip(self.parents, range(len(self.parents)), strict=True))
        return self._order.get(node, -1)

    def end(self, node: cst.CSTNode) -> int:
        """The position of the last node below one."""
        if not self._ends:
            ends = dict(zip(self.parents, range(len(self.parents)), strict=True))
            for below, parent in reversed(self.parents.items()):  # what is below comes behind
                ends[parent] = max(ends.get(parent, -1), ends[below])
            self._ends = ends
        return self._ends.get(node, -1)

    def function(self, node: cst.CSTNode) -> cst.CSTNode:
        """The function (or lambda) whose body runs a node; the module where there is none."""
        if not self._functions:
            found = self._functions
            for below, parent in self.parents.items():  # what is above comes in front
                runs = parent.__class__ in _FUNCTIONS and below is parent.body
                found[below] = parent if runs else found.get(parent, self.module)
        return self._functions.get(node, self.module)

    def enclosing(self, node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        """The nodes of the given kinds around a node within its own function, from the inside out."""
        for around in self.ancestors(node):
            if around.__class__ in _FUNCTIONS:
                return
            if isinstance(around, kinds):
                yield around


def resolve(module: cst.Module) -> Names:
    """Resolve every name of a module."""
    scope = Scope(ScopeKind.MODULE, module, None, "<module>")
    names = Names(module, scope)
    names.scopes[module] = scope
    _Walk(names).statements(module.body, module, scope)
    _attach_reads(names)
    return names


def _attach_reads(names: Names) -> None:
    for node, scope in names.within.items():
        if isinstance(node, cst.Name):
            binding = scope.lookup(node.value)
            if binding is not None and node not in binding.definitions:
                binding.reads.append(node)


class _Walk:
    """The walk: records parents, opens scopes, binds names."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def statements(self, body: object, parent: cst.CSTNode, scope: Scope) -> None:
        for statement in body:  # type: ignore[attr-defined]
            self.visit(statement, parent, scope)

    def visit(self, node: cst.CSTNode, parent: cst.CSTNode, scope: Scope) -> None:
        names = self.names
        names.parents[node] = parent
        special = _SPECIAL.get(node.__class__)
        if special is not None:
            names.within[node] = scope
            special(self, node, scope)
        else:
            for child in children(node):
                self.visit(child, node, scope)

    def each(self, scope: Scope, parent: cst.CSTNode, *nodes: cst.CSTNode | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node, parent, scope)

    def target(self, node: cst.CSTNode, scope: Scope) -> None:
        """Bind the names of an assignment target that was visited already."""
        if isinstance(node, cst.Name):
            scope.bind(node.value).definitions.append(node)
        elif isinstance(node, (cst.Tuple, cst.List)):
            for element in node.elements:
                self.target(element.value, scope)
        elif isinstance(node, cst.StarredElement):
            self.target(node.value, scope)

    def visit_Name(self, node: cst.Name, scope: Scope) -> None:
        pass

    def visit_Attribute(self, node: cst.Attribute, scope: Scope) -> None:
        self.visit(node.value, node, scope)

    def visit_Arg(self, node: cst.Arg, scope: Scope) -> None:
        self.visit(node.value, node, scope)

    def visit_Call(self, node: cst.Call, scope: Scope) -> None:
        self.names.calls.append(node)
        self.each(scope, node, node.func, *node.args)

    def visit_Assign(self, node: cst.Assign, scope: Scope) -> None:
        self.each(scope, node, node.value)
        for target in node.targets:
            self.visit(target, node, scope)
            self.target(target.target, scope)

    def visit_AssignTarget(self, node: cst.AssignTarget, scope: Scope) -> None:
        self.visit(node.target, node, scope)

    def visit_AnnAssign(self, node: cst.AnnAssign, scope: Scope) -> None:
        self.each(scope, node, node.annotation, node.value, node.target)
        self.target(node.target, scope)

    def visit_AugAssign(self, node: cst.AugAssign, scope: Scope) -> None:
        self.each(scope, node, node.value, node.target)
        self.target(node.target, scope)

    def visit_NamedExpr(self, node: cst.NamedExpr, scope: Scope) -> None:
        self.each(scope, node, node.value, node.target)
        self.target(node.target, scope.function)

    def visit_For(self, node: cst.For, scope: Scope) -> None:
        self.names.loops.append(node)
        self.each(scope, node, node.iter, node.target)
        self.target(node.target, scope)
        self.each(scope, node, node.body, node.orelse)

    def visit_While(self, node: cst.While, scope: Scope) -> None:
        self.names.loops.append(node)
        self.each(scope, node, node.test, node.body, node.orelse)

    def visit_With(self, node: cst.With, scope: Scope) -> None:
        for item in node.items:
            self.visit(item, node, scope)
            if item.asname is not None:
                self.target(item.asname.name, scope)
        self.visit(node.body, node, scope)

    def visit_ExceptHandler(self, node: cst.ExceptHandler, scope: Scope) -> None:
        self.each(scope, node, node.type, node.name)
        if node.name is not None:
            self.target(node.name.name, scope)
        self.visit(node.body, node, scope)

    def visit_MatchAs(self, node: cst.MatchAs, scope: Scope) -> None:
        self.each(scope, node, node.pattern, node.name)
        if node.name is not None:
            self.target(node.name, scope)

    def visit_Del(self, node: cst.Del, scope: Scope) -> None:
        self.visit(node.target, node, scope)

    def visit_Return(self, node: cst.Return, scope: Scope) -> None:
        self.names.returns.setdefault(scope.function.node, []).append(node)
        self.each(scope, node, node.value)

    def visit_Global(self, node: cst.Global, scope: Scope) -> None:
        for item in node.names:
            scope.outer[item.name.value] = ScopeKind.MODULE

    def visit_Nonlocal(self, node: cst.Nonlocal, scope: Scope) -> None:
        for item in node.names:
            scope.outer[item.name.value] = None

    def visit_Import(self, node: cst.Import, scope: Scope) -> None:
        for alias in node.names:
            self.names.parents[alias] = node
            bound: cst.BaseExpression = alias.asname.name if alias.asname else alias.name
            while isinstance(bound, cst.Attribute):
                bound = bound.value
            if isinstance(bound, cst.Name):
                scope.bind(bound.value).definitions.append(alias)

    def visit_ImportFrom(self, node: cst.ImportFrom, scope: Scope) -> None:
        if isinstance(node.names, cst.ImportStar):
            self.names.stars.append(import_source(node))
            return
        for alias in node.names:
            self.names.parents[alias] = node
            bound = alias.asname.name if alias.asname else alias.name
            if isinstance(bound, cst.Name):
                scope.bind(bound.value).definitions.append(alias)

    def visit_FunctionDef(self, node: cst.FunctionDef, scope: Scope) -> None:
        self.names.functions.append(node)
        scope.bind(node.name.value).definitions.append(node)
        self.each(scope, node, *node.decorators, node.returns)
        self._parameters(node, scope, node.name.value)

    def visit_Lambda(self, node: cst.Lambda, scope: Scope) -> None:
        self.names.functions.append(node)
        self._parameters(node, scope, "<lambda>")

    def _parameters(self, node: FunctionNode, scope: Scope, name: str) -> None:
        qualname = name if scope.parent is None else f"{scope.qualname}.{name}"
        inner = Scope(ScopeKind.FUNCTION, node, scope, qualname)
        self.names.scopes[node] = inner
        self.names.parents[node.params] = node
        for param in parameters(node):
            self.names.parents[param] = node.params
            self.names.within[param] = inner
            inner.bind(param.name.value).definitions.append(param)
            self.each(scope, param, param.default, param.annotation)
        self.visit(node.body, node, inner)

    def visit_ClassDef(self, node: cst.ClassDef, scope: Scope) -> None:
        self.names.classes.append(node)
        scope.bind(node.name.value).definitions.append(node)
        self.each(scope, node, *node.decorators, *node.bases, *node.keywords)
        qualname = node.name.value if scope.parent is None else f"{scope.qualname}.{node.name.value}"
        inner = Scope(ScopeKind.CLASS, node, scope, qualname)
        self.names.scopes[node] = inner
        self.visit(node.body, node, inner)

    def _comprehension(self, node: cst.BaseComp, scope: Scope) -> None:
        inner = Scope(ScopeKind.COMPREHENSION, node, scope, scope.qualname)
        self.names.scopes[node] = inner
        clause: cst.CompFor | None = node.for_in
        outer, parent = scope, node
        while clause is not None:
            self.names.parents[clause] = parent
            self.names.within[clause] = inner
            self.visit(clause.iter, clause, outer)
            self.each(inner, clause, clause.target)
            self.target(clause.target, inner)
            self.each(inner, clause, *clause.ifs)
            outer, parent, clause = inner, clause, clause.inner_for_in  # type: ignore[assignment]
        if isinstance(node, cst.DictComp):
            self.each(inner, node, node.key, node.value)
        else:
            self.each(inner, node, node.elt)  # type: ignore[attr-defined]

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension


_SPECIAL: dict[type[cst.CSTNode], Callable[[_Walk, Any, Scope], None]] = {
    getattr(cst, name.removeprefix("visit_")): visit for name, visit in vars(_Walk).items() if name.startswith("visit_")
}


def reaching(names: Names, binding: Binding, read: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The definitions that a read can see: those in front of it, and those of an earlier turn of its loops."""
    if names.scopes.get(names.function(read)) is not binding.scope.function:
        return tuple(binding.definitions)
    order, here = names.order, names.order(read)
    turns = [(order(loop), names.end(loop)) for loop in names.enclosing(read, cst.For, cst.While)]
    return tuple(
        d for d in binding.definitions if order(d) < here or any(start < order(d) <= end for start, end in turns)
    )


def bindings_value(
    names: Names, binding: Binding, definitions: Sequence[cst.CSTNode] | None = None
) -> list[cst.BaseExpression]:
    """
    The values that plain assignments give a variable, tuples matched by position; augmented ones included.

    ``definitions`` are those to look at; all of them without.
    """
    found: list[cst.BaseExpression] = []
    for definition in binding.definitions if definitions is None else definitions:
        parent = names.parents.get(definition)
        if isinstance(parent, (cst.AugAssign, cst.AnnAssign, cst.NamedExpr)) and parent.value is not None:
            found.append(parent.value)
        elif isinstance(parent, cst.AssignTarget):
            assign = names.parents.get(parent)
            if isinstance(assign, cst.Assign):
                found.append(assign.value)
        elif isinstance(parent, cst.Element):
            found.extend(_unpacked(names, parent))
    return found


def _unpacked(names: Names, element: cst.Element) -> list[cst.BaseExpression]:
    """What ``a, b = ...`` gives to one of its names: the value at its place, or the whole that is unpacked."""
    target = names.parents.get(element)
    above = names.parents.get(target) if target is not None else None
    assign = names.parents.get(above) if isinstance(above, cst.AssignTarget) else None
    if not isinstance(assign, cst.Assign) or not isinstance(target, (cst.Tuple, cst.List)):
        return []
    value = assign.value
    if isinstance(value, (cst.Tuple, cst.List)) and len(value.elements) == len(target.elements):
        return [value.elements[list(target.elements).index(element)].value]
    return [value]


def parameters(function: FunctionNode) -> list[cst.Param]:
    """All parameters of a function in order, ``*args`` and ``**kwargs`` included."""
    params = function.params
    star = [params.star_arg] if isinstance(params.star_arg, cst.Param) else []
    double = [params.star_kwarg] if params.star_kwarg is not None else []
    return [*params.posonly_params, *params.params, *star, *params.kwonly_params, *double]


def positional(function: FunctionNode) -> list[cst.Param]:
    """The parameters that positional arguments fill, in order."""
    return [*function.params.posonly_params, *function.params.params]


def is_docstring(statement: cst.CSTNode) -> bool:
    """Whether a statement is nothing but a string."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    return isinstance(small, cst.Expr) and isinstance(small.value, (cst.SimpleString, cst.ConcatenatedString))


def dotted(node: cst.CSTNode | None) -> str:
    """``a.b.c`` for names and attributes of names, else the empty string."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""


def import_source(node: cst.ImportFrom) -> str:
    """The module that ``from m import ...`` reads, with its leading dots."""
    return "." * len(node.relative) + dotted(node.module)
