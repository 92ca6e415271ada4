"""The one walk over a module that resolves its names; it skips white space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst

from .names import Names
from .nodes import FunctionNode, import_source, parameters
from .scopes import Scope, ScopeKind
from .walk import children


def resolve(module: cst.Module) -> Names:
    """Resolve every name of a module."""
    scope = Scope(ScopeKind.MODULE, module, None, "<module>")
    names = Names(module, scope)
    names.scopes[module] = scope
    _Walk(names).statements(module.body, module, scope)
    _attach_reads(names)
    return names


def _attach_reads(names: Names) -> None:
    set_there = {d for scope in names.scopes.values() for b in scope.bindings.values() for d in b.definitions}
    for node, scope in names.within.items():
        if isinstance(node, cst.Name):
            binding = scope.lookup(node.value)
            if binding is not None and (node not in set_there or node not in binding.definitions):
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
