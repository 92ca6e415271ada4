"""
What conditions are by constants that the program hands from function to function, and so which code no process runs.

Of a text sometimes only the end is known: ``os.path.join(root, "rows.tar.gz")``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.values import CallRecord, Unit
from ..analysis.distributed.tracing import argument_of
from ..analysis.syntax.definitions import unshadowed
from ..analysis.syntax.nodes import is_docstring, keyword, parameters
from ..analysis.training.training import method_name, outside_name
from ..validation.program import EmittedProgram
from .guards import ends


class Text(NamedTuple):
    """A text, or the end of one."""

    end: str
    whole: bool = True


Value = Text | int | bool | None
Values = frozenset[Value] | None
"""What an expression may be; None if that is not known."""
Given = dict[cst.Param, Values]
"""The parameters of a function that is looked through for one of its calls."""
_MOST = 8
"""At most this many values of an expression, and this many functions inside one another."""
_NAMED: dict[str, Value] = {"True": True, "False": False, "None": None}
_ENDS_IN_LAST = frozenset({"os.path.join", "pathlib.Path", "pathlib.PurePath", "builtins.str", "os.fspath"})
"""Calls whose result ends as their last argument does."""


class ConstantConditions:
    """Evaluates conditions, as far as constants decide them."""

    def __init__(self, program: EmittedProgram) -> None:
        self._program = program
        self._known: dict[cst.CSTNode, Values] = {}
        self._excluded: dict[cst.CSTNode, bool] = {}
        self._depth = 0

    def never(self, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()) -> bool:
        """Whether no process comes to a node, however its function is called."""
        if self.excludes(unit, node):
            return True
        if unit.names.function(node) in self._program.state.escaped:
            return False
        return self._program.at_every_site(
            unit, node, seen, lambda site, known: self.never(site.unit, site.node, known)
        )

    def excludes(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether a node is in a branch of its own function that is never taken, or after one that always leaves."""
        if node not in self._excluded:
            self._excluded[node] = False  # what depends on itself is not known
            pairs = list(unit.names.outwards(node))
            self._excluded[node] = any(self._leaves_out(unit, *p, {}) or self._left_before(unit, *p, {}) for p in pairs)
        return self._excluded[node]

    def is_always(self, unit: Unit, node: cst.CSTNode, value: Value) -> bool:
        """Whether an expression has one value, whatever calls its function."""
        return self._values(unit, node, {}) == frozenset({value})

    def passes_by(self, unit: Unit, node: cst.CSTNode, site: CallRecord) -> bool:
        """Whether one call of a node's function does not come to the node, by the constants that it gives."""
        function = unit.names.function(node)
        if not isinstance(function, cst.FunctionDef) or function in self._program.state.escaped:
            return False
        handed = self._given(unit, function, site, {})
        given: Given = {param: each for param, each in handed.items() if each is not None}
        pairs = list(unit.names.outwards(node)) if given else []
        return any(self._leaves_out(unit, *p, given) or self._left_before(unit, *p, given) for p in pairs)

    def _leaves_out(self, unit: Unit, around: cst.CSTNode, below: cst.CSTNode, given: Given) -> bool:
        if not isinstance(around, (cst.If, cst.IfExp)) or below is around.test:
            return False
        return self._truth(unit, around.test, given) is (below is not around.body)

    def _left_before(self, unit: Unit, block: cst.CSTNode, below: cst.CSTNode, given: Given) -> bool:
        """Whether all processes leave a block before one of its statements: ``if not test: return``."""
        if not isinstance(block, cst.IndentedBlock):
            return False
        for statement in block.body:
            if statement is below:
                return False
            if isinstance(statement, cst.If):
                truth = self._truth(unit, statement.test, given)
                taken = statement.body if truth else statement.orelse if truth is False else None
                if taken is not None and ends(taken, lambda _: False):
                    return True
        return False

    def _truth(self, unit: Unit, test: cst.BaseExpression, given: Given) -> bool | None:
        """Whether a condition is always true, or always false; None if that is unknown."""
        told = _each(_is_true, self._values(unit, test, given))
        return bool(next(iter(told))) if told is not None and len(told) == 1 else None

    def _values(self, unit: Unit, node: cst.CSTNode, given: Given) -> Values:
        if given:
            return _few(self._evaluated(unit, node, given))
        if node not in self._known:
            self._known[node] = None  # what depends on itself is not known
            self._known[node] = _few(self._evaluated(unit, node, given))
        return self._known[node]

    def _evaluated(self, unit: Unit, node: cst.CSTNode, given: Given) -> Values:
        if isinstance(node, cst.SimpleString):
            return frozenset({Text(str(node.evaluated_value))})
        if isinstance(node, cst.Integer):
            return frozenset({node.evaluated_value})
        if isinstance(node, cst.FormattedString) and node.parts:
            last = node.parts[-1]
            return frozenset({Text(last.value, False)}) if isinstance(last, cst.FormattedStringText) else None
        if isinstance(node, cst.Name):
            return frozenset({_NAMED[node.value]}) if node.value in _NAMED else self._variable(unit, node, given)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            told = _each(_is_true, self._values(unit, node.expression, given))
            return _each(lambda value: frozenset({not value}), told)
        if isinstance(node, cst.BooleanOperation):
            return self._joined(unit, node, given)
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            return self._compared(unit, node, given)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (cst.Add, cst.Divide)):
            return _each(_ending, self._values(unit, node.right, given))
        if isinstance(node, cst.IfExp):
            truth = self._truth(unit, node.test, given)
            taken = [side for side, when in ((node.body, True), (node.orelse, False)) if truth is not (not when)]
            return _union(self._values(unit, side, given) for side in taken)
        return self._called(unit, node, given) if isinstance(node, cst.Call) else None

    def _joined(self, unit: Unit, node: cst.BooleanOperation, given: Given) -> Values:
        """``a and b``: the first that decides it, or the last."""
        decides = isinstance(node.operator, cst.Or)
        left = self._truth(unit, node.left, given)
        if left is decides:
            return self._values(unit, node.left, given)
        if left is not None:
            return self._values(unit, node.right, given)
        right = self._truth(unit, node.right, given)
        return frozenset({decides}) if right is decides else None

    def _compared(self, unit: Unit, node: cst.Comparison, given: Given) -> Values:
        operator, other = node.comparisons[0].operator, node.comparisons[0].comparator
        parts = [e.value for e in other.elements] if isinstance(other, (cst.Tuple, cst.List, cst.Set)) else [other]
        one = isinstance(operator, (cst.Equal, cst.NotEqual, cst.Is, cst.IsNot)) and parts == [other]
        if not one and (not isinstance(operator, (cst.In, cst.NotIn)) or parts == [other]):
            return None
        mine = self._values(unit, node.left, given)
        others = [self._values(unit, part, given) for part in parts]
        if mine is None or None in others:
            return None
        denies = isinstance(operator, (cst.NotEqual, cst.IsNot, cst.NotIn))
        found: set[Value] = set()
        for value, *rest in product(mine, *(part for part in others if part is not None)):
            same = [_is_same(value, each) for each in rest]
            if None in same and True not in same:
                return None
            found.add((True in same) is not denies)
        return frozenset(found)

    def _called(self, unit: Unit, call: cst.Call, given: Given) -> Values:
        record = self._program.state.calls.get(call)
        plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
        if record is None or len(plain) != len(call.args):
            return None
        name = outside_name(record)
        if name in _ENDS_IN_LAST and plain:
            return _each(_ending, self._values(unit, plain[-1], given))
        if name == "os.path.basename" and plain:
            return _each(_last_part, self._values(unit, plain[0], given))
        if method_name(call) == "endswith" and isinstance(call.func, cst.Attribute) and len(plain) == 1:
            texts, ends = self._values(unit, call.func.value, given), self._values(unit, plain[0], given)
            return _each(lambda end: _each(lambda text: _ends_in(text, end), texts), ends)
        return self._helped(unit, call, given)

    def _helped(self, unit: Unit, call: cst.Call, given: Given) -> Values:
        """What a function of the program returns that does nothing else."""
        functions = self._program.reach.called(call)
        function = functions[0] if len(functions) == 1 else None
        if not isinstance(function, cst.FunctionDef) or self._depth >= _MOST:
            return None
        home = self._program.reach.unit(function)
        statements = [s for s in function.body.body if not is_docstring(s)]
        only = statements[0] if len(statements) == 1 else None
        small = only.body[0] if isinstance(only, cst.SimpleStatementLine) else only
        if not isinstance(small, cst.Return) or small.value is None:
            return None
        handed = self._given(home, function, self._program.state.calls[call], given)
        self._depth += 1
        try:
            return self._values(home, small.value, handed)
        finally:
            self._depth -= 1

    def _given(self, home: Unit, function: cst.FunctionDef, site: CallRecord, given: Given) -> Given:
        """What a call gives to the parameters of a function."""
        handed: Given = {}
        for param in (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params):
            argument = argument_of(home, function, param, site)
            default = self._values(home, param.default, {}) if param.default is not None else None
            starred = any(arg.star for arg in site.node.args)
            if argument is not None:
                handed[param] = self._values(site.unit, argument, given)
            else:
                handed[param] = None if starred else default
        return handed

    def _variable(self, unit: Unit, name: cst.Name, given: Given) -> Values:
        binding = unit.names.binding(name)
        if binding is None:
            return None
        definitions = unshadowed(unit.names, binding, name) or tuple(binding.definitions)
        return _union(
            self._defined(unit, definition, given) for definition in definitions if not self.excludes(unit, definition)
        )

    def _defined(self, unit: Unit, definition: cst.CSTNode, given: Given) -> Values:
        """What a definition gives to its variable."""
        parent = unit.names.parents.get(definition)
        for param in (definition, parent):
            if isinstance(param, cst.Param):
                return given[param] if param in given else self._handed(unit, param)
        assign = unit.names.parents.get(parent) if isinstance(parent, cst.AssignTarget) else parent
        if isinstance(assign, (cst.Assign, cst.AnnAssign)) and assign.value is not None:
            return self._values(unit, assign.value, given)
        return None

    def _handed(self, unit: Unit, param: cst.Param) -> Values:
        """What the calls of a function give to a parameter."""
        function = unit.names.parents.get(unit.names.parents.get(param, param))
        if not isinstance(function, cst.FunctionDef) or function in self._program.state.escaped:
            return None
        found: list[Values] = []
        for site in self._program.sites(function):
            if self.never(site.unit, site.node):
                continue
            argument = argument_of(unit, function, param, site)
            default = self._values(unit, param.default, {}) if param.default is not None else None
            if argument is not None:
                found.append(self._values(site.unit, argument, {}))
            else:
                found.append(self._option(param.name.value, default, site, frozenset()))
        return _union(found) if found else None

    def _option(self, name: str, default: Values, site: CallRecord, seen: frozenset[Code]) -> Values:
        """What a call gives by a keyword: also by ``**options``, as the callers of the function around it gave them."""
        given, stars = keyword(site.node, name), [arg for arg in site.node.args if arg.star]
        if given is not None or not stars:
            return self._values(site.unit, given, {}) if given is not None else default
        around = site.unit.names.function(site.node)
        if not isinstance(around, cst.FunctionDef) or around in seen or around in self._program.state.escaped:
            return None
        if len(stars) > 1 or not _hands_on(site.unit, around, stars[0]):
            return None
        if any(each.name.value == name for each in parameters(around)):
            return default  # it is not among the options
        sites = [each for each in self._program.sites(around) if not self.never(each.unit, each.node)]
        return _union(self._option(name, default, each, seen | {around}) for each in sites) if sites else None


