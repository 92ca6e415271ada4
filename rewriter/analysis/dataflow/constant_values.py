"""
What expressions are by constants of the program: handed from function to function, kept in an object, looked up in a
dictionary that is written out; so what conditions are, and which code no process runs.

Of a text sometimes only the end is known: ``os.path.join(root, "rows.tar.gz")``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from types import MappingProxyType

import libcst as cst

from ...facts.roles import Origin
from ..syntax.definitions import seen_values, unpacked_value, unshadowed
from ..syntax.leaving import ends
from ..syntax.nodes import FunctionNode, is_docstring, keyword, parameters
from .call_binding import argument_for
from .call_graph import Code, Reach, reach_of
from .callees import method_name, outside_name
from .command_lines import option
from .constants import (
    MOST,
    Text,
    Value,
    Values,
    each_of,
    ending,
    ends_in,
    few,
    is_same,
    is_true,
    last_part,
    union,
)
from .modules import imported, unit_named
from .object_fields import fields_of
from .records import annotated, is_dataclass
from .solver import Thing
from .values import CallRecord, External, Instance, Klass, State, Unit
from .written_out import WrittenEntry, WrittenOut

Given = Mapping[cst.Param, Values]
"""The parameters of a function that is looked through for one of its calls."""
_NOTHING: Given = MappingProxyType({})
_NAMED: dict[str, Value] = {"True": True, "False": False, "None": None}
JOINS_PATHS = frozenset({"os.path.join", "pathlib.Path", "pathlib.PurePath", "builtins.str", "os.fspath"})
"""Calls whose result ends as their last argument does."""


class ConstantValues:
    """Evaluates expressions and conditions of a program, as far as constants decide them."""

    def __init__(self, state: State, reach: Reach) -> None:
        self._state, self._reach = state, reach
        self._fields = fields_of(state)
        self._written = WrittenOut(state, reach, self._fields)
        self._known: dict[cst.CSTNode, Values] = {}
        self._excluded: dict[cst.CSTNode, bool] = {}
        self._active: set[cst.CSTNode] = set()
        self._depth = 0

    def never(self, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()) -> bool:
        """Whether no process comes to a node, however its function is called."""
        if self.excludes(unit, node):
            return True
        if unit.names.function(node) in self._state.escaped:
            return False
        code = unit.names.function(node)
        sites = list(self._reach.reached_sites(code))
        return bool(sites) and code not in seen and all(self.never(s.unit, s.node, seen | {code}) for s in sites)

    def excludes(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether a node is in a branch of its own function that is never taken, or after one that always leaves."""
        if node not in self._excluded:
            self._excluded[node] = False  # what depends on itself is not known
            self._excluded[node] = self._is_left_out(unit, node, {})
        return self._excluded[node]

    def excluded_by(self, unit: Unit, node: cst.CSTNode, given: Given) -> bool:
        """Whether a call that gives these values to parameters does not come to a node of its function."""
        return bool(given) and self._is_left_out(unit, node, given)

    def _is_left_out(self, unit: Unit, node: cst.CSTNode, given: Given) -> bool:
        pairs = list(unit.names.outwards(node))
        return any(self._leaves_out(unit, *p, given) or self._left_before(unit, *p, given) for p in pairs)

    def of(self, unit: Unit, node: cst.CSTNode, given: Given = _NOTHING) -> Values:
        """What an expression may be, in a call that gives some values to parameters of its function."""
        return self._values(unit, node, given)

    def is_always(self, unit: Unit, node: cst.CSTNode, value: Value) -> bool:
        """Whether an expression has one value, whatever calls its function."""
        return self._values(unit, node, {}) == frozenset({value})

    def holds(self, unit: Unit, test: cst.BaseExpression, given: Given = _NOTHING) -> bool | None:
        """Whether a condition is always true, or always false; None if that is unknown."""
        return self._truth(unit, test, given)

    def handed(self, function: FunctionNode, site: CallRecord, given: Given = _NOTHING) -> Given:
        """What a call gives to the parameters of a function, in a call of the function around it."""
        home = self._reach.unit(function)
        return self._given(home, function, site, given) if isinstance(function, cst.FunctionDef) else {}

    def known(self, function: FunctionNode, site: CallRecord, given: Given = _NOTHING) -> Given:
        """What of that is known."""
        return {param: each for param, each in self.handed(function, site, given).items() if each is not None}

    def argument(
        self, unit: Unit, call: cst.Call, name: str, position: int | None = None, given: Given = _NOTHING
    ) -> Values:
        """
        What a call of something outside gives by a name or at a position, ``**options`` among it.

        Returns:
            None if that is not known; the empty set if it gives nothing.
        """
        found = keyword(call, name, position)
        if found is not None:
            return self._values(unit, found, given)
        stars = [arg for arg in call.args if arg.star]
        if len(stars) > 1 or (stars and stars[0].star == "*"):
            return None if position is not None or len(stars) > 1 else frozenset()
        if not stars:
            return self._of_partial(unit, call.func, name)
        entries = self._written.entries(unit, stars[0].value)
        if entries is not None:
            return self._entry(entries, Text(name), given)
        record, around = self._state.calls.get(call), unit.names.function(call)
        if record is None or not isinstance(around, cst.FunctionDef) or not _hands_on(unit, around, stars[0]):
            return None
        return self._option(name, frozenset(), record, frozenset())

    def _of_partial(self, unit: Unit, func: cst.BaseExpression, name: str) -> Values:
        """What ``functools.partial`` has given by a name to a function that is called; the empty set for nothing."""
        values = [(unit, v) for v in seen_values(unit.names, func)] if isinstance(func, cst.Name) else []
        if isinstance(func, cst.Attribute):
            slot = self._state.values.get(func.value)
            for thing in slot.things if slot is not None else ():
                values += [write for write in self._fields.writes(thing, func.attr.value) if write is not None]
        found: set[Values] = set()
        for home, value in values:
            record = self._state.calls.get(value) if isinstance(value, cst.Call) else None
            partial = record is not None and outside_name(record) == "functools.partial"
            found.add(self.argument(home, value, name) if partial and isinstance(value, cst.Call) else frozenset())
        return found.pop() if len(found) == 1 else None if found else frozenset()

    def set_later(self, thing: Thing, name: str) -> Values:
        """What code outside of its class sets as an attribute of a thing; the empty set for nothing."""
        writes = self._fields.writes(thing, name)
        return union(self._values(*write, {}) if write is not None else None for write in writes)

    def passes_by(self, unit: Unit, node: cst.CSTNode, site: CallRecord) -> bool:
        """Whether one call of a node's function does not come to the node, by the constants that it gives."""
        function = unit.names.function(node)
        if not isinstance(function, cst.FunctionDef) or function in self._state.escaped:
            return False
        return self.excluded_by(unit, node, self.known(function, site))

    def _leaves_out(self, unit: Unit, around: cst.CSTNode, below: cst.CSTNode, given: Given) -> bool:
        if isinstance(around, cst.BooleanOperation) and below is around.right:
            return self._truth(unit, around.left, given) is isinstance(around.operator, cst.Or)
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
        told = each_of(is_true, self._values(unit, test, given))
        return bool(next(iter(told))) if told is not None and len(told) == 1 else None

    def _values(self, unit: Unit, node: cst.CSTNode, given: Given) -> Values:
        if given:
            if node in self._active:
                return None  # what depends on itself is not known
            self._active.add(node)
            try:
                return few(self._evaluated(unit, node, given))
            finally:
                self._active.discard(node)
        if node not in self._known:
            self._known[node] = None  # what depends on itself is not known
            self._known[node] = few(self._evaluated(unit, node, given))
        return self._known[node]

    def _evaluated(self, unit: Unit, node: cst.CSTNode, given: Given) -> Values:
        if isinstance(node, cst.SimpleString):
            return frozenset({Text(str(node.evaluated_value))})
        if isinstance(node, cst.Integer):
            return frozenset({node.evaluated_value})
        if isinstance(node, cst.Float):
            return frozenset({node.evaluated_value})
        if isinstance(node, cst.FormattedString) and node.parts:
            last = node.parts[-1]
            return frozenset({Text(last.value, False)}) if isinstance(last, cst.FormattedStringText) else None
        if isinstance(node, cst.Name):
            return frozenset({_NAMED[node.value]}) if node.value in _NAMED else self._variable(unit, node, given)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            told = each_of(is_true, self._values(unit, node.expression, given))
            return each_of(lambda value: frozenset({not value}), told)
        if isinstance(node, cst.BooleanOperation):
            return self._joined(unit, node, given)
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            return self._compared(unit, node, given)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (cst.Add, cst.Divide)):
            return each_of(ending, self._values(unit, node.right, given))
        if isinstance(node, cst.IfExp):
            truth = self._truth(unit, node.test, given)
            taken = [side for side, when in ((node.body, True), (node.orelse, False)) if truth is not (not when)]
            return union(self._values(unit, side, given) for side in taken)
        if isinstance(node, cst.Attribute):
            return self._attribute(unit, node, given)
        if isinstance(node, cst.Subscript):
            return self._looked_up(unit, node, given)
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
            same = [is_same(value, each) for each in rest]
            if None in same and True not in same:
                return None
            found.add((True in same) is not denies)
        return frozenset(found)

    def _called(self, unit: Unit, call: cst.Call, given: Given) -> Values:
        record = self._state.calls.get(call)
        plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
        if record is None or len(plain) != len(call.args):
            return None
        name = outside_name(record)
        if name in JOINS_PATHS and plain:
            return each_of(ending, self._values(unit, plain[-1], given))
        if name == "os.path.basename" and plain:
            return each_of(last_part, self._values(unit, plain[0], given))
        if name == "builtins.len" and len(plain) == 1:
            return self._length(unit, plain[0])
        if method_name(call) == "endswith" and isinstance(call.func, cst.Attribute) and len(plain) == 1:
            texts, ends = self._values(unit, call.func.value, given), self._values(unit, plain[0], given)
            return each_of(lambda end: each_of(lambda text: ends_in(text, end), texts), ends)
        return self._helped(call, given)

    def _length(self, unit: Unit, node: cst.BaseExpression) -> Values:
        """How many elements a list or a tuple has that is written out."""
        entries = self._written.entries(unit, node)
        if entries is None or not all(entry.certain and isinstance(entry.key, int) for entry in entries):
            return None
        return frozenset({len(entries)})

    def _helped(self, call: cst.Call, given: Given) -> Values:
        """What a function of the program returns that does nothing else."""
        functions = self._reach.called(call)
        function = functions[0] if len(functions) == 1 else None
        if not isinstance(function, cst.FunctionDef) or self._depth >= MOST:
            return None
        home = self._reach.unit(function)
        statements = [s for s in function.body.body if not is_docstring(s)]
        only = statements[0] if len(statements) == 1 else None
        small = only.body[0] if isinstance(only, cst.SimpleStatementLine) else only
        if not isinstance(small, cst.Return) or small.value is None:
            return None
        handed = self._given(home, function, self._state.calls[call], given)
        self._depth += 1
        try:
            return self._values(home, small.value, handed)
        finally:
            self._depth -= 1

    def _given(self, home: Unit, function: cst.FunctionDef, site: CallRecord, given: Given) -> Given:
        """What a call gives to the parameters of a function."""
        handed: dict[cst.Param, Values] = {}
        for param in (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params):
            argument = argument_for(home, function, param, site)
            default = self._values(home, param.default, {}) if param.default is not None else None
            starred = any(arg.star for arg in site.node.args)
            if argument is not None:
                handed[param] = self._values(site.unit, argument, given)
            else:
                handed[param] = None if starred else default
        return handed

    def _variable(self, unit: Unit, name: cst.Name, given: Given) -> Values:
        binding = unit.names.binding(name)
        if binding is None:  # in a condition that no code has: a parameter of the function that is asked about
            asked = () if name in unit.names.within else given.items()
            return next((values for param, values in asked if param.name.value == name.value), None)
        definitions = unshadowed(unit.names, binding, name) or tuple(binding.definitions)
        found = [one for one in definitions if not self.excludes(unit, one)]
        if given:
            found = [
                one for one in found if not any(self._leaves_out(unit, *p, given) for p in unit.names.outwards(one))
            ]
        return union(self._defined(unit, definition, given) for definition in found)

    def _defined(self, unit: Unit, definition: cst.CSTNode, given: Given) -> Values:
        """What a definition gives to its variable."""
        parent = unit.names.parents.get(definition)
        for param in (definition, parent):
            if isinstance(param, cst.Param):
                return given[param] if param in given else self._handed(unit, param)
        if isinstance(definition, cst.ImportAlias):
            module, _, name = imported(unit, definition).rpartition(".")
            return self._of_module(module, name)
        assign = unit.names.parents.get(parent) if isinstance(parent, cst.AssignTarget) else parent
        if isinstance(assign, (cst.Assign, cst.AnnAssign)) and assign.value is not None:
            return self._values(unit, assign.value, given)
        value = unpacked_value(unit.names, definition)
        return self._values(unit, value, given) if value is not None else None

    def _of_module(self, module: str, name: str) -> Values:
        """What a variable at the top of a module of the program may be."""
        unit = unit_named(self._state, module)
        binding = unit.names.scope.bindings.get(name) if unit is not None else None
        if unit is None or binding is None or not binding.definitions:
            return None
        return union(self._defined(unit, definition, {}) for definition in binding.definitions)

    def _attribute(self, unit: Unit, node: cst.Attribute, given: Given) -> Values:
        """``self.reduction``, ``config.REDUCTION``: what is set under this name, for each thing that has it."""
        slot = self._state.values.get(node.value)
        things = list(slot.things) if slot is not None else []
        known = any(isinstance(thing, (External, Instance, Origin)) for thing in things)
        return union(self._kept(thing, node.attr.value) for thing in things) if known else self._option_of(node)

    def _option_of(self, node: cst.Attribute) -> Values:
        """What an option of the command line may be: anything."""
        return None

    def _kept(self, thing: Thing, name: str) -> Values:
        if isinstance(thing, External):
            return self._of_module(thing.qualified, name)
        klass = self._fields.klass(thing)
        writes = self._fields.writes(thing, name)
        if None in writes:
            return None
        init = klass.method("__init__") if klass is not None else None
        made = self._state.calls.get(thing.node) if isinstance(thing, (Instance, Origin)) else None  # type: ignore[call-overload]
        found: list[Values] = []
        begun = False
        for unit, value in filter(None, writes):
            at_birth = init is not None and made is not None and unit.names.function(value) is init.node
            begun |= init is not None and unit.names.function(value) is init.node
            found.append(self._values(unit, value, self.handed(init.node, made) if at_birth else {}))  # type: ignore[union-attr,arg-type]
        if klass is not None and not begun and (not found or _declares(klass, name)):
            found.append(self._declared(klass, name, made))
        return union(found) if found else None

    def _declared(self, klass: Klass, name: str, made: CallRecord | None) -> Values:
        """What the body of a class says of an attribute: a field of a data class is what its constructor is given."""
        binding = klass.unit.names.scopes[klass.node].bindings.get(name)
        if binding is None or len(binding.definitions) != 1:
            return self._declared(klass.bases[0], name, made) if len(klass.bases) == 1 else None
        if is_dataclass(klass):
            fields = [s.target.value for s in annotated(klass) if isinstance(s.target, cst.Name)]
            place = fields.index(name) if name in fields and not klass.bases else None
            given = self.argument(made.unit, made.node, name, place) if made is not None else None
            if given is None or given:
                return given
        return self._defined(klass.unit, binding.definitions[0], {})

    def _looked_up(self, unit: Unit, node: cst.Subscript, given: Given) -> Values:
        """``CONFIG["reduction"]``, of what is written out."""
        index = node.slice[0].slice if len(node.slice) == 1 else None
        written = self._written.entries(unit, node.value) if isinstance(index, cst.Index) else None
        keys = self._values(unit, index.value, given) if isinstance(index, cst.Index) and written is not None else None
        if written is None or keys is None:
            return None
        return union(self._entry(written, key, given) or None for key in keys)

    def _entry(self, entries: Iterable[WrittenEntry], key: Value, given: Given) -> Values:
        """What is under a key; the empty set if nothing is."""
        first: Values = frozenset()
        later: list[Values] = []
        for entry in entries:
            word = entry.key
            keys = frozenset({word}) if isinstance(word, int) else self._values(entry.unit, word, {})
            if keys is None:
                return None
            if key in keys:
                value = self._values(entry.unit, entry.value, {})
                if entry.certain and len(keys) == 1:
                    first, later = value, []
                else:
                    later.append(value)
        if not later:
            return first
        return None if first == frozenset() else union([first, *later])

    def _handed(self, unit: Unit, param: cst.Param) -> Values:
        """What the calls of a function give to a parameter."""
        function = unit.names.parents.get(unit.names.parents.get(param, param))
        if not isinstance(function, cst.FunctionDef) or function in self._state.escaped:
            return None
        found: list[Values] = []
        for site in self._reach.reached_sites(function):
            if self.never(site.unit, site.node):
                continue
            argument = argument_for(unit, function, param, site)
            default = self._values(unit, param.default, {}) if param.default is not None else None
            if argument is not None:
                found.append(self._values(site.unit, argument, {}))
            else:
                found.append(self._option(param.name.value, default, site, frozenset()))
        return union(found) if found else None

    def _option(self, name: str, default: Values, site: CallRecord, seen: frozenset[Code]) -> Values:
        """What a call gives by a keyword: also by ``**options``, as the callers of the function around it gave them."""
        given, stars = keyword(site.node, name), [arg for arg in site.node.args if arg.star]
        if given is not None or not stars:
            return self._values(site.unit, given, {}) if given is not None else default
        around = site.unit.names.function(site.node)
        if not isinstance(around, cst.FunctionDef) or around in seen or around in self._state.escaped:
            return None
        if len(stars) > 1 or not _hands_on(site.unit, around, stars[0]):
            return None
        if any(each.name.value == name for each in parameters(around)):
            return default  # it is not among the options
        sites = [each for each in self._reach.reached_sites(around) if not self.never(each.unit, each.node)]
        return union(self._option(name, default, each, seen | {around}) for each in sites) if sites else None


