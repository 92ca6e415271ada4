"""Variables that hold the device which a script chose, and the condition under which it chose the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import libcst as cst

from ...facts.roles import Origin, Role
from ..dataflow.callees import method_name, outside_name
from ..dataflow.program_flow import is_guard
from ..dataflow.values import Function, State, Unit, origins
from ..syntax.nodes import is_none, with_names
from ..syntax.scopes import Binding, ScopeKind
from ..syntax.walk import nodes_in
from .availability import asks_availability, negated, only_value, refused, text_of
from .gpu_numbers import is_number


@dataclass(eq=False)
class DeviceName:
    """A variable that holds the device, and the statements that define it."""

    binding: Binding
    definitions: list[cst.CSTNode] = field(default_factory=list)
    """Whole statements: an assignment, or an ``if`` whose branches do nothing else."""
    values: list[cst.BaseExpression] = field(default_factory=list)
    word: bool = False
    """It is a string in the script."""
    param: cst.Param | None = None
    """The parameter that it is at first: ``device = torch.device(device)``."""


def device_names(state: State, unit: Unit) -> list[DeviceName]:
    """The variables of a module that its own statements set to a device (what is a parameter alone is not)."""
    found = []
    for scope in unit.names.scopes.values():
        if scope.kind is ScopeKind.CLASS:
            continue
        for binding in scope.bindings.values():
            name = _device_name(state, unit, binding)
            if name is not None:
                found.append(name)
    return found


def _device_name(state: State, unit: Unit, binding: Binding) -> DeviceName | None:
    held = [t for t in state.binding(binding).things if isinstance(t, Origin)]
    if not held or any(o.role is not Role.DEVICE or o.qualified == "follows" for o in held):
        return None  # nor is it asked what calls give, which may be those of a function that calls itself
    param = next((d for d in binding.definitions if isinstance(d, cst.Param)), None)
    former = _former(state, unit, binding)
    targets = [d for d in binding.definitions if d is not param and d is not former]
    if not targets or not all(isinstance(d, cst.Name) for d in targets):
        return None
    name = DeviceName(binding, word=all(o.qualified == "str" for o in held), param=param)
    for target in targets:
        parent = unit.names.parents[target]
        assign = unit.names.parents[parent] if isinstance(parent, cst.AssignTarget) else parent
        if not isinstance(assign, (cst.Assign, cst.AnnAssign)) or assign.value is None:
            return None
        if isinstance(assign, cst.Assign) and len(assign.targets) != 1:
            return None
        name.values.append(assign.value)
        statement = _whole_if(unit, unit.names.statement(target), binding)
        if statement not in name.definitions:
            name.definitions.append(statement)
    body = getattr(binding.scope.node, "body", None)
    if param is not None and unit.names.parents.get(name.definitions[0]) is not body:
        return None  # it is set on some ways alone
    return name


def before_set(state: State, unit: Unit, binding: Binding, read: cst.CSTNode) -> bool:
    """Whether a read of a device variable still sees what the function was given, or the CPU of the code before."""
    former = _former(state, unit, binding)
    sets = [unit.names.order(d) for d in binding.definitions if d is not former and not isinstance(d, cst.Param)]
    return 0 < len(sets) < len(binding.definitions) and unit.names.order(read) < min(sets)


def _former(state: State, unit: Unit, binding: Binding) -> cst.CSTNode | None:
    """The definition that makes a variable the CPU for the code up to the next one in the same block, which is no
    choice of the device that the rest works on; None where nothing reads it there."""
    names, order = unit.names, unit.names.order
    if len(binding.definitions) < 2 or not all(isinstance(d, cst.Name) for d in binding.definitions):
        return None
    first, second = sorted(binding.definitions, key=order)[:2]
    blocks = [names.parents.get(names.statement(one)) for one in (first, second)]
    code = names.function(first)
    if blocks[0] is not blocks[1] or blocks[0] not in (code, getattr(code, "body", code)):
        return None
    values = [assign.value for assign in map(names.statement, (first, second)) for assign in _assigns(assign)]
    read = [r for r in binding.reads if order(names.statement(first)) < order(r) < order(names.statement(second))]
    own = bool(read) and all(names.function(r) is code for r in read)
    cpu = [condition_of(state, unit, value) == _ALWAYS for value in values]
    return first if own and cpu == [True, False] else None


def _assigns(statement: cst.CSTNode) -> list[cst.Assign]:
    body = statement.body if isinstance(statement, cst.SimpleStatementLine) else [statement]
    return [small for small in body if isinstance(small, cst.Assign)]


def _whole_if(unit: Unit, statement: cst.CSTNode, binding: Binding) -> cst.CSTNode:
    """The outermost ``if`` around a definition whose branches all define nothing but the device."""
    while True:
        block = unit.names.parents.get(statement)
        around = unit.names.parents.get(block) if block is not None else None
        if isinstance(around, cst.Else):
            around = unit.names.parents.get(around)
        if not isinstance(around, cst.If) or not _only_defines(around, binding.name):
            return statement
        statement = around
        while isinstance(outer := unit.names.parents.get(statement), cst.If) and outer.orelse is statement:
            if not _only_defines(outer, binding.name):
                return statement
            statement = outer


def _only_defines(node: cst.If, name: str) -> bool:
    branch: cst.If | cst.Else | None = node
    while branch is not None:
        body = branch.body.body
        for statement in body:
            smalls = statement.body if isinstance(statement, cst.SimpleStatementLine) else [statement]
            for small in smalls:
                target = small.targets[0].target if isinstance(small, cst.Assign) else None
                if not (isinstance(target, cst.Name) and target.value == name):
                    return False
        branch = branch.orelse if isinstance(branch, cst.If) else None
    return True


_ALWAYS, _UNKNOWN, _GPU = "True", "?", "cuda"


def cpu_condition(state: State, unit: Unit, name: DeviceName) -> str | None:
    """The source text of the condition under which the script wanted the CPU; None where it took what there is."""
    found: str | None = None
    if name.param is not None and isinstance(name.definitions[0], cst.If):
        found = f'{name.binding.name} == "cpu"'
    order = unit.names.order
    reads = [r for r in name.binding.reads if order(r) > unit.names.end(name.definitions[0])]
    for statement in name.definitions:
        choice = _choice_of(unit, statement)
        passed = (r for r in reads if order(r) < order(statement))
        if not all(choice is not None and choice in unit.names.ancestors(r) for r in passed):
            break  # the script has worked with the device by then
        before = _Before(name.binding, found) if statement is not name.definitions[0] else None
        around = next((a for a in unit.names.enclosing(statement, cst.If) if not is_guard(a)), None)
        if isinstance(statement, cst.If):
            values = {unit.names.parents[unit.names.statement(value)]: value for value in name.values}
            found = _of_branches(state, unit, statement, values, found or None, before)
            continue
        value = next(value for value in name.values if unit.names.statement(value) is statement)
        given = _chosen(state, unit, value, before)
        branches = _branches_of(unit, choice, name) if choice is not None else {}
        if choice is not None and any(_is_asked(state, unit, device) for device in branches.values()):
            if value in next(iter(branches.items())):  # the first stands for all
                found = _of_branches(state, unit, choice, branches, found or None, before)
            continue
        if not isinstance(around, cst.If):
            found = given
        elif given != _ALWAYS:
            found = _outside_of(state, unit, around, statement) if found == _ALWAYS else found or given
        elif not found:
            found = _inside_of(state, unit, around, statement)
    return _in_terms_of_first(unit, name, found or None)


def _in_terms_of_first(unit: Unit, name: DeviceName, text: str | None) -> str | None:
    """A condition that reads the device itself, by what the device is at first: ``if device is None:`` after
    ``device = args.device``. The accelerator takes the place of both."""
    first = name.definitions[0]
    value = next((v for v in name.values if unit.names.statement(v) is first), None)
    plain = isinstance(value, (cst.Name, cst.Attribute)) and unit.names.statement(value) is first
    if text is None or value is None or not plain or isinstance(first, cst.If):
        return text
    node = cst.parse_expression(text)
    named = any(name.binding.name in n.value for n in nodes_in(node, cst.SimpleString))
    return text if named else with_names(text, {name.binding.name: text_of(unit, value)})


def _choice_of(unit: Unit, statement: cst.CSTNode) -> cst.If | None:
    """The ``if`` that a statement is directly a branch's of, from its first branch on; None where it is none's."""
    around = unit.names.parents.get(unit.names.parents[statement])
    while isinstance(around, (cst.If, cst.Else)):
        above = unit.names.parents.get(around)
        if not isinstance(above, cst.If) or above.orelse is not around:
            return around if isinstance(around, cst.If) and not is_guard(around) else None
        around = above
    return None


def _branches_of(unit: Unit, choice: cst.If, name: DeviceName) -> dict[cst.CSTNode, cst.BaseExpression]:
    """For the branches of an ``if`` that set the device, the device; none where a branch sets it twice."""
    values = [v for v in name.values if _choice_of(unit, unit.names.statement(v)) is choice]
    found = {unit.names.parents[unit.names.statement(value)]: value for value in values}
    return found if len(found) == len(values) > 1 else {}


def _is_asked(state: State, unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether a setting says if a value is the CPU: ``args.device``."""
    return _chosen(state, unit, value) not in (None, "", _ALWAYS)


