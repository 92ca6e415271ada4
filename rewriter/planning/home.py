"""Where the accelerator is created: in place of the device's definition, or before the first code that needs it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.command_lines import option
from ..analysis.dataflow.modules import starred
from ..analysis.dataflow.program_flow import choice_around
from ..analysis.dataflow.values import State, Unit
from ..analysis.devices.availability import said_before
from ..analysis.devices.device_fields import DeviceField
from ..analysis.devices.device_flags import Flag
from ..analysis.devices.device_names import DeviceName, condition_of_branches, cpu_condition
from ..analysis.devices.former_devices import Former, former_devices, found_by
from ..analysis.distributed.init_sites import Start
from ..analysis.layouts.swallowed_errors import ends_all
from ..analysis.syntax.definitions import attribute_assignments, bindings_value
from ..analysis.syntax.nodes import is_docstring, names_read
from ..analysis.syntax.scopes import Binding
from ..analysis.syntax.walk import descendants, nodes_in
from ..facts.accelerator import Home, Prepare, Side
from .accelerator_path import Way
from .holders import Holders
from .known_names import KnownNames

_CHOSEN = "the accelerator is created where the device is chosen"
_BRANCHES = "the accelerator is created before the branches that choose the device"
_DEFAULTS = frozenset({"torch.set_default_device", "torch.set_default_tensor_type"})


@dataclass(eq=False, kw_only=True)
class Homes:
    """Finds the home of the accelerator: what the search looks at."""

    state: State
    reach: Reach
    holders: Holders
    devices: list[tuple[Unit, DeviceName]]
    name: str
    """The accelerator's name."""
    starts: Sequence[Start] = ()
    """Where a script that distributes itself joins its processes."""
    constructor: tuple[tuple[str, str], ...] = ()
    """Further arguments of the accelerator."""
    lent: Container[Binding] = ()
    """Device variables that other modules read."""
    fields: Sequence[DeviceField] = ()
    """Attributes that are given the device."""
    marked: frozenset[cst.CSTNode] = frozenset()
    """Calls that are edited themselves."""
    flag: Flag | None = None
    """The condition under which a script that names no device keeps to the CPU."""
    moves: bool = False
    """The script moves something to a device."""
    placing: tuple[Code, ...] = ()
    """Code that names a device, or moves something to one."""
    reads: frozenset[str] = frozenset()
    """Further names that the constructor's arguments read."""
    stamps: frozenset[Code] = frozenset()
    """Code in which all processes must name something the same, with the accelerator made before."""

    @cached_property
    def _known(self) -> KnownNames:
        """What the names of the constructor's arguments mean in some code, and from where on."""
        return KnownNames(self.reach)

    def find(
        self, needs: dict[Code, None], anchor: Code | None, prepares: list[Prepare], way: Way
    ) -> tuple[Unit, Code] | None:
        """The code in which the accelerator is created. Which statement creates it is recorded in ``way``."""
        above = self.reach.above(anchor)
        joined = self._joined(above, prepares, way)
        if joined is not None:
            way.joins = True
            way.home = joined
            return joined[0], joined[0].names.function(joined[1].node)
        chosen = self._chosen(above, needs, prepares, way)
        if chosen is not None:
            return chosen
        if anchor is None:
            return None
        unit = self.reach.unit(anchor)
        body = anchor.body if isinstance(anchor, cst.FunctionDef) else anchor
        first = self._first_use(unit, list(getattr(body, "body", ())), needs, prepares)
        if first is None:
            return None
        behind = any(first is p.node and p.side is Side.AFTER and p.wraps is None for p in prepares)
        within = any(first in unit.names.ancestors(p.node) for p in prepares)
        side = Side.AFTER if behind and not within and not self._runs_need(unit, first, needs) else Side.BEFORE
        unnamed = not (self.moves or self.devices or self.fields or self._has_default())
        because = f"the accelerator is created before its first use{'; the script names no device' if unnamed else ''}"
        way.home = (unit, Home(first, side, (), because, ran_on="cpu" if unnamed else ""))
        flagged = self._flagged(unit, anchor, first, prepares)
        if flagged is not None:
            way.home = (unit, flagged)
        return unit, anchor

    def _has_default(self) -> bool:
        """Whether the script says on which device tensors are made that are given none."""
        return any(outside_name(record) in _DEFAULTS for record in self.state.calls.values())

    def _chosen(
        self, among: Sequence[Code], needs: dict[Code, None], prepares: list[Prepare], way: Way, *, built: bool = False
    ) -> tuple[Unit, Code] | None:
        """The code among some that chooses the device; ``built``: constructors, where what is kept says the choice."""
        for unit, name in self.devices:
            code = owner(name)
            if code in among and name.definitions:
                home = self._kept_on_cpu(self._instead(unit, name, needs, prepares))
                if not self._late(unit, code, home, prepares):
                    way.home = (unit, home)
                    return unit, code
        for field_ in self.fields:
            if field_.code in among and field_.code in self.reach.reachable and not self._is_open(field_):
                home = self._kept_on_cpu(self._beside(field_, needs, prepares))
                if built and not home.arguments:
                    home = self._asked_of(field_, prepares) or home
                if not self._late(field_.unit, field_.code, home, prepares):
                    way.home = (field_.unit, home)
                    return field_.unit, field_.code
        return None

    def _kept_on_cpu(self, home: Home) -> Home:
        """The home, for objects that work on the CPU alone, whatever device the script names beside."""
        flag = self.flag
        always = flag is not None and flag.kept and flag.settled and flag.text == "True"
        return home._replace(arguments=(("cpu", "True"),)) if always and not home.arguments else home

    def _asked_of(self, field_: DeviceField, prepares: list[Prepare]) -> Home | None:
        """The home after a constructor has kept the device, where that says whether the CPU is meant."""
        flag, target = self.flag, field_.target
        same = flag is not None and flag.kept and isinstance(flag.test, cst.Attribute)
        if flag is None or not same or not target.deep_equals(flag.test.with_changes(lpar=[], rpar=[])):
            return None
        here = replace(self, flag=flag._replace(unit=field_.unit))
        found = here._flagged(field_.unit, field_.code, field_.statement, prepares, ends=True)
        return found if found is not None and found.arguments else None

    def constructed(self, way: Way, needs: dict[Code, None], prepares: list[Prepare]) -> Way:
        """A home in the constructor that keeps the device, for objects whose methods the training runs in; none where
        there is no such constructor."""
        found = Way()
        if way.home is not None and not way.joins:
            code = way.home[0].names.function(way.home[1].node)
            self._chosen(self._constructors(self.reach.above(code)), needs, prepares, found, built=True)
        return found

    def higher(self, way: Way, code: Code, needs: dict[Code, None], prepares: list[Prepare]) -> Way:
        """A home in code that calls that of the home of a way; none where it cannot be there."""
        assert way.home is not None
        found, (below, home) = Way(), way.home
        unit, lower = self.reach.unit(code), below.names.function(home.node)
        if way.joins:
            return found
        body = code.body if isinstance(code, cst.FunctionDef) else code
        block = list(getattr(body, "body", ()))
        first = self._first_use(unit, block, needs, prepares)
        top = isinstance(code, cst.Module) and not self.reads and (bool(home.gives) or not home.arguments)
        if first is not None and top and home.side is not Side.INSTEAD and not home.removed:
            flagged = self._flagged(unit, code, first, prepares)
            if flagged is not None:  # the module knows the flag, whether the code below does or not
                found.home = (unit, flagged)
                found.handed = self._is_guarded(code, flagged.node)
                return found
        if home.gives and self.given_back(way) is None and not self._is_set_there(lower, home.gives):
            return found
        arguments: list[tuple[str, str]] = []
        for keyword, text in home.arguments:
            said = self._known.said_above(text, lower, code)
            if said is None:
                return found
            arguments.append((keyword, said))
        scope = unit.names.scopes[code]
        if any(scope.lookup(word) is None for word in self.reads):
            return found
        texts = [text for _, text in arguments]
        site = next((s for s in self.reach.sites(lower) if self.reach.function_of(s) is code), None)
        ready = self._known.known_from(unit, scope, (*texts, *self.reads), own=True, site=site)
        if first is not None and unit.names.order(first) < ready:
            sooner = [(keyword, said_before(self.state, unit, text)) for keyword, text in arguments]
            known = self._known.known_from(unit, scope, (*(text for _, text in sooner), *self.reads), own=True)
            if known < unit.names.order(first) and self._known.still(unit, code, first, dict(sooner).values()) is first:
                arguments, texts, ready = sooner, [text for _, text in sooner], known
        if first is not None and unit.names.order(first) < ready:
            around = getattr(unit.names.parents[first], "body", ())
            first = next((s for s in around if unit.names.order(s) > ready), None)
        first = self._known.still(unit, code, first, texts, ready) if first is not None else None
        if first is not None:
            removed = (home.node, *home.removed) if home.side is Side.INSTEAD else home.removed
            because = "the accelerator is created before all code that needs it"
            kept = removed if unit is below else ()
            found.home = (unit, Home(first, Side.BEFORE, tuple(arguments), because, kept, ran_on=home.ran_on))
            found.handed = self._is_guarded(code, first)
        return found

    def given_back(self, way: Way) -> tuple[Unit, cst.CSTNode, str] | None:
        """
        The assignment by which an object whose base class has chosen its device takes the accelerator's, and the
        statement before which it goes, where the accelerator of a way is made above the object's constructor instead.

        None where something else sets that attribute, or the script's own choice is asked for.
        """
        home = way.home
        if home is None or not home[1].gives or home[1].arguments or home[1].side is not Side.BEFORE:
            return None
        unit, code = home[0], home[0].names.function(home[1].node)
        target = cst.parse_expression(home[1].gives.partition(" =")[0])
        method = self.holders.method(code) if self.holders.is_constructor(code) else None
        bases = [base.method("__init__") for base in method[1].lineage()][1:] if method is not None else []
        codes = {init.node for init in bases if init is not None}
        if not isinstance(target, cst.Attribute) or not codes:
            return None
        known = {f.statement for f in self.fields if f.target.deep_equals(target) and f.code in codes}
        for owner_ in {unit, *(self.holders.unit(init) for init in codes)}:
            for assign in attribute_assignments(owner_.names, target):
                if owner_.names.function(assign) in {code, *codes} and owner_.names.statement(assign) not in known:
                    return None
        return (unit, home[1].node, home[1].gives) if known else None

    def _is_set_there(self, code: Code, gives: str) -> bool:
        """Whether the constructor of an object sets the device that a method's code would set anew: it can be given the
        accelerator's there."""
        target, method = cst.parse_expression(gives.partition(" =")[0]), self.holders.method(code)
        set_by = (f.code for f in self.fields if f.target.deep_equals(target) and self.holders.is_constructor(f.code))
        makers = [self.holders.method(maker) for maker in set_by]
        return method is not None and any(maker is not None and maker[1] is method[1] for maker in makers)

    def _is_guarded(self, code: Code, node: cst.CSTNode) -> bool:
        """Whether a statement is under ``if __name__ == "__main__"``, so that functions are handed what it makes."""
        ancestors = self.reach.unit(code).names.ancestors(node)
        return isinstance(code, cst.Module) and not self.stamps and any(map(_is_entry_guard, ancestors))

    def _constructors(self, above: Sequence[Code]) -> list[Code]:
        """The constructors that run for all objects whose methods the training runs in: they run before that."""
        found: dict[Code, None] = {}
        for _, klass in filter(None, map(self.holders.method, above)):
            runs = [self.reach.below(init) for init in self.holders.inits(klass)]
            for base in klass.lineage():
                init = base.method("__init__")
                if init is not None and runs and all(init.node in codes for codes in runs):
                    found[init.node] = None
        return [code for code in found if code not in above]

    def _joined(self, above: list[Code], prepares: list[Prepare], way: Way) -> tuple[Unit, Home] | None:
        """The home in the place of the statement by which a distributed script joins its processes."""
        for start in self.starts:
            unit, code = start.unit, start.unit.names.function(start.statement)
            if code not in above or code not in self.reach.reachable:
                continue
            node, whole = start.statement, start.whole
            for around in unit.names.ancestors(start.statement):
                if around is code:
                    break
                if isinstance(around, (cst.If, cst.Try)) and not _is_entry_guard(around):
                    node, whole = around, False
            names = [n for u, n in self.devices if u is unit and owner(n) is code]
            arguments: tuple[tuple[str, str], ...] = self.constructor
            for name in names:
                condition = cpu_condition(self.state, unit, name)
                if condition is not None and self._defined_by(unit, name, condition) < unit.names.order(node):
                    arguments = (("cpu", condition), *arguments)
                    break
            if not names and self.flag is not None and self.flag.settled and self.flag.text == "True":
                arguments = (("cpu", "True"), *arguments)  # a script that knows no other device
            gives = any(node in name.definitions for name in names) and start.chooses is not None
            instead = whole or gives
            side = Side.INSTEAD if instead else Side.BEFORE
            home = Home(node, side, arguments, "the accelerator opens the process group and knows the rank")
            if not self._late(unit, code, home, prepares):
                way.idle = [start.chooses] if gives and not whole and start.chooses is not None else []
                return unit, home
        return None

    def _flagged(
        self, unit: Unit, anchor: Code, first: cst.CSTNode, prepares: list[Prepare], *, ends: bool = False
    ) -> Home | None:
        """The home of an accelerator that takes over the flag on which the script's moves hang: where it is known.
        ``ends``: it may be the end of the code."""
        if self.flag is None or not self.flag.settled:
            return None
        made, said = self.flag.constructor, self.flag.said(unit)
        if made is not None:
            said = self._known.said_above(self.flag.text, made, anchor) or None
        elif self.flag.text == "True":
            said = "True"
        scope, order = unit.names.scopes[anchor], unit.names.order
        read = [(text, root) for by, text, root in self.flag.given if by is unit]
        if read and (not said or any(scope.lookup(w) is None for w in names_read(cst.parse_expression(said)))):
            said = next((text for text, root in read if scope.lookup(root.name) is root), said)
        if said is None:
            return None
        wanted = said
        behind = self.flag.behind
        text = self.flag.gives.partition(" =")[0] or wanted
        ready = order(behind) if behind is not None and unit.names.function(behind) is anchor else -1
        ready = max(ready, self._known.set_by(unit, anchor, text))
        for word in names_read(cst.parse_expression(text)):
            binding = scope.lookup(word)
            if binding is None and word != "True" and starred(self.state, unit, word) is None:
                return None
            for definition in binding.definitions if binding is not None else ():
                own = unit.names.function(definition) is anchor and not isinstance(definition, cst.Param)
                if binding is not None and own and not self._is_given(unit, binding, definition):
                    ready = max(ready, order(definition))
        block = getattr(unit.names.parents[first], "body", ())
        node = next((s for s in block if order(s) > ready and order(s) >= order(first)), None)
        places = [order(p.wraps or p.node) for p in prepares if unit.names.function(p.node) is anchor]
        side = Side.BEFORE
        if node is None and ends and block:  # with what it is known after
            node, side = block[-1], Side.AFTER
        elif node is not None and wanted:
            node = self._known.still(unit, anchor, node, [wanted], ready)
        if node is None or any(0 <= place < order(node) for place in places):
            return None
        because = "the accelerator is created after its flag is known, and follows the choice of the device"
        if self.flag.text == "True":
            because = "the accelerator is created before its first use; the script works on the CPU"
        arguments = (("cpu", wanted),) if wanted else ()
        ran_on: Former = "cuda or cpu" if found_by(self.state, self.flag.unit, self.flag.test) else ""
        return Home(node, side, arguments, because, gives=self.flag.gives.format(self.name), ran_on=ran_on)

    def _is_given(self, unit: Unit, binding: Binding, definition: cst.CSTNode) -> bool:
        """Whether a parameter has been given the same before, by the same code: ``args = parse_args()`` twice."""
        made = [self.state.values.get(value) for value in bindings_value(unit.names, binding, [definition])]
        given = [self.state.values.get(value) for _, value in self.reach.given(binding)]
        if not made or not given or not any(isinstance(d, cst.Param) for d in binding.definitions):
            return False
        held = [slot.things if slot is not None else () for slot in (*made, *given)]
        return all(len(things) == 1 and set(things) == set(held[0]) for things in held)

    def _late(self, unit: Unit, code: Code, home: Home, prepares: list[Prepare]) -> bool:
        """Whether the device is chosen only after a place in the same code where the accelerator is needed."""
        order = unit.names.order
        places = [p.wraps or p.node for p in prepares]
        return any(0 <= order(p) < order(home.node) for p in places if unit.names.function(p) is code)

    def _instead(self, unit: Unit, name: DeviceName, needs: dict[Code, None], prepares: list[Prepare]) -> Home:
        condition = cpu_condition(self.state, unit, name)
        arguments = (("cpu", condition),) if condition is not None else ()
        first = self._earlier(unit, name, condition, needs, prepares)
        anchor, ran_on = self._anchor(unit, name, needs), former_devices(self.state, unit, name.definitions, condition)
        if name.binding in self.lent:
            return Home(
                first or anchor,
                Side.BEFORE,
                arguments,
                _CHOSEN,
                ran_on=ran_on,
            )
        if first is not None or anchor is not name.definitions[0]:
            because = "the accelerator is created before the first code that needs it, and chooses the device"
            return Home(first or anchor, Side.BEFORE, arguments, because, tuple(name.definitions), ran_on=ran_on)
        because = "the accelerator replaces the definition of the device"
        return Home(name.definitions[0], Side.INSTEAD, arguments, because, tuple(name.definitions[1:]), ran_on=ran_on)

    def _beside(self, field_: DeviceField, needs: dict[Code, None], prepares: list[Prepare]) -> Home:
        """The home before the statement that stores the device in an attribute."""
        same = [f for f in self.fields if f.code is field_.code and f.target.deep_equals(field_.target)]
        name = field_.name(f for f in same if f is not field_)
        choice = choice_around(field_.unit, field_.statement)
        statements = [f.statement for f in same]
        if isinstance(choice, cst.If):  # in its branches the accelerator would be made on some ways alone
            values = {field_.unit.names.parents[f.statement]: f.value for f in same}
            wanted = condition_of_branches(self.state, field_.unit, choice, values, self._before(field_, choice))
            asked = (("cpu", wanted),) if wanted is not None else ()
            first = self._earlier(field_.unit, name, wanted, needs, prepares) or choice
            ran_on = former_devices(self.state, field_.unit, statements, wanted)
            return Home(
                first,
                Side.BEFORE,
                asked,
                _BRANCHES,
                ran_on=ran_on,
            )
        condition = cpu_condition(self.state, field_.unit, name)
        arguments = (("cpu", condition),) if condition is not None else ()
        first = self._earlier(field_.unit, name, condition, needs, prepares) or field_.statement
        ran_on = former_devices(self.state, field_.unit, statements, condition)
        return Home(first, Side.BEFORE, arguments, _CHOSEN, ran_on=ran_on)

    def _is_open(self, field_: DeviceField) -> bool:
        """Whether other statements give the attribute what is not known to be a device, or set it anew on some ways
        after a choice: which one it names then can only be asked later."""
        assigns = attribute_assignments(field_.unit.names, field_.target)
        here = [a for a in assigns if field_.unit.names.function(a) is field_.code]
        found = {field_.unit.names.statement(a): isinstance(a.value, cst.IfExp) for a in here}
        known = {f.statement for f in self.fields}
        anew = len({choice_around(field_.unit, statement) for statement in found}) > 1
        return not known.issuperset(found) or (anew and any(found.values()))

    def _before(self, field_: DeviceField, choice: cst.If) -> str:
        """The condition under which an attribute that only some branches set has named the CPU before; one that nothing
        has set by then is the CPU's."""
        tests = [n for n in descendants(choice.test) if n.deep_equals(field_.target)]
        word = field_.target.attr.value
        if not tests and not any(option(record.node) == word for record in self.state.calls.values()):
            return "True"
        return f'{field_.unit.names.module.code_for_node(field_.target)} == "cpu"'

    def _earlier(
        self,
        unit: Unit,
        name: DeviceName,
        condition: str | None,
        needs: dict[Code, None],
        prepares: list[Prepare],
    ) -> cst.CSTNode | None:
        """The statement before the device's definition that already needs the accelerator (a print, the optimizer that
        is prepared after it), if the names that the constructor's arguments read are defined by then."""
        order, definition = unit.names.order, self._anchor(unit, name, needs)
        block = getattr(unit.names.parents[definition], "body", ())
        ready = self._defined_by(unit, name, condition)
        places = {
            unit.names.statement(p.wraps or p.node) for p in prepares if (p.wraps or p.node) in unit.names.parents
        }
        for statement in block:
            if order(statement) >= order(definition):
                return None
            compound = isinstance(statement, (cst.FunctionDef, cst.ClassDef))
            if compound or order(statement) < ready or _is_header(statement):
                continue
            if statement in places or self._runs_need(unit, statement, needs):
                found: cst.CSTNode = statement
                return found
        return None

    def _anchor(self, unit: Unit, name: DeviceName, needs: dict[Code, None]) -> cst.CSTNode:
        """The statement that always runs where the device is defined: not a branch, which another run may pass over."""
        anchor = name.definitions[0]
        for around in unit.names.enclosing(anchor, cst.If, cst.Try):
            if not _is_entry_guard(around) and not self._ends_in(unit, around, anchor, needs):
                anchor = around
        return anchor

    def _ends_in(self, unit: Unit, around: cst.CSTNode, inside: cst.CSTNode, needs: dict[Code, None]) -> bool:
        """Whether an error in the ``try`` around a statement of its body ends the job, and nothing else needs the
        accelerator on that way: ``except Exception: alert(); raise``."""
        if not isinstance(around, cst.Try) or around.body not in unit.names.ancestors(inside):
            return False
        ways = [*around.handlers, *([around.finalbody] if around.finalbody is not None else [])]
        needed = any(self._runs_need(unit, way, needs) for way in ways)
        return not needed and all(ends_all(self.state, handler.body) for handler in around.handlers)

    def _defined_by(self, unit: Unit, name: DeviceName, condition: str | None) -> int:
        """The position in the source after which all names that a condition reads are defined."""
        asked = (condition,) if condition is not None else ()
        given = name.binding if name.param is not None else None
        return self._known.known_from(unit, name.binding.scope, (*asked, *self.reads), given=given)

    def _first_use(
        self, unit: Unit, block: list[cst.CSTNode], needs: dict[Code, None], prepares: list[Prepare]
    ) -> cst.CSTNode | None:
        """The first statement that needs the accelerator; inside an ``if`` or a ``with`` that holds all such code."""
        around = {n for p in prepares for n in (p.node, *unit.names.ancestors(p.node))}
        beside = {p.node for p in prepares}  # of what a module imports: after its imports
        plain = (s for s in block if not isinstance(s, (cst.FunctionDef, cst.ClassDef)))
        plain = (s for s in plain if s in beside or not _is_header(s))
        found = [s for s in plain if s in around or self._runs_need(unit, s, needs)]
        if not found:
            return None
        first = found[0]
        holds = isinstance(first, (cst.If, cst.With)) and getattr(first, "orelse", None) is None
        if len(found) == 1 and holds and first not in beside:  # what is beside it needs it, too
            block = list(getattr(getattr(first, "body", None), "body", ()))
            return self._first_use(unit, block, needs, prepares) or first
        return first

    def _runs_need(self, unit: Unit, statement: cst.CSTNode, needs: dict[Code, None]) -> bool:
        return any(self._needs_here(node, needs) for node in self.reach.runs(statement, unit))

    def _needs_here(self, node: cst.CSTNode, needs: dict[Code, None]) -> bool:
        if not isinstance(node, cst.Call) or node not in self.state.calls:
            return False
        return any(function in needs for function in self.reach.called(node)) or node in self.marked


def owner(name: DeviceName) -> Code:
    """The code in which a device variable lives."""
    return name.binding.scope.function.node


def _is_entry_guard(node: cst.CSTNode) -> bool:
    """``if __name__ == "__main__":``."""
    return isinstance(node, cst.If) and any(n.value == "__name__" for n in nodes_in(node.test, cst.Name))


def _is_header(statement: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    return isinstance(small, (cst.Import, cst.ImportFrom)) or is_docstring(statement)
