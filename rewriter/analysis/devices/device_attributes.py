"""
Devices that the accelerator takes over and gives back: kept as an attribute, ``args.device``, and read in thirty
places; or given by code that this program cannot change, ``device, ids = setup(args)``.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...facts.reasons.devices import FixedGpu
from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name
from ..dataflow.fixed_attributes import fixed_attribute
from ..dataflow.program_flow import choice_around
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value
from ..syntax.nodes import positional
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from .device_flags import Flag
from .device_names import chosen_by_setting, condition_of, takes_what_is_there

_NAMES = frozenset({"device", "dev"})
_DEPTH = 4


def kept_device(
    state: State, reach: Reach, gone: set[cst.CSTNode], aims: Container[cst.CSTNode], anchor: Code | None
) -> Flag | None:
    """
    The attribute or the variable that holds the script's device, as what the accelerator takes over and gives back.

    Args:
        state, reach: the solved program.
        gone: nodes that go with the moves; a read among them needs nothing any more.
        aims: nodes that name where the script moves its models and batches: that is its device.
        anchor: the code that needs the accelerator first.
    """
    own = _of_object(state, reach, gone, aims, anchor) if isinstance(anchor, cst.FunctionDef) else None
    if own is not None:
        return own
    for unit in reach.units:
        for node in state.evaluated(unit):
            if not (isinstance(node, cst.Attribute) and _is_device(state, unit, node)):
                continue
            holder = _holder(reach, unit, node.value) if isinstance(node.value, cst.Name) else None
            if holder is not None and any(other in aims for _, other in _same(state, reach, node)):
                flag = _flag(state, reach, *holder, node, gone)
                same = isinstance(node.value, cst.Name) and node.value.value == holder[1].name
                alike = flag is not None and flag.kept and same and holder[0] is not unit
                return flag._replace(elsewhere=((unit, flag.text),)) if flag is not None and alike else flag
    for unit in reach.units:
        for node in state.evaluated(unit):
            if isinstance(node, cst.Name) and node in aims and _takes_device(unit, node):
                given = _given(state, reach, unit, node)
                if given is not None:
                    return _of_variable(state, reach, *given, gone)
    asked = ((u, n) for u in reach.units for n in u.names.calls if n in aims and n in state.calls)
    chosen = next(((u, n) for u, n in asked if chosen_by_setting(state, n)), None)
    if chosen is not None:  # when its setting has its value is not known
        return Flag(chosen[0], chosen[0].names.module.code_for_node(chosen[1]), chosen[1], kept=True, settled=False)
    return None


def given_aims(state: State, reach: Reach, aims: set[cst.CSTNode]) -> set[cst.CSTNode]:
    """
    The nodes that name where the script moves things, with what calls give to the parameters among them.

    ``net.place(self.device)``, whose ``place(self, device)`` moves the layers of ``net`` to ``device``.
    """
    found, pending = set(aims), list(aims)
    while pending:
        node = pending.pop()
        unit = next((u for u in reach.units if node in u.names.parents), None)
        binding = unit.names.binding(node) if unit is not None and isinstance(node, cst.Name) else None
        given = binding is not None and any(isinstance(d, cst.Param) for d in binding.definitions)
        held = origins(state.binding(binding), Role.DEVICE) if binding is not None and given else []
        for _, value in reach.given(binding) if binding is not None and held else ():
            new = [part for part in descendants(value) if part not in found]
            found.update(new)
            pending += new
    return found


def _of_object(
    state: State, reach: Reach, gone: set[cst.CSTNode], aims: Container[cst.CSTNode], anchor: cst.FunctionDef
) -> Flag | None:
    """The device that a constructor has given to the object whose method makes the accelerator: ``self.device``."""
    unit, places = reach.unit(anchor), positional(anchor)
    scope = unit.names.within.get(anchor)
    if scope is None or not isinstance(scope.node, cst.ClassDef) or not places:
        return None
    itself = unit.names.scopes[anchor].bindings[places[0].name.value]
    for node in unit.names.every(cst.Attribute):
        assert isinstance(node, cst.Attribute)
        if node not in aims or not isinstance(node.value, cst.Name) or unit.names.binding(node.value) is not itself:
            continue
        made = origins(state.values.get(node), Role.DEVICE)
        if (
            fixed_attribute(state, node)
            or any(o.qualified == "follows" for o in made)
            or not (made or _is_device(state, unit, node))
        ):
            continue
        same = list(_same(state, reach, node))
        sets = [(u, n) for u, n in same if isinstance(u.names.parents.get(n), cst.AssignTarget)]
        codes = [u.names.function(n) for u, n in sets]
        if not all(isinstance(code, cst.FunctionDef) and code.name.value == "__init__" for code in codes):
            continue
        left = [(u, n) for u, n in same if n not in gone and (u, n) not in sets]
        found = bool(sets) and all(_takes_what_is_there(state, u, n) for u, n in sets)
        there = found or _names_gpus(made)
        if there and not left:
            continue
        text = f"{node.value.value}.{node.attr.value}"
        gives = _given_back(text, word=_are_words(made)) if left else ""
        condition = "" if there else _names_cpu(text, made)
        return Flag(unit, condition, node, None, gives, tuple(n for _, n in left), True)
    return None


def _names_gpus(made: list[Origin]) -> bool:
    """Whether all that it can be is written out, and is no CPU: ``GPU = "cuda:0"`` in the class."""
    words = [origin.node.evaluated_value if isinstance(origin.node, cst.SimpleString) else None for origin in made]
    return bool(words) and all(isinstance(word, str) and word.partition(":")[0] != "cpu" for word in words)


def _takes_what_is_there(state: State, unit: Unit, target: cst.CSTNode) -> bool:
    """Whether an assignment gives the CPU only where there is no other device."""
    assign = unit.names.parents.get(unit.names.parents[target])
    return isinstance(assign, cst.Assign) and takes_what_is_there(state, unit, assign.value)


def _holder(reach: Reach, unit: Unit, node: cst.Name, depth: int = 0) -> tuple[Unit, Binding] | None:
    """The variable that keeps the device: for a parameter what the calls give, where that is one variable."""
    binding = unit.names.binding(node)
    if binding is None or not binding.definitions:
        return None
    if not isinstance(binding.definitions[0], cst.Param):
        return unit, binding
    given = list(reach.given(binding)) if depth < _DEPTH else []
    found = {_holder(reach, u, v, depth + 1) if isinstance(v, cst.Name) else None for u, v in given}
    return found.pop() if len(found) == 1 else None


def _given(
    state: State, reach: Reach, unit: Unit, node: cst.Name, depth: int = 0
) -> tuple[Unit, cst.Name, Binding] | None:
    """The variable that holds a device, for a parameter that of the calls: where a call has given several values."""
    binding = unit.names.binding(node)
    held = [o for o in origins(state.binding(binding)) if o.qualified != "follows"] if binding is not None else []
    if binding is None or any(o.role is not Role.DEVICE for o in held):
        return None
    if any(isinstance(definition, cst.Param) for definition in binding.definitions):
        found = {}
        for caller, value in reach.given(binding) if depth < _DEPTH else ():
            given = _given(state, reach, caller, value, depth + 1) if isinstance(value, cst.Name) else None
            if given is not None:
                found[given[2]] = given
        return next(iter(found.values())) if len(found) == 1 else None
    if len(binding.definitions) != 1:
        return None
    if not held:  # `device = args.device`
        values = bindings_value(unit.names, binding)
        named = len(values) == 1 and isinstance(values[0], cst.Attribute) and _is_named_device(state, values[0])
        return (unit, node, binding) if named else None
    return (unit, node, binding) if isinstance(unit.names.parents.get(binding.definitions[0]), cst.Element) else None


def _of_variable(
    state: State, reach: Reach, unit: Unit, node: cst.Name, binding: Binding, gone: set[cst.CSTNode]
) -> Flag:
    made = origins(state.binding(binding), Role.DEVICE)
    left = [read for read in binding.reads if read not in gone]
    gives = _given_back(binding.name, word=_are_words(made)) if left else ""
    return Flag(
        unit,
        _names_cpu(binding.name, made),
        node,
        choice_around(unit, binding.definitions[0]),
        gives,
        tuple(left),
        True,
    )


def _are_words(made: list[Origin]) -> bool:
    """Whether a setting of the script's is a word and no device; one that it only reads is taken for a word."""
    return all(origin.qualified == "str" for origin in made)


