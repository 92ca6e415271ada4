"""What the statements of a program do to the things that flow: one visit a statement, then the fixed point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import libcst as cst

from ...facts.module_paths import ModulePaths
from ...facts.torch_api import questions
from ..syntax.names import Names
from ..syntax.nodes import parameters
from ..syntax.resolving import resolve
from ..syntax.scopes import ScopeKind
from ..syntax.walk import children
from . import modules
from .assumptions import vouched
from .builders import build, register, set_aside
from .command_lines import started
from .drawn_batches import drawn_by_callers
from .expressions import assign, bind_loop, evaluate
from .solver import Slot, Thing
from .values import Function, Klass, State, Unit


def solve(
    trees: Iterable[tuple[str, cst.Module]],
    assume: Iterable[tuple[str, str]] = (),
    layout: ModulePaths = ModulePaths(),  # noqa: B008 (frozen)
    known: Mapping[cst.Module, Names] = MappingProxyType({}),
) -> State:
    """Find out what every variable and expression of a program can hold. Trees are (name, module) pairs, the entry
    script first; ``known`` are the names of some modules, where somebody has resolved them already."""
    units = [Unit(n, known[m] if m in known else resolve(m), place=layout.place(n)) for n, m in trees]
    state = State(units, layout)
    for unit in units:
        _declare(state, unit)
    set_aside(state)
    for unit in units:
        for statement in unit.names.module.body:
            if unit is units[0] or not is_guard(statement):
                _visit(state, unit, statement)
    for statement in units[0].names.module.body if layout.started else ():
        if isinstance(statement, cst.FunctionDef) and statement.name.value in layout.started:
            state.started.add(statement)
            state.running.add(statement)
    state.solver.run()
    build(state)
    state.running.end()
    state.solver.run()
    vouched(state, assume)
    drawn_by_callers(state)
    return state


def is_guard(statement: cst.CSTNode) -> bool:
    """Whether a statement is run only when its file is started: ``if __name__ == "__main__"``."""
    test = statement.test if isinstance(statement, cst.If) else None
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    sides = (test.left, test.comparisons[0].comparator)
    return any(isinstance(side, cst.Name) and side.value == "__name__" for side in sides)


def choice_around(unit: Unit, node: cst.CSTNode) -> cst.CSTNode:
    """The statement around a node, or the outermost ``if`` of which it is in one branch: what follows runs in any
    case."""
    statement = unit.names.statement(node)
    for around in unit.names.ancestors(statement):
        if isinstance(around, cst.If) and not is_guard(around):
            statement = around
        elif not isinstance(around, (cst.Else, cst.IndentedBlock)):
            break
    return statement


def _declare(state: State, unit: Unit) -> None:
    """Imports, functions and classes hold what their statements say, wherever those are."""
    for scope in unit.names.scopes.values():
        for binding in scope.bindings.values():
            for node in binding.definitions:
                if isinstance(node, cst.ImportAlias):
                    _imported(state, unit, node, state.binding(binding))
                elif isinstance(node, cst.FunctionDef):
                    state.solver.add(state.binding(binding), unit.function(node))
                elif isinstance(node, cst.ClassDef):
                    state.solver.add(state.binding(binding), _class(state, unit, node))


def _imported(state: State, unit: Unit, alias: cst.ImportAlias, slot: Slot) -> None:
    qualified = modules.imported(unit, alias)
    found = modules.slot_of(state, qualified)
    if found is not None:
        state.solver.flow(found, slot)
    else:
        state.solver.add(slot, state.external(qualified))


def _class(state: State, unit: Unit, node: cst.ClassDef) -> Klass:
    if node in unit.classes:
        return unit.classes[node]
    klass = unit.classes[node] = Klass(node, unit)
    bases: list[Klass] = []
    externals: list[str] = []
    for arg in node.bases:
        for base in _base(state, unit, arg.value):
            if isinstance(base, Klass):
                if klass in base.lineage():
                    continue  # of a name with several definitions, this is another class
                bases.append(base)
                externals.extend(base.externals)
            elif base != "builtins.object":  # of which every class is
                externals.append(base)
    klass.bases, klass.externals = tuple(bases), tuple(externals)
    klass.role = next((role for name in externals if (role := questions.base_role(name)) is not None), None)
    return klass


def _base(state: State, unit: Unit, node: cst.BaseExpression) -> list[Klass | str]:
    """The classes of the program and the outside names that a base class expression means."""
    if isinstance(node, cst.Attribute):
        below = [base for base in _base(state, unit, node.value) if isinstance(base, str)]
        return [_named(state, f"{base}.{node.attr.value}") for base in below]
    if isinstance(node, cst.Subscript):
        return _base(state, unit, node.value)
    if isinstance(node, cst.IfExp):  # ``nn.Module if nn is not None else object``, where torch may be missing
        return [*_base(state, unit, node.body), *_base(state, unit, node.orelse)]
    if not isinstance(node, cst.Name):
        return []
    binding = unit.names.binding(node)
    if binding is None:
        named = list(_starred(unit, node.value)) or [f"builtins.{node.value}"]
        return [_named(state, name) for name in named]
    found: list[Klass | str] = []
    for definition in binding.definitions:
        if isinstance(definition, cst.ClassDef):
            found.append(_class(state, unit, definition))
        elif isinstance(definition, cst.ImportAlias):
            found.append(_named(state, modules.imported(unit, definition)))
    return found


def _starred(unit: Unit, name: str) -> Iterable[str]:
    return (f"{modules.full(unit, module)}.{name}" for module in unit.names.stars)


def _named(state: State, qualified: str) -> Klass | str:
    found = modules.class_named(state, qualified)
    return found if isinstance(found, str) else _class(state, *found)


def _visit(state: State, unit: Unit, node: cst.CSTNode) -> None:
    """Build the flow of a statement and of those inside it."""
    if isinstance(node, cst.BaseExpression):
        evaluate(state, unit, node)
        return
    handler = _STATEMENTS.get(type(node))
    if handler is not None:
        handler(state, unit, node)
    else:
        for child in children(node):
            _visit(state, unit, child)


def _assign(state: State, unit: Unit, node: cst.Assign) -> None:
    value = evaluate(state, unit, node.value)
    for target in node.targets:
        assign(state, unit, target.target, value)


def _ann_assign(state: State, unit: Unit, node: cst.AnnAssign) -> None:
    if node.value is not None:
        assign(state, unit, node.target, evaluate(state, unit, node.value))


def _aug_assign(state: State, unit: Unit, node: cst.AugAssign) -> None:
    value = evaluate(state, unit, node.value)
    evaluate(state, unit, node.target)
    assign(state, unit, node.target, value)


def _for(state: State, unit: Unit, node: cst.For) -> None:
    bind_loop(state, unit, node, node.iter, node.target)
    _visit(state, unit, node.body)
    if node.orelse is not None:
        _visit(state, unit, node.orelse)


def _with(state: State, unit: Unit, node: cst.With) -> None:
    for item in node.items:
        value = evaluate(state, unit, item.item)
        if item.asname is not None:
            assign(state, unit, item.asname.name, value)
    _visit(state, unit, node.body)


def _return(state: State, unit: Unit, node: cst.Return) -> None:
    if node.value is not None:
        function = unit.names.function(node)
        state.solver.flow(evaluate(state, unit, node.value), state.returns(function))


def _function(state: State, unit: Unit, node: cst.FunctionDef) -> None:
    scope = unit.names.scopes[node]
    for decorator in node.decorators:
        state.solver.watch(evaluate(state, unit, decorator.decorator), lambda thing: _run_around(state, node, thing))
        started(state, unit, node, decorator.decorator, evaluate)
    register(state, unit, node, unit.function(node))
    if unit.function(node).decorated("property", "cached_property"):
        _property(state, unit, node)
    for param in parameters(node):
        if param.default is not None:
            state.solver.flow(evaluate(state, unit, param.default), state.binding(scope.bindings[param.name.value]))
    _visit(state, unit, node.body)


def _run_around(state: State, node: cst.FunctionDef, decorator: Thing) -> None:
    """A decorator of the script runs, and so does the function that it gives in the place of the decorated one, with
    whatever that is called with."""

    def given(thing: Thing) -> None:
        if isinstance(thing, Function):
            state.escape(thing.node)
            state.wrappers.setdefault(node, {})[thing.node] = None

    if isinstance(decorator, Function):
        state.escape(decorator.node)
        state.solver.watch(state.returns(decorator.node), given)


def _property(state: State, unit: Unit, node: cst.FunctionDef) -> None:
    scope = unit.names.within[node]
    if scope.kind is ScopeKind.CLASS and isinstance(scope.node, cst.ClassDef):
        state.solver.flow(state.returns(node), state.field(_class(state, unit, scope.node), node.name.value))
        state.escape(node)


def _class_body(state: State, unit: Unit, node: cst.ClassDef) -> None:
    klass = _class(state, unit, node)
    for decorator in node.decorators:
        evaluate(state, unit, decorator.decorator)
    register(state, unit, node, klass)
    _visit(state, unit, node.body)
    for name, binding in unit.names.scopes[node].bindings.items():
        if not any(isinstance(d, cst.FunctionDef) for d in binding.definitions):
            state.solver.flow(state.binding(binding), state.field(klass, name))


def _skip(state: State, unit: Unit, node: cst.CSTNode) -> None:
    return


_STATEMENTS: dict[type[cst.CSTNode], Callable[..., None]] = {
    cst.Assign: _assign,
    cst.AnnAssign: _ann_assign,
    cst.AugAssign: _aug_assign,
    cst.For: _for,
    cst.With: _with,
    cst.Return: _return,
    cst.FunctionDef: _function,
    cst.ClassDef: _class_body,
    cst.Import: _skip,
    cst.ImportFrom: _skip,
    cst.Global: _skip,
    cst.Nonlocal: _skip,
}
