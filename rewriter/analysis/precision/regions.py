"""Autocast regions: their calls, what they ask for, the blocks that they are entered by, and their switches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.modules import taken
from ..dataflow.values import CallRecord, External, State, Unit
from ..syntax.scopes import Binding
from .switches import Switch

_TYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
_NOTHING = "contextlib.nullcontext"


@dataclass(eq=False)
class Region:
    """One call of autocast, and what comes of it where the accelerator takes over."""

    record: CallRecord
    mode: str
    """``bf16``, ``fp16``, or the empty string where the script leaves it to torch."""
    switches: list[Switch] = field(default_factory=list)
    items: list[tuple[Unit, cst.WithItem]] = field(default_factory=list)
    """Where it is entered: an item of a ``with``."""
    entered: list[tuple[Unit, cst.BaseExpression]] = field(default_factory=list)
    """Expressions that give way to ``accelerator.autocast()``."""
    made: list[tuple[Unit, cst.BaseExpression]] = field(default_factory=list)
    """Expressions that give way to ``accelerator.autocast``, which makes one at each call."""
    removed: list[tuple[Unit, cst.CSTNode]] = field(default_factory=list)
    """Statements that only made a region, to be entered later."""


def find_regions(state: State, reach: Reach) -> tuple[list[Region], bool]:
    """The regions of the code that runs; and whether all of them are understood."""
    reader = _RegionReader(state, reach)
    return reader.regions(), reader.clear


class _RegionReader:
    """Follows each call of autocast to the blocks that it stands for."""

    def __init__(self, state: State, reach: Reach) -> None:
        self.state, self.reach = state, reach
        self.clear = True

    def regions(self) -> list[Region]:
        partials = [r for r in self.state.calls.values() if self._is_partial(r)]
        later = {site for record in partials for site in self._calls_of(record)}
        found = []
        for record in self.state.calls.values():
            direct = questions.is_autocast(outside_name(record)) and record.node not in later
            if not direct and record not in partials:
                continue
            code = self.reach.function_of(record.node)
            if not direct or code in self.reach.reachable:
                found.append(self._region(record, record in partials))
            elif isinstance(code, cst.FunctionDef) and code.decorators:
                self.clear = False
        return found

    def _region(self, record: CallRecord, partial: bool) -> Region:
        called = self._called(record)
        given = _given(record.node.args[1:] if partial else record.node.args, called)
        region = Region(record, _mode(given or {}, called))
        enabled = (given or {}).get("enabled")
        if enabled is not None and not (isinstance(enabled, cst.Name) and enabled.value == "True"):
            region.switches.append(Switch(record.unit, enabled))
        known = self._partial(region) if partial else self._expression(region, record.node)
        self.clear = self.clear and known and given is not None
        return region

    def _called(self, record: CallRecord) -> str:
        names = [t.qualified for t in record.first.things if isinstance(t, External)] if record.first else []
        return names[0] if self._is_partial(record) and names else outside_name(record)

    def _is_partial(self, record: CallRecord) -> bool:
        """Whether a call is ``functools.partial(torch.autocast, ...)``."""
        if outside_name(record) != "functools.partial" or record.first is None:
            return False
        return any(isinstance(t, External) and questions.is_autocast(t.qualified) for t in record.first.things)

    def _expression(self, region: Region, node: cst.BaseExpression) -> bool:
        """Follow an expression that gives a region to where it is entered; False where that is not known."""
        unit = region.record.unit
        parent = unit.names.parents.get(node)
        if isinstance(parent, cst.IfExp) and parent.test is not node:
            other = parent.orelse if parent.body is node else parent.body
            if not self._is_nothing(other):
                return False
            region.switches.append(Switch(unit, parent.test, parent.body is node))
            node, parent = parent, unit.names.parents.get(parent)
        if isinstance(parent, cst.WithItem):
            region.entered.append((unit, node))
            return self._enters(region, unit, node)
        if isinstance(parent, cst.AssignTarget):
            return False
        if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
            return self._variable(region, unit, parent)
        if isinstance(parent, (cst.Return, cst.Lambda)):
            region.entered.append((unit, node))
            return self._factory(region, unit, parent)
        return False

    def _enters(self, region: Region, unit: Unit, node: cst.BaseExpression) -> bool:
        """Whether an expression is an item of a ``with``, by which the region is entered."""
        item = unit.names.parents.get(node)
        if not isinstance(item, cst.WithItem) or item.asname is not None:
            return False
        region.items.append((unit, item))
        return True

    def _is_nothing(self, node: cst.CSTNode) -> bool:
        record = self.state.calls.get(node) if isinstance(node, cst.Call) else None
        return record is not None and outside_name(record) == _NOTHING and not record.node.args

    def _variable(self, region: Region, unit: Unit, assign: cst.Assign) -> bool:
        """``ctx = autocast(...)``, entered by ``with ctx:``."""
        found = self._binding(unit, assign)
        if found is None or not self._only_made(region, unit, assign, found):
            return False
        for read in found.reads:
            region.entered.append((unit, read))
            if not self._enters(region, unit, read):
                return False
        return True

    def _binding(self, unit: Unit, assign: cst.Assign) -> Binding | None:
        """The variable that an assignment makes, where its readers are all known."""
        target = assign.targets[0].target
        found = unit.names.binding(target) if isinstance(target, cst.Name) else None
        return found if found is not None and found.name not in taken(self.state, unit) else None

    def _only_made(self, region: Region, unit: Unit, assign: cst.Assign, binding: Binding) -> bool:
        """Whether a variable holds nothing but a region, or nothing in its place under the other condition."""
        statement = unit.names.statement(assign)
        made = [unit.names.statement(d) for d in binding.definitions]
        region.removed += [(unit, s) for s in made]
        if made == [statement]:
            return True
        around = [unit.names.parents.get(unit.names.block(s)) for s in made]
        test = next((a for a in around if isinstance(a, cst.If)), None)
        if len(made) != 2 or test is None or not isinstance(test.orelse, cst.Else) or test.orelse not in around:
            return False
        region.switches.append(Switch(unit, test.test, unit.names.parents.get(unit.names.block(statement)) is test))
        other = next(s for s in made if s is not statement)
        small = other.body[0] if isinstance(other, cst.SimpleStatementLine) and len(other.body) == 1 else None
        return isinstance(small, cst.Assign) and self._is_nothing(small.value)

    def _factory(self, region: Region, unit: Unit, giver: cst.Return | cst.Lambda) -> bool:
        """A function or a lambda that gives a region, entered by ``with region():``."""
        function = giver if isinstance(giver, cst.Lambda) else unit.names.function(giver)
        if not isinstance(function, (cst.FunctionDef, cst.Lambda)) or function in self.state.escaped:
            return False
        if isinstance(function, cst.FunctionDef) and len(unit.names.returns.get(function, ())) != 1:
            return False
        if isinstance(function, cst.FunctionDef) and function.decorators:
            return False  # a property is read, and nobody sees where
        sites = self.reach.sites(function)
        calls = all(self._enters(region, u, s) for u, s in self._located(sites))
        return bool(sites) and calls and self._only_called(unit, function)

    def _only_called(self, unit: Unit, function: cst.FunctionDef | cst.Lambda) -> bool:
        """Whether a function is never used as a value."""
        if isinstance(function, cst.Lambda):
            assign = unit.names.parents.get(function)
            binding = self._binding(unit, assign) if isinstance(assign, cst.Assign) else None
            return binding is not None and len(binding.definitions) == 1 and _called_only(unit, binding)
        binding = unit.names.within[function].bindings.get(function.name.value)
        return binding is not None and len(binding.definitions) == 1 and _called_only(unit, binding)

    def _partial(self, region: Region) -> bool:
        """``region = partial(torch.autocast, ...)``, entered by ``with region():``."""
        unit, node = region.record.unit, region.record.node
        region.made.append((unit, node))
        assign = unit.names.parents.get(node)
        binding = self._binding(unit, assign) if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
        if binding is None or len(binding.definitions) != 1 or not _called_only(unit, binding):
            return False
        sites = self._calls_of(region.record)
        bare = all(isinstance(s, cst.Call) and not s.args for s in sites)
        return bool(sites) and bare and all(self._enters(region, unit, s) for s in sites)

    def _calls_of(self, record: CallRecord) -> list[cst.Call]:
        """The calls of what ``partial`` made, by the variable that holds it."""
        names = record.unit.names
        assign = names.parents.get(record.node)
        target = assign.targets[0].target if isinstance(assign, cst.Assign) else None
        binding = names.binding(target) if isinstance(target, cst.Name) else None
        calls = [names.parents.get(read) for read in binding.reads] if binding is not None else []
        return [call for call in calls if isinstance(call, cst.Call)]

    def _located(self, sites: tuple[cst.Call, ...]) -> Iterator[tuple[Unit, cst.Call]]:
        for site in sites:
            yield self.state.calls[site].unit, site


def _called_only(unit: Unit, binding: Binding) -> bool:
    parents = [(unit.names.parents.get(read), read) for read in binding.reads]
    return all(isinstance(call, cst.Call) and call.func is read for call, read in parents)


def _mode(given: Mapping[str, cst.BaseExpression], called: str) -> str:
    value = given.get("dtype")
    if value is None:
        return "fp16" if ".cuda." in called else "bf16" if ".cpu." in called else ""
    return _TYPES.get(value.attr.value, "?") if isinstance(value, cst.Attribute) else "?"


def _given(args: Sequence[cst.Arg], called: str) -> dict[str, cst.BaseExpression] | None:
    """The arguments of autocast by name; None where they are more than a device, a type and a switch."""
    own = ".cuda." in called or ".cpu." in called  # the older ones of a device's own come without it
    places = ("enabled", "dtype") if own else ("device_type", "dtype", "enabled")
    found: dict[str, cst.BaseExpression] = {}
    for place, arg in enumerate(args):
        if arg.star or (arg.keyword is None and place >= len(places)):
            return None
        found[arg.keyword.value if arg.keyword is not None else places[place]] = arg.value
    return found if found.keys() <= {"device_type", "dtype", "enabled"} else None