def _given_back(text: str, *, word: bool) -> str:
    """
    How the accelerator's device gets back into the script's variable, which has a place for the accelerator's name.

    A word stays one: the object that has it may be saved, written as JSON or handed to code that is not known.
    """
    return f"{text} = {{}}.device{'.type' if word else ''}"


def _names_cpu(text: str, made: list[Origin]) -> str:
    """The condition under which an expression names the CPU: a word, a device, or either."""
    if _are_words(made):
        return f'{text} == "cpu"'
    return f'str({text}) == "cpu"' if any(o.qualified == "str" for o in made) else f'{text}.type == "cpu"'


def _is_device(state: State, unit: Unit, node: cst.Attribute) -> bool:
    """Whether an attribute of something of the script's is called device, and used as one."""
    return _is_named_device(state, node) and _takes_device(unit, node)


def _is_named_device(state: State, node: cst.Attribute) -> bool:
    """Whether it is called device."""
    if node.attr.value.lower() not in _NAMES:
        return False
    base = state.values.get(node.value)
    return base is not None and bool(base.things) and not any(isinstance(t, Origin) for t in base.things)


def _takes_device(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether an expression is read in a place that takes a device."""
    parent = unit.names.parents.get(node)
    if isinstance(parent, cst.Arg):
        call = unit.names.parents.get(parent)
        keyword = parent.keyword.value if parent.keyword is not None else ""
        return keyword in ("device", "map_location") or (
            isinstance(call, cst.Call) and method_name(call) in ("to", "device", "load")
        )
    return False


def _flag(
    state: State, reach: Reach, unit: Unit, binding: Binding, node: cst.Attribute, gone: set[cst.CSTNode]
) -> Flag | None:
    text = f"{binding.name}.{node.attr.value}"
    home: Code = unit.names.function(binding.definitions[0])
    reads: list[tuple[Unit, cst.Attribute]] = []
    sets: list[tuple[Unit, cst.Attribute]] = []
    for other_unit, other in _same(state, reach, node):
        parent = other_unit.names.parents.get(other)
        (sets if isinstance(parent, cst.AssignTarget) else reads).append((other_unit, other))
    makers = _makers(state, reach, unit, binding)
    sets = [(u, n) for u, n in sets if u.names.function(n) not in makers]
    if any(u is not unit or u.names.function(n) is not home for u, n in sets):
        return None
    left = [(u, n) for u, n in reads if n not in gone and not (u is unit and _sets(unit, n))]
    left = [(u, n) for u, n in left if u.names.function(n) not in makers]
    last = max((n for _, n in sets), key=unit.names.order, default=None)
    made = [o for o in origins(state.values.get(node), Role.DEVICE) if o.qualified != "follows"]
    condition: str | None = _names_cpu(text, made)
    if last is not None:
        assign = unit.names.parents.get(unit.names.parents[last])
        assert isinstance(assign, cst.Assign)
        condition = condition_of(state, unit, assign.value) if len(sets) == 1 else text
        if text in (condition or unit.names.module.code_for_node(assign.value)):
            torch_device = isinstance(assign.value, cst.Call) and method_name(assign.value) == "device"
            condition = f'{text}{".type" if torch_device else ""} == "cpu"'
    word = ((bool(made) or last is None) and _are_words(made)) or any(_read_as_word(reach, u, n) for u, n in left)
    behind = choice_around(unit, last) if last is not None else None
    fixed = fixed_attribute(state, node)
    told = [(u, FixedGpu(n, text, fixed)) for u, n in left[:1]] if fixed and _names_gpu(made) else []
    if fixed:
        left = []  # it stays: each process has its own current one of the kind of device that it names
    gives = _given_back(text, word=word) if left else ""
    still = tuple(read for _, read in left)
    return Flag(unit, condition or "", node, behind, gives, still, not sets, told=tuple(told))


def _names_gpu(made: list[Origin]) -> bool:
    """Whether a device is written with a number: ``"cuda:0"``."""
    texts = (n.evaluated_value for o in made for n in nodes_in(o.node, cst.SimpleString))
    return any(isinstance(text, str) and text.partition(":")[2].isdigit() for text in texts)


def _makers(state: State, reach: Reach, unit: Unit, binding: Binding) -> set[Code]:
    """The functions that run where a variable gets its only value: they have made the thing by then."""
    if len(binding.definitions) != 1:
        return set()
    statement = unit.names.statement(binding.definitions[0])
    if not isinstance(statement, cst.SimpleStatementLine):
        return set()
    calls = [n for n in nodes_in(statement, cst.Call) if n in state.calls]
    return {code for call in calls for function in reach.called(call) for code in reach.below(function)}


def _same(state: State, reach: Reach, node: cst.Attribute) -> Iterator[tuple[Unit, cst.Attribute]]:
    """The attributes of this name of the same thing."""
    held = set(state.values[node.value].things)
    for unit in reach.units:
        for other in state.evaluated(unit):
            if isinstance(other, cst.Attribute) and other.attr.value == node.attr.value:
                base = state.values.get(other.value)
                if base is not None and not held.isdisjoint(base.things):
                    yield unit, other
    for unit in reach.units:
        for statement in unit.names.every(cst.AssignTarget) if unit is reach.units[0] else ():
            target = statement.target if isinstance(statement, cst.AssignTarget) else None
            if isinstance(target, cst.Attribute) and target not in state.values and target.deep_equals(node):
                yield unit, target


def _sets(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a read is in the statement that sets the attribute itself: ``args.device = f(args.device)``."""
    for around in unit.names.ancestors(node):
        if isinstance(around, cst.Assign):
            return any(isinstance(t.target, cst.Attribute) and t.target.deep_equals(node) for t in around.targets)
    return False


def _read_as_word(reach: Reach, unit: Unit, node: cst.CSTNode, depth: int = 0) -> bool:
    """Whether a read of the device needs a string, or a function that is given it reads it so."""
    if _as_word(unit, node):
        return True
    arg = unit.names.parents.get(node)
    call = unit.names.parents.get(arg) if isinstance(arg, cst.Arg) else None
    for function in reach.called(call) if isinstance(call, cst.Call) and depth < _DEPTH else ():
        owner = reach.unit(function)
        for binding in owner.names.scopes[function].bindings.values():
            if any(value is node for _, value in reach.given(binding)):
                if any(_read_as_word(reach, owner, read, depth + 1) for read in binding.reads):
                    return True
    return False


def _as_word(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a read of the device needs a string: it is compared, or ``args.device.startswith("cuda")``."""
    parent = unit.names.parents.get(node)
    if isinstance(parent, (cst.Comparison, cst.ComparisonTarget)):
        return True
    if isinstance(parent, cst.Attribute) and parent.value is node:
        return hasattr(str, parent.attr.value)
    call = unit.names.parents.get(parent) if isinstance(parent, cst.Arg) else None
    keyword = parent.keyword.value if isinstance(parent, cst.Arg) and parent.keyword is not None else ""
    return keyword == "device_type" or (isinstance(call, cst.Call) and method_name(call) == "autocast")