def _declares(klass: Klass, name: str) -> bool:
    """Whether the body of a class, or of one that it inherits from, says something of an attribute."""
    return name in klass.unit.names.scopes[klass.node].bindings or any(_declares(base, name) for base in klass.bases)


class UsualValues(ConstantValues):
    """The same for a run whose command line gives no options: they have their defaults."""

    def _option_of(self, node: cst.Attribute) -> Values:
        found = [
            self._values(unit, default, {})
            for unit in self._reach.units
            for call in unit.names.calls
            if (default := keyword(call, "default")) is not None and option(call) == node.attr.value
        ]
        return union(found) if found else None


def constants_of(state: State, usual: bool = False) -> ConstantValues:
    """
    The constants of a solved program: one for all that ask.

    Args:
        state: the program.
        usual: options of the command line have their defaults; without, they may be anything.
    """
    kind = UsualValues if usual else ConstantValues
    return state.once(kind, lambda: kind(state, reach_of(state)))


def _hands_on(unit: Unit, function: cst.FunctionDef, star: cst.Arg) -> bool:
    """Whether ``**options`` are those that a function was called with, and nothing else."""
    options = function.params.star_kwarg
    if options is None or star.star != "**" or not isinstance(star.value, cst.Name):
        return False
    binding = unit.names.binding(star.value)
    return binding is not None and binding.name == options.name.value and binding.reads == [star.value]