def _inside_of(state: State, unit: Unit, choice: cst.If, statement: cst.CSTNode) -> str | None:
    """The condition under which a statement of an ``if`` runs."""
    body = choice.body in unit.names.ancestors(statement)
    return text_of(unit, choice.test) if body else refused(state, unit, choice.test)


def _outside_of(state: State, unit: Unit, choice: cst.If, statement: cst.CSTNode) -> str | None:
    """The condition under which a statement of an ``if`` does not run."""
    body = choice.body in unit.names.ancestors(statement)
    return refused(state, unit, choice.test) if body else text_of(unit, choice.test)


def condition_of(state: State, unit: Unit, value: cst.BaseExpression) -> str | None:
    """The condition under which an expression that chooses a device gives the CPU; None where there is none."""
    return _chosen(state, unit, value) or None


def takes_what_is_there(state: State, unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether an expression gives the CPU only where torch finds no other device."""
    return _chosen(state, unit, value) == ""


def condition_of_branches(
    state: State,
    unit: Unit,
    choice: cst.If,
    values: Mapping[cst.CSTNode, cst.BaseExpression],
    before: str | None = None,
) -> str | None:
    """
    The condition under which the branches of an ``if`` give the CPU; None where there is none.

    Args:
        state, unit: the program, and the module.
        choice: the ``if``.
        values: for the blocks that choose a device, the device.
        before: the condition that holds where no block chooses.
    """
    return _of_branches(state, unit, choice, values, before) or None


def _of_branches(
    state: State,
    unit: Unit,
    choice: cst.If,
    values: Mapping[cst.CSTNode, cst.BaseExpression],
    otherwise: str | None,
    before: _Before | None = None,
) -> str | None:
    def of(block: cst.BaseSuite) -> str | None:
        return _chosen(state, unit, values[block], before) if block in values else otherwise

    other = choice.orelse
    if isinstance(other, cst.If):
        rest = _of_branches(state, unit, other, values, otherwise, before)
    else:
        rest = of(other.body) if other is not None else otherwise
    return _of_either(state, unit, choice.test, of(choice.body), rest)


class _Before(NamedTuple):
    """A variable that is given another device, and the condition under which it has been the CPU up to then."""

    binding: Binding
    chosen: str | None


def _chosen(state: State, unit: Unit, value: cst.BaseExpression, before: _Before | None = None) -> str | None:
    """The condition under which an expression gives the CPU; empty where it does so only if no other device is
    there, None where it never does. ``before``: what a variable was that the expression may read."""
    if before is not None and isinstance(value, cst.Name) and unit.names.binding(value) is before.binding:
        return before.chosen
    if isinstance(value, cst.Call) and outside_name(state.calls[value]) == "torch.device" and value.args:
        given = value.args[0].value
        return (
            f'{text_of(unit, value)}.type == "cpu"' if _is_open(state, given) else _chosen(state, unit, given, before)
        )
    if isinstance(value, cst.Call) and chosen_by_setting(state, value):
        word = all(o.qualified == "str" for o in origins(state.values.get(value), Role.DEVICE))
        return f'{text_of(unit, value)}{"" if word else ".type"} == "cpu"'
    if isinstance(value, cst.Call) and _finds_what_is_there(state, value):
        return ""
    if isinstance(value, cst.IfExp):
        either = (_chosen(state, unit, given, before) for given in (value.body, value.orelse))
        return _of_either(state, unit, value.test, *either)
    if isinstance(value, cst.BooleanOperation) and isinstance(value.operator, cst.Or):
        either = (_chosen(state, unit, given, before) for given in (value.left, value.right))
        return _of_either(state, unit, value.left, *either)
    if isinstance(value, cst.SimpleString):
        return _ALWAYS if value.evaluated_value == "cpu" else None
    if _asks_torch(state, unit, value) or is_number(state, unit, value):
        return None
    held = origins(state.values.get(value))
    chosen = isinstance(value, cst.Attribute) and all(o.qualified == "str" for o in held)
    chosen = chosen or _is_set_here(unit, value)
    if (isinstance(value, (cst.Name, cst.Attribute, cst.Subscript)) and not held) or chosen:
        return f'{text_of(unit, value)} == "cpu"'
    return None


def _of_either(state: State, unit: Unit, test: cst.BaseExpression, body: str | None, orelse: str | None) -> str | None:
    """The condition under which a choice of two devices gives the CPU: from those of the two."""
    if body == orelse:
        return body
    if body == _ALWAYS and orelse and _asks_lack(state, test):
        return orelse
    if orelse == _ALWAYS and body and _asks_lack(state, test, holds=False):
        return body
    lacking = refused(state, unit, test)
    if orelse == _ALWAYS:
        return " or ".join(part for part in (body, lacking) if part)
    if body == _ALWAYS:
        return f"{text_of(unit, test)} or ({orelse})" if orelse else text_of(unit, test)
    if not body and not orelse:  # one of them takes what is there
        return lacking if orelse is not None and lacking is not None else ""
    found = []
    for condition, when, holds in ((body, text_of(unit, test), True), (orelse, negated(unit, test), False)):
        if condition:
            implied = _is_implied(unit, test, condition) or _is_other_word(unit, test, condition, holds=holds)
            found.append(condition if implied else f"({when}) and ({condition})")
    return " or ".join(found)


def _asks_lack(state: State, test: cst.BaseExpression, *, holds: bool = True) -> bool:
    """Whether a condition holds only where no other device is there: ``wanted and not torch.cuda.is_available()``;
    or does not hold only there."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _asks_lack(state, test.expression, holds=not holds)
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And if holds else cst.Or):
        return any(_asks_lack(state, side, holds=holds) for side in (test.left, test.right))
    return not holds and isinstance(test, cst.Call) and asks_availability(state, test)


