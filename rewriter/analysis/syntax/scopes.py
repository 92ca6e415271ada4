"""Scopes and variables, by Python's rules: which scope an assignment changes, and which variable a read sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import libcst as cst


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