def _hands_on(unit: Unit, function: cst.FunctionDef, star: cst.Arg) -> bool:
    """Whether ``**options`` are those that a function was called with, and nothing else."""
    options = function.params.star_kwarg
    if options is None or star.star != "**" or not isinstance(star.value, cst.Name):
        return False
    binding = unit.names.binding(star.value)
    return binding is not None and binding.name == options.name.value and binding.reads == [star.value]


def _few(values: Values) -> Values:
    return values if values is not None and 0 < len(values) <= _MOST else None


def _union(several: Iterable[Values]) -> Values:
    found: set[Value] = set()
    for values in several:
        if values is None:
            return None
        found |= values
    return frozenset(found)


def _each(function: Callable[[Value], Values], values: Values) -> Values:
    return _union(map(function, values)) if values is not None else None


def _is_true(value: Value) -> Values:
    if isinstance(value, Text):
        return frozenset({bool(value.end)}) if value.whole or value.end else None
    return frozenset({bool(value)})


def _ending(value: Value) -> Values:
    """What is put before a text is not known."""
    return frozenset({Text(value.end, False)}) if isinstance(value, Text) else None


def _last_part(value: Value) -> Values:
    if not isinstance(value, Text):
        return None
    _, slash, tail = value.end.rpartition("/")
    return frozenset({Text(tail, value.whole or bool(slash))})


def _ends_in(value: Value, end: Value) -> Values:
    if not isinstance(value, Text) or not isinstance(end, Text) or not end.whole:
        return None
    if value.end.endswith(end.end):
        return frozenset({True})
    return frozenset({False}) if value.whole or not end.end.endswith(value.end) else None


def _is_same(one: Value, other: Value) -> bool | None:
    """Whether two values are equal; None if that is unknown."""
    if isinstance(one, Text) and isinstance(other, Text):
        if one.whole and other.whole:
            return one.end == other.end
        short, long = sorted((one.end, other.end), key=len)
        return None if long.endswith(short) else False
    return type(one) is type(other) and one == other
