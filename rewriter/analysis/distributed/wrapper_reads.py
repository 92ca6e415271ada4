"""What a script reads of a wrapper's structure: it has one child, ``module``, and its names begin with that."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.placement import WrapperRead
from ...facts.torch_api import process_calls, questions
from ..dataflow.call_binding import argument_for
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import CallRecord, External, State, Unit, Wrapped
from ..syntax.nodes import FunctionNode, is_docstring
from ..syntax.walk import descendants, nodes_in
from .tracing import Tracer

_CHILDREN = frozenset({"children", "named_children"})
_NAMES = frozenset({"named_parameters", "named_buffers", "named_modules"})
_KEYS = "state_dict"
_PREFIX = "module"


class WrapperReads:
    """Answers for one program."""

    def __init__(self, state: State, reach: Reach, wrappers: frozenset[str]) -> None:
        """``wrappers``: the full names of those that are removed."""
        self.state, self.reach, self.wrappers = state, reach, wrappers
        self.tracer = Tracer(state, reach)

    def of(self, unit: Unit) -> Iterator[WrapperRead]:
        """The calls of a module whose result is another one without the wrapper."""
        for call in unit.names.calls if self.wrappers else ():
            asked = method_name(call)
            if asked not in _CHILDREN | _NAMES | {_KEYS} or not isinstance(call.func, cst.Attribute):
                continue
            if unit.names.function(call) not in self.reach.reachable or self._for_wrappers(unit, call):
                continue
            certain = self.wraps(unit, call.func.value)
            if certain is False:
                continue
            use = None if asked in _CHILDREN else self._use(unit, call, certain is True)
            if asked in _CHILDREN or use is not None:
                yield WrapperRead(call, asked, certain is True, use, self._at_once(unit, call))

    def only_for_wrappers(self, unit: Unit) -> Iterator[cst.CSTNode]:
        """The statements that call a function which begins with the demand for a wrapper, and takes one:
        ``assert isinstance(model, nn.DataParallel)``. Without one they do nothing, or fail."""
        for call in unit.names.calls if self.wrappers else ():
            if isinstance(unit.names.parents.get(call), cst.Expr) and (functions := self.reach.called(call)):
                if all(self._demands(function, self.state.calls[call]) for function in functions):
                    yield unit.names.statement(call)

    def _demands(self, function: FunctionNode, site: CallRecord) -> bool:
        if not isinstance(function, cst.FunctionDef):
            return False
        home = self.reach.unit(function)
        first = next((line for line in function.body.body if not is_docstring(line)), None)
        small = first.body[0] if isinstance(first, cst.SimpleStatementLine) else None
        test = small.test if isinstance(small, cst.Assert) else None
        if not isinstance(test, cst.Call) or method_name(test) != "isinstance" or len(test.args) != 2:
            return False
        asked, kind = test.args[0].value, self.state.values.get(test.args[1].value)
        wanted = [thing.qualified for thing in (kind.things if kind is not None else ()) if isinstance(thing, External)]
        binding = home.names.binding(asked) if isinstance(asked, cst.Name) else None
        param = next((d for d in binding.definitions if isinstance(d, cst.Param)), None) if binding else None
        given = argument_for(home, function, param, site) if param is not None else None
        wraps = bool(wanted) and all(map(process_calls.is_wrapper, wanted))
        return wraps and given is not None and self.wraps(site.unit, given) is not False

    def _for_wrappers(self, unit: Unit, call: cst.Call) -> bool:
        """Whether a call only runs where the object is found to be a wrapper, or to have ``.module``."""
        around = [a.test for a in unit.names.enclosing(call, cst.If, cst.IfExp)]
        asking = (n for test in around for n in nodes_in(test, cst.Call))
        return any(method_name(each) in ("isinstance", "hasattr") for each in asking)

    def wraps(self, unit: Unit, node: cst.BaseExpression) -> bool | None:
        """Whether a model is in one of the wrappers there; None if it may be."""
        slot = self.state.values.get(node)
        held = [thing.node for thing in slot.things if isinstance(thing, Wrapped)] if slot is not None else []
        if not any(outside_name(self.state.calls[wrapper]) in self.wrappers for wrapper in held):
            return False
        told: set[bool | None] = set()
        pending, seen = [(unit, node)], set[cst.CSTNode]()
        while pending:
            for source in self.tracer.sources(*pending.pop()):
                each = source.node
                record = self.state.calls.get(each) if isinstance(each, cst.Call) else None
                if each in seen:
                    continue
                seen.add(each)
                name = outside_name(record) if record is not None else ""
                if name in self.wrappers:
                    told.add(True)
                elif record is not None and isinstance(record.node.func, cst.Attribute) and not name:
                    same = method_name(record.node) in questions.keeps_module()
                    told.update(() if same else (None,))
                    pending += [(source.unit, record.node.func.value)] if same else []
                else:
                    told.add(False if record is not None and source.known else None)
        return told.pop() if len(told) == 1 else None

    def _at_once(self, unit: Unit, call: cst.Call) -> bool:
        """Whether a result is iterated, or made a list of, where it is asked for."""
        above = unit.names.parents.get(call)
        outer = unit.names.parents.get(above) if isinstance(above, cst.Arg) else None
        if isinstance(outer, cst.Call) and outer in self.state.calls:
            return outside_name(self.state.calls[outer]) in _KEEP
        return isinstance(above, (cst.For, cst.CompFor))

    # How names are used -----------------------------------------------------------------------------------------------

    def _use(self, unit: Unit, call: cst.Call, certain: bool) -> cst.CSTNode | None:
        """The first use of the names that depends on how they begin; where it is not certain that they had the prefix,
        one that expects it."""
        uses = self._uses(unit, call, set())
        return next((use for use in uses if certain or any(_expects(part) for part in descendants(use))), None)

    def _uses(self, unit: Unit, held: cst.CSTNode, seen: set[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        """The uses of the names that something holds: the result of a call, or a variable with it."""
        above = unit.names.parents.get(held)
        if held in seen or above is None:
            return
        seen.add(held)
        if isinstance(above, cst.Arg):
            outer = unit.names.parents.get(above)
            record = self.state.calls.get(outer) if isinstance(outer, cst.Call) else None
            name = outside_name(record) if record is not None else ""
            if record is not None and (name in _KEEP or questions.passes(name)):
                yield from self._uses(unit, record.node, seen)
        elif isinstance(above, cst.Attribute) and above.attr.value in ("items", "keys"):
            outer = unit.names.parents.get(above)
            yield from self._uses(unit, outer, seen) if isinstance(outer, cst.Call) else ()
        elif isinstance(above, cst.Subscript):
            yield from [above] if any(_expects(part) for each in above.slice for part in descendants(each)) else ()
        elif isinstance(above, cst.ComparisonTarget):
            comparison = unit.names.parents.get(above)
            yield from [comparison] if comparison is not None else ()
        elif isinstance(above, cst.Assign):
            for target in above.targets:
                for read in _reads(unit, target.target):
                    yield from self._uses(unit, read, seen)
        elif isinstance(above, (cst.For, cst.CompFor)) and above.iter is held:
            for read in _reads(unit, _first(above.target)):
                if (use := self._begin(unit, read)) is not None:
                    yield use

    def _begin(self, unit: Unit, name: cst.Name) -> cst.CSTNode | None:
        """What is made of a name, where it depends on how the name begins."""
        above = unit.names.parents.get(name)
        outer = unit.names.parents.get(above) if above is not None else None
        if isinstance(above, cst.Attribute) and isinstance(outer, cst.Call):
            if above.attr.value == "startswith":
                return outer if not _strips(outer) else None
            part = unit.names.parents.get(outer)
            parted = above.attr.value in ("split", "partition") and part is not None
            return part if parted and _counts_from_start(part) else None
        if isinstance(above, cst.Subscript) and above.value is name:
            tests = (a.test for a in unit.names.enclosing(name, cst.If, cst.IfExp))
            stripped = any(_strips(n) for test in tests for n in nodes_in(test, cst.Call))
            return above if _counts_from_start(above) and not stripped else None
        if isinstance(above, cst.Comparison) and above.left is name:
            return above
        if isinstance(above, cst.Arg) and isinstance(outer, cst.Call) and outer in self.state.calls:
            return outer if outside_name(self.state.calls[outer]) in ("re.match", "re.fullmatch") else None
        return None


_KEEP = frozenset(f"builtins.{name}" for name in ("dict", "enumerate", "iter", "list", "reversed", "sorted", "tuple"))
"""What gives the same names again."""


def _reads(unit: Unit, target: cst.CSTNode) -> list[cst.Name]:
    binding = unit.names.binding(target) if isinstance(target, cst.Name) else None
    return binding.reads if binding is not None else []


def _first(target: cst.CSTNode) -> cst.CSTNode:
    """Where a loop keeps the name of ``name, value``, also of ``i, (name, value)``."""
    if not isinstance(target, cst.Tuple):
        return target
    pair = next((each.value for each in target.elements if isinstance(each.value, cst.Tuple)), None)
    return _first(pair) if pair is not None else target.elements[0].value


def _expects(node: cst.CSTNode) -> bool:
    """Whether a text begins with the prefix, or a number is its length."""
    if isinstance(node, cst.Integer):
        return node.evaluated_value == len(f"{_PREFIX}.")
    text = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return isinstance(text, str) and (text == _PREFIX or text.startswith(f"{_PREFIX}."))


def _strips(call: cst.Call) -> bool:
    """Whether a call asks for the prefix and nothing else, as what takes it off does: names without it stay."""
    given = call.args[0].value if method_name(call) == "startswith" and len(call.args) == 1 else None
    text = given.evaluated_value if isinstance(given, cst.SimpleString) else None
    return text in (_PREFIX, f"{_PREFIX}.")


def _counts_from_start(item: cst.CSTNode | None) -> bool:
    """Whether an expression is an item or a slice that is counted from the start."""
    if not isinstance(item, cst.Subscript):
        return False
    first = item.slice[0].slice
    start = first.lower if isinstance(first, cst.Slice) else first.value if isinstance(first, cst.Index) else None
    return start is not None and not isinstance(start, cst.UnaryOperation)
