"""Figures that are reduced over the processes: what is reduced, and what several places have reduced once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import groupby

import libcst as cst

from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import Unit
from ..analysis.syntax.walk import descendants, nodes_in
from ..facts.module import Form, Gather

_WORDS = {"mean": "mean", "sum": "total"}
_SKIPPED = "migrate: skip"


def shared_reductions(unit: Unit, gathers: Sequence[Gather]) -> tuple[Gather, ...]:
    """The gathers of a module, those that have the same value with one name for it."""
    named: dict[cst.CSTNode, Gather] = {}
    by_function: dict[tuple[cst.CSTNode, str, str, str, bool], list[Gather]] = {}
    taken: set[str] = set()
    for gather in gathers:
        if gather.form is Form.REDUCE and gather.reduction in _WORDS and _word(gather):
            text = unit.names.one_line(gather.node).removesuffix(".data")
            key = (unit.names.function(gather.node), text, gather.reduction, gather.number, gather.real)
            by_function.setdefault(key, []).append(gather)
    for (function, *_), same in by_function.items():
        if len(same) > 1 and not _changed_in_place(unit, same) and _SKIPPED not in unit.names.module.code:
            taken = taken or {each.value for each in unit.names.every(cst.Name)}
            word = f"{_WORDS[same[0].reduction]}_{_word(same[0])}"
            name = next((one for one in (word, f"{word}_of_all") if one not in taken), None)
            if name is not None:
                named.update(_Sharing(unit, same, name).of(function))
                taken.add(name)
    return tuple(named.get(gather.node, gather) for gather in gathers)


def without_data(unit: Unit, gather: Gather, moved: Container[cst.CSTNode]) -> Gather:
    """A reduction with the ``.data`` after it, which is nothing more then; not where another edit ``moved`` the value:
    ``loss.data.item()``."""
    around = unit.names.parents.get(gather.node)
    if gather.form is not Form.REDUCE or gather.number or gather.node in moved or not isinstance(around, cst.Attribute):
        return gather
    if around.attr.value != "data" or isinstance(unit.names.parents.get(around), cst.AssignTarget):
        return gather
    return gather._replace(node=around, names=(f"{gather.names[0]}.data",))


class _Sharing:
    """Finds the statements before which one value is reduced, for the places in one function."""

    def __init__(self, unit: Unit, same: Sequence[Gather], name: str) -> None:
        self.unit, self.name, self.places = unit, name, {gather.node: gather for gather in same}
        first = same[0]
        bindings = (unit.names.binding(name) for name in nodes_in(first.node, cst.Name))
        self.variables = {binding for binding in bindings if binding is not None}
        around = {around for place in self.places for around in unit.names.ancestors(place)}
        self.around = around.union(self.places)

    def of(self, block: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, Gather]]:
        """The places of a block that share a value, with its name, and the first with the statement that comes after
        the reduction."""
        statements = _statements(block)
        for changed, same in groupby(statements, self._changes):
            run = list(same)
            alone = [s for s in run if isinstance(s, cst.SimpleStatementLine)] if changed else run
            yield from (self._shared(run) if not changed else ()) or self._inside(run, alone)

    def _inside(self, run: Sequence[cst.CSTNode], alone: Sequence[cst.CSTNode]) -> Iterator[tuple[cst.CSTNode, Gather]]:
        """The same within single statements: in a line, or in the blocks of each."""
        for statement in run:
            if statement in self.around:
                if statement in alone:
                    found = self._shared([statement])
                    if found:
                        yield from found
                        continue
                for inner in _blocks(statement):
                    yield from self.of(inner)

    def _shared(self, run: Sequence[cst.CSTNode]) -> list[tuple[cst.CSTNode, Gather]]:
        """The places in statements that no variable changes between, if one of them certainly runs."""
        using = [s for s in run if s in self.around]
        if not using or not any(map(self._certain, using)):
            return []
        places = sorted((n for s in using for n in self._of(s)), key=self.unit.names.order)
        if len(places) < 2 or not self._is_set(using[0]):
            return []
        at = {places[0]: using[0]}
        return [(n, self.places[n]._replace(kept=self.name, kept_at=at.get(n))) for n in places]

    def _of(self, statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
        return (node for node in descendants(statement) if node in self.places)

    def _is_set(self, statement: cst.CSTNode) -> bool:
        """Whether what is reduced certainly has its value before a statement: it is set in a block around it, by a loop
        around it, or given to the function."""
        names, around = self.unit.names, {statement, *self.unit.names.ancestors(statement)}

        def sets(definition: cst.CSTNode) -> bool:
            line = names.statement(definition)
            return isinstance(definition, cst.Param) or (
                names.order(definition) < names.order(statement)
                and names.block(definition) in around
                and (not isinstance(line, cst.For) or line in around)
            )

        return all(any(map(sets, variable.definitions)) for variable in self.variables)

    def _changes(self, statement: cst.CSTNode) -> bool:
        """Whether a statement sets what is reduced."""
        inside = set(descendants(statement))
        return any(d in inside for variable in self.variables for d in variable.definitions)

    def _certain(self, statement: cst.CSTNode) -> bool:
        """Whether a statement comes to one of the places on each of its paths."""
        if statement not in self.around:
            return False
        if isinstance(statement, cst.If):
            other = statement.orelse
            arms = (statement.body, _opposed(statement) if isinstance(other, cst.If) else other)
            both = all(any(map(self._certain, _statements(arm))) for arm in arms)
            return statement.test in self.around or both
        if isinstance(statement, cst.With):
            return any(map(self._certain, _statements(statement.body)))
        return isinstance(statement, cst.SimpleStatementLine)


def _statements(block: cst.CSTNode | None) -> Sequence[cst.CSTNode]:
    """The statements of a module, a function or a block; of one in a line none: nothing can be put before them."""
    block = block.body if isinstance(block, (cst.FunctionDef, cst.Else)) else block
    return block.body if isinstance(block, (cst.Module, cst.IndentedBlock)) else ()


def _opposed(choice: cst.If) -> cst.CSTNode | None:
    """What an ``elif`` holds that is taken wherever the ``if`` before it is not: ``if low: ... elif not low: ...``."""
    other, test = choice.orelse, choice.orelse.test if isinstance(choice.orelse, cst.If) else None
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not) and isinstance(other, cst.If):
        same = isinstance(test.expression, cst.Name) and test.expression.deep_equals(choice.test)
        return other.body if same else None
    return None


def _blocks(statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The blocks of a statement, but those of functions and classes."""
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        return
    for child in statement.children:
        if isinstance(child, cst.BaseSuite):
            yield child
        elif isinstance(child, (cst.If, cst.Else, cst.ExceptHandler, cst.Finally)):
            yield from _blocks(child)


def _word(gather: Gather) -> str:
    """What a reduced value is called: as the variable, or rows; empty where it is neither."""
    node = gather.node
    if isinstance(node, cst.Attribute) and node.attr.value == "data":
        node = node.value
    if isinstance(node, cst.Name):
        return node.value
    receiver = node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) else None
    counts = isinstance(node, cst.Call) and method_name(node) == "size" and bool(gather.number)
    return "rows" if counts and isinstance(receiver, cst.Name) else ""


def _changed_in_place(unit: Unit, same: Iterable[Gather]) -> bool:
    """Whether a variable that gets one of the values may be changed in place: all would see that."""
    kept: list[cst.BaseExpression] = []
    for gather in same:
        parent = unit.names.parents.get(gather.node)
        if isinstance(parent, cst.Assign):
            kept += [target.target for target in parent.targets]
    changed = [each.target for each in nodes_in(unit.names.module, cst.AugAssign)] if kept else []
    return any(one.deep_equals(other) for one in kept for other in changed)