def _is_implied(unit: Unit, test: cst.BaseExpression, condition: str) -> bool:
    """Whether a condition such as ``args.device == "cpu"`` says already that there is an ``args.device``."""
    if isinstance(test, cst.Comparison) and is_none(test.comparisons[0].comparator):
        test = test.left
    elif isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test = test.expression
    return condition == f'{text_of(unit, test)} == "cpu"'


def _is_other_word(unit: Unit, test: cst.BaseExpression, condition: str, *, holds: bool) -> bool:
    """Whether a condition such as ``args.device == "cpu"`` says already that ``args.device != "auto"``."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    asked = test.comparisons[0]
    if not isinstance(asked.operator, cst.NotEqual if holds else cst.Equal):
        return False
    word = asked.comparator
    other = isinstance(word, cst.SimpleString) and word.evaluated_value != "cpu"
    return other and condition == f'{text_of(unit, test.left)} == "cpu"'


def _is_open(state: State, given: cst.BaseExpression) -> bool:
    """Whether nothing is known of the device that a call gives: ``torch.device(config.get("device"))``."""
    if not isinstance(given, cst.Call) or outside_name(state.calls[given]) == "int":
        return False
    place = {"get": 1, "getattr": 2}.get(method_name(given), len(given.args))
    otherwise = [arg.value for arg in given.args[place:]]
    if any(origin.node not in otherwise for origin in origins(state.values.get(given))):
        return False
    asked = [given.func, *(arg.value for arg in given.args[:place])]  # what is taken where nothing is given, apart
    words = (n.evaluated_value for part in asked for n in nodes_in(part, cst.SimpleString))
    return not any(str(word).startswith(("cuda", "mps", "xpu")) for word in words)


def _finds_what_is_there(state: State, call: cst.Call) -> bool:
    """Whether a call runs a function of the script that gives the CPU only where torch finds no other device."""
    functions = [thing for thing in state.calls[call].callees if isinstance(thing, Function)]
    found = [_finds(state, function) for function in functions]
    return bool(found) and len(found) == len(state.calls[call].callees) and all(found)


def _finds(state: State, function: Function) -> bool:
    """Whether what a function returns is the CPU only where torch finds no other device."""
    unit = function.unit
    chosen: set[str | None] = set()
    for answer in (a.value for a in unit.names.returns.get(function.node, ())):
        binding = unit.names.binding(answer) if isinstance(answer, cst.Name) else None
        values: list[cst.BaseExpression | None] = [answer]
        if binding is not None and binding.scope.node is function.node:
            name = _device_name(state, unit, binding)
            values = list(name.values) if name is not None and name.param is None else [None]
        chosen.update(_named(state, unit, value) for value in values)
    if chosen == {"", _GPU}:
        return True  # whatever is asked, the CPU is not meant
    chosen = {None if one == _GPU else one for one in chosen}
    choices = [n.test for n in nodes_in(function.node, cst.If)]
    if _ALWAYS not in chosen:  # whatever is asked: no branch gives it where there is another
        return "" in chosen and chosen <= {"", None}
    asked = any(refused(state, unit, _asserted(test)) is not None for test in choices)
    return not asked and chosen <= {"", _ALWAYS, None} and bool(choices)


def _named(state: State, unit: Unit, value: cst.BaseExpression | None) -> str | None:
    """The condition under which a value is the CPU, as far as there is a value; a GPU that is written out."""
    if value is None:
        return _UNKNOWN
    return _GPU if _names_gpu(state, value) else _chosen(state, unit, value)


def _names_gpu(state: State, value: cst.BaseExpression) -> bool:
    """``"cuda:0"``, ``torch.device("cuda", rank)``: a GPU, written out."""
    if isinstance(value, cst.Call) and outside_name(state.calls[value]) == "torch.device" and value.args:
        value = value.args[0].value
    return isinstance(value, cst.SimpleString) and value.evaluated_value != "cpu"


def chosen_by_setting(state: State, call: cst.Call) -> bool:
    """Whether a call runs a function of the script that gives the CPU or another device, and torch alone does not
    decide which."""
    for function in state.calls[call].callees:
        if isinstance(function, Function):
            unit = function.unit
            answers = [a.value for a in unit.names.returns.get(function.node, ()) if a.value is not None]
            chosen = [_returned_for(state, unit, answer) for answer in answers]
            if any(one not in (None, _ALWAYS) for one in chosen):
                return True
            tests = [_asserted(n.test) for n in nodes_in(function.node, cst.If)]
            if _ALWAYS in chosen and None in chosen and any(refused(state, unit, test) for test in tests):
                return True
    return False


def _asserted(test: cst.BaseExpression) -> cst.BaseExpression:
    """A condition without its ``not``."""
    return test.expression if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not) else test


def _returned_for(state: State, unit: Unit, answer: cst.BaseExpression) -> str | None:
    """The condition under which what a function returns is the CPU."""
    binding = unit.names.binding(answer) if isinstance(answer, cst.Name) else None
    name = _device_name(state, unit, binding) if binding is not None else None
    return cpu_condition(state, unit, name) if name is not None else condition_of(state, unit, answer)


def _asks_torch(state: State, unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether torch is asked for the available device, without a setting: ``torch.accelerator...().type``."""
    root = value
    while isinstance(root, (cst.Attribute, cst.Subscript, cst.Call)):
        if isinstance(root, cst.Call) and root in state.calls and outside_name(state.calls[root]).startswith("torch."):
            return True
        root = root.func if isinstance(root, cst.Call) else root.value
    binding = unit.names.binding(root) if isinstance(root, cst.Name) else None
    made = only_value(unit, binding) if binding is not None else None
    return made is not None and not isinstance(made, cst.Name) and _asks_torch(state, unit, made)


def _is_set_here(unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether the statement gives the device to what named it: ``args.device = torch.device(args.device)``."""
    assign = next(unit.names.enclosing(value, cst.Assign), None)
    return isinstance(assign, cst.Assign) and any(t.target.deep_equals(value) for t in assign.targets)


def numbered(unit: Unit, device: cst.CSTNode) -> bool:
    """Whether a number follows a device: ``f"{device}:{rank}"``; the accelerator's has one already."""
    part = unit.names.parents.get(device)
    text = unit.names.parents.get(part) if isinstance(part, cst.FormattedStringExpression) else None
    if not isinstance(text, cst.FormattedString) or not isinstance(part, cst.FormattedStringExpression):
        return False
    behind = text.parts[list(text.parts).index(part) + 1 :][:1]
    return any(isinstance(p, cst.FormattedStringText) and p.value.startswith(":") for p in behind)
