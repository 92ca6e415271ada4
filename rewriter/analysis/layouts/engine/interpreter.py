"""
Goes through a training step as one of N processes does, and says of each value where the rows of the batch are.

Functions of the program are followed where they are called. A loop is gone through twice, so that what one turn leaves
to the next is seen. What is defined outside the step is looked up where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import libcst as cst

from ...dataflow.values import Instance, Unit
from ...syntax.nodes import positional
from ...syntax.scopes import Binding
from ...syntax.walk import nodes_in
from .calls import Calls
from .expressions import MOST
from .functions import is_method
from .layout import (
    NEUTRAL,
    REPLICATED,
    Layout,
    Partial,
    Replicated,
    ShardRow,
    Unclear,
    across_rows,
    inner,
    join,
    join_all,
    varies,
)
from .operations import elements

_MOST_OF_A_DEFINITION = 10_000
"""Expressions: of what is set before a loop; fewer when all such definitions together have spent as many as a
program."""
_MOST_AT_LAST = 500


class Interpreter(Calls):
    """Goes through code with some expressions taken for the shard of a batch."""

    def turns(self, loop: cst.For | cst.While, unit: Unit) -> None:
        """Go through a loop, from outside it."""
        self._units = [unit]
        self._start = unit.names.order(loop)
        self._loop(loop)

    def asked(self, node: cst.BaseExpression, unit: Unit) -> Layout:
        """What an expression gives, from outside any loop."""
        self._units = [unit]
        return self._eval(node)

    def value(self, node: cst.BaseExpression, unit: Unit) -> Layout:
        """What an expression gives after the walk."""
        return inner(self.container(node, unit))

    def looked_up(self, node: cst.BaseExpression, unit: Unit) -> Layout | None:
        """What a variable that is set outside of the walk holds, where it was looked up for another question."""
        if not isinstance(node, cst.Name) or node in self.seeds.rows:
            return None
        binding = unit.names.binding(node)
        found = self._looked_up.get(binding) if binding is not None and binding not in self.values else None
        return inner(found) if found is not None else None

    def container(self, node: cst.BaseExpression, unit: Unit) -> Layout:
        """What an expression gives after the walk: of a container, also what is known of how many elements it has."""
        self._units = [unit]
        return self._eval(node)

    def iterated(self, source: cst.BaseExpression, unit: Unit) -> Layout | None:
        """What a loop over a value goes through, iterator classes of the program followed; None where it is unknown."""
        self._units = [unit]
        slot = self.state.values.get(source)
        for thing in slot.things if slot is not None else ():
            klass = thing.klass if isinstance(thing, Instance) else None
            for name in ("__next__", "__iter__", "__getitem__") if klass is not None else ():
                method = klass.method(name) if klass is not None else None
                given = self._run(method, [REPLICATED], {}, method=True) if method is not None else NEUTRAL
                found = elements(given, source) if name == "__iter__" else given
                if found != NEUTRAL and not (name == "__iter__" and isinstance(found, Replicated)):
                    return found
        return elements(self._eval(source), source)

    def _block(self, block: cst.BaseSuite | cst.CSTNode) -> bool:
        """Go through a block; whether it is left at its end by ``return``, ``raise``, ``continue`` or ``break``."""
        return any(self._statement(statement) for statement in getattr(block, "body", ()))

    def _statement(self, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
            return any(self._small(small) for small in node.body)
        if isinstance(node, cst.If):
            return self._branches(node)
        if isinstance(node, (cst.For, cst.While)):
            self._loop(node)
        elif isinstance(node, cst.With):
            for item in node.items:
                layout = self._eval(item.item)
                if item.asname is not None:
                    self._assign(item.asname.name, layout)
            return self._block(node.body)
        elif isinstance(node, cst.Try):
            self._block(node.body)
            for handler in node.handlers:
                with self._branching() as before:
                    self._block(handler.body)
                self._meet(before)
            for part in (node.orelse, node.finalbody):
                if part is not None:
                    self._block(part.body)
        return False

    def _small(self, node: cst.BaseSmallStatement) -> bool:
        if isinstance(node, cst.Assign):
            layout = self._eval(node.value)
            for target in node.targets:
                self._assign(target.target, layout)
                self._rank_of_shape(target.target, node.value)
        elif isinstance(node, cst.AnnAssign) and node.value is not None:
            self._assign(node.target, self._eval(node.value))
        elif isinstance(node, cst.AugAssign):
            left, right = self._eval(node.target), self._eval(node.value)
            if self._counts_rows(node, left, right):
                return False
            added = isinstance(node.operator, cst.AddAssign) and isinstance(inner(right), ShardRow)
            if added and (left == Partial("sum") or (isinstance(left, Replicated) and left.neutral)):
                self._assign(node.target, Partial("sum"))  # term by term, in a loop over the rows
            else:
                self._assign(node.target, self._arithmetic(left, right, node.operator, node))
        elif isinstance(node, cst.Expr):
            self._eval(node.value)
        elif isinstance(node, cst.Del):
            gone = [e.value for e in node.target.elements] if isinstance(node.target, cst.Tuple) else [node.target]
            for entry in gone:
                if isinstance(entry, cst.Subscript):
                    self._take_out(entry)
        elif isinstance(node, cst.Return):
            if self._returned:
                self._return(node.value)
            return True
        return isinstance(node, (cst.Return, cst.Raise, cst.Continue, cst.Break))

    def _counts_rows(self, node: cst.AugAssign, left: Layout, right: Layout) -> bool:
        """``hits += 1`` in a loop over the rows, begun outside it: a sum over the rows, whichever of them count."""
        binding = self._unit.names.binding(node.target) if isinstance(node.target, cst.Name) else None
        begun = self._begun.get(binding) if binding is not None else None
        if binding is None or begun is None or begun[0] >= self._rows_deep:
            return False
        number = isinstance(left, Replicated) or (isinstance(left, Partial) and left.op == "sum" and left.host is True)
        if not isinstance(node.operator, cst.AddAssign) or not number or not isinstance(right, Replicated):
            return False
        reason = "which rows are counted depends on what several rows have in common"
        found = Partial("sum", host=True) if self._by_row(node) else Unclear(reason, node, joint=True)
        self._assign(node.target, found)
        self._begun[binding] = begun
        return True

    def _by_row(self, node: cst.CSTNode) -> bool:
        """Whether each row decides for itself what a loop over the rows does with it."""
        loops = [loop for loop, _ in self._unit.names.outwards(node) if isinstance(loop, cst.For)]
        tests = [part.test for part in nodes_in(loops[-1].body, cst.If)] if loops else []
        found = [inner(self._eval(test)) for test in tests]
        return all(isinstance(one, (ShardRow, Replicated)) for one in found)

    def _branches(self, node: cst.If) -> bool:
        chooses = varies(self._eval(node.test))
        passes = self._passes(node.test)
        if passes is not None:
            taken = node if passes else node.orelse
            return self._branches(taken) if isinstance(taken, cst.If) and taken is not node else self._taken(taken)
        self._choices += chooses
        left, gone = self._both(node)
        self._choices -= chooses and left == gone  # what follows ``if ...: continue`` is chosen, to the end of the loop
        return left and gone

    def _both(self, node: cst.If) -> tuple[bool, bool]:
        """Go through both branches; which of them are left at their end."""
        with self._branching() as before, self._knowing(node.test, met=True):
            left = self._block(node.body)
        after = {binding: self.values.get(binding) for binding in before}
        for binding, layout in before.items():
            self._set(binding, layout)
        other = node.orelse
        gone = False
        with self._branching() as beside, self._knowing(node.test, met=False, lasts=left and other is None):
            if isinstance(other, cst.If):
                gone = self._branches(other)
            elif other is not None:
                gone = self._block(other.body)
        after = {**beside, **after}  # what the second branch alone changes stays in the first as it was
        if gone and not left:
            for binding, layout in after.items():
                self._set(binding, layout)
        elif not left:
            self._meet(after)
        return left, gone

    def _taken(self, way: cst.If | cst.Else | None) -> bool:
        return self._block(way.body) if way is not None else False

    def _loop(self, node: cst.For | cst.While) -> None:
        for _ in range(2):
            rows, choices = False, self._choices
            if isinstance(node, cst.For):
                source = self._eval(node.iter)
                rows = across_rows(source)
                self._rows_deep += rows
                self._assign(node.target, elements(source, node.iter))
            else:
                self._eval(node.test)
            with self._branching() as before:
                self._block(node.body)
            self._rows_deep, self._choices = self._rows_deep - rows, choices
            self._meet({b: layout for b, layout in before.items() if b in self.values})
        if node.orelse is not None:
            self._block(node.orelse.body)

    # ------------------------------------------------------------ what is defined elsewhere

    def _outside(self, binding: Binding) -> Layout:
        """A variable that the step reads and something before it has set."""
        if binding not in self._looked_up:
            self._looked_up[binding] = REPLICATED  # one that is defined by itself
            unit = next((u for u in self.reach.units if binding.scope.module is u.names.scope), None)
            if unit is not None:
                here = self._returned, self._yielded, self._before_turns
                self._returned, self._yielded, self._before_turns = [], [], True
                with self._counted_apart():
                    found: Layout = NEUTRAL
                    for definition in binding.definitions:  # `state = state.cuda()` makes it of what it was before
                        found = join(found, self._defined(binding, definition, unit))
                        self._looked_up[binding] = found if found != NEUTRAL else REPLICATED
                    self._looked_up[binding] = found
                self._returned, self._yielded, self._before_turns = here
                if self._looked_up[binding] == NEUTRAL and not _only_adds(binding, unit):
                    self._looked_up[binding] = REPLICATED
        return self._looked_up[binding]

    @contextmanager
    def _counted_apart(self) -> Iterator[None]:
        """What is set before a loop, however large, hides nothing of the loop."""
        here, most = self._steps, min(_MOST_OF_A_DEFINITION, max(MOST - self._steps_outside, _MOST_AT_LAST))
        self._steps, fields = MOST - most, dict(self.fields)
        yield
        if self._steps > MOST:
            self.fields = fields  # what was not gone through to its end has set nothing that can be relied on
        self._steps_outside += self._steps - (MOST - most)
        self._steps = here

    def _defined(self, binding: Binding, definition: cst.CSTNode, unit: Unit) -> Layout:
        if definition in self.seeds.rows:
            return self.seeds.rows[definition]
        if isinstance(definition, cst.Param):
            return self._handed(definition, unit)
        parent = unit.names.parents.get(definition)
        place: tuple[int, int] | None = None
        if isinstance(parent, cst.Element):
            target = unit.names.parents.get(parent)
            elements_ = getattr(target, "elements", ())
            place = next((i for i, e in enumerate(elements_) if e is parent), 0), len(elements_)
            parent = unit.names.parents.get(target) if target is not None else None
        assign = unit.names.parents.get(parent) if isinstance(parent, cst.AssignTarget) else None
        if not isinstance(assign or parent, (cst.Assign, cst.AugAssign)):
            return REPLICATED
        if self._start and unit is self._units[0] and unit.names.order(definition) > self._start:
            return NEUTRAL  # the step itself sets it: its first turn sees what was before
        if not isinstance(assign, cst.Assign):
            return REPLICATED
        self._units.append(unit)
        layout = self._eval(assign.value)
        if place is not None:
            layout = self._part(layout, *place, cst.Element(cst.Name("_")))
        self._units.pop()
        return layout

    def _handed(self, param: cst.Param, unit: Unit) -> Layout:
        """What the callers of the step's function give to a parameter."""
        function = unit.names.within[param.name].function.node if param.name in unit.names.within else None
        if not isinstance(function, cst.FunctionDef) or function in self._inside:
            return REPLICATED
        found: list[Layout] = []
        for site in self.reach.sites(function):
            record = self.state.calls[site]
            given = _argument(site, function, param, is_method(unit, function))
            if given is not None:
                self._units.append(record.unit)
                found.append(self._eval(given))
                self._units.pop()
        return join_all(found) if found else REPLICATED


def _only_adds(binding: Binding, unit: Unit) -> bool:
    """Whether a variable is set once, and else added to: a total, of what is added alone."""
    parents = [unit.names.parents.get(definition) for definition in binding.definitions]
    changes = [parent for parent in parents if isinstance(parent, cst.AugAssign)]
    return len(parents) - len(changes) == 1 and all(isinstance(change.operator, cst.AddAssign) for change in changes)


def _argument(site: cst.Call, function: cst.FunctionDef, param: cst.Param, method: bool) -> cst.BaseExpression | None:
    """The expression that a call gives to a parameter."""
    for arg in site.args:
        if arg.keyword is not None and arg.keyword.value == param.name.value:
            return arg.value
    places = positional(function)[1 if method else 0 :]
    plain = [arg for arg in site.args if arg.keyword is None]
    if param in places and places.index(param) < len(plain) and not any(arg.star for arg in plain):
        return plain[places.index(param)].value
    return param.default
