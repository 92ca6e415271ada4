"""How the data of a batch is spelled: random draws, their sizes, tensors and arrays of data."""

from __future__ import annotations

import libcst as cst

from ....facts.roles import Role
from ....facts.torch_api import randomness
from ....facts.torch_api.kinds import tensors
from ....facts.torch_api.loading import row, transfer
from ...dataflow.call_graph import reach_of
from ...dataflow.callees import method_name, outside_names
from ...dataflow.values import Bound, External, Function, State, Unit, origins
from ...syntax.definitions import bindings_value, unpacked
from ...syntax.nodes import dotted, keyword
from ...syntax.scopes import Binding


def size_of_draw(name: str, call: cst.Call) -> cst.BaseExpression | None:
    """The argument of a random draw that says how many rows it gives; None where it draws a single number."""
    place = {"torch.randint": -1, "numpy.random.randint": 2, "random.sample": 1}.get(
        name, 1 if name.startswith("numpy.random.choice") else 0
    )
    plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
    asked = keyword(call, "size") or keyword(call, "k")
    if asked is None and name.startswith(("torch.", "numpy.random.rand", "random.sample", "numpy.random.choice")):
        asked = plain[place] if len(plain) > max(place, 0) else None
    if isinstance(asked, (cst.Tuple, cst.List)):
        asked = asked.elements[0].value if asked.elements else None
    return asked


def is_new(name: str) -> bool:
    """Whether random values are rows of their own, and not noise on another tensor."""
    return not name.startswith("torch.nn.") and not name.endswith(("_like", "bernoulli", "multinomial", "poisson"))


def spelled(node: cst.CSTNode) -> list[str]:
    """The names that are added up in an expression, calls and what they are called left out."""
    if isinstance(node, cst.BinaryOperation):
        return [*spelled(node.left), *spelled(node.right)]
    return [dotted(node)] if dotted(node) else []


def chooses(unit: Unit, call: cst.Call) -> bool:
    """Whether what is drawn is used as an index, or looped over to be one."""
    kinds = (cst.SubscriptElement, cst.CompFor)
    if any(isinstance(a, kinds) for a in unit.names.ancestors(call)):
        return True
    statement = unit.names.statement(call)
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    target = small.targets[0].target if isinstance(small, cst.Assign) and len(small.targets) == 1 else None
    binding = unit.names.binding(target) if isinstance(target, cst.Name) else None
    reads = binding.reads if binding is not None else ()
    return any(isinstance(a, kinds) for read in reads for a in unit.names.ancestors(read))


def elements_of(arg: cst.Arg) -> list[cst.BaseExpression]:
    value = arg.value
    return [e.value for e in value.elements] if isinstance(value, (cst.Tuple, cst.List)) else [value]


def made_of(state: State, unit: Unit, binding: Binding) -> list[tuple[Unit, cst.BaseExpression]]:
    """What a variable is given, by assignments or by the callers of its function, each with its module."""
    values = [(unit, value) for value in bindings_value(unit.names, binding)]
    return values or list(reach_of(state).given(binding))


def entries_of(
    state: State, unit: Unit, binding: Binding, other: Unit, made: cst.BaseExpression
) -> list[tuple[Unit, cst.BaseExpression]]:
    """What a variable gets of a value: of a call that returns a tuple, ``x, y, rest = parts(series)``, what the
    function has at its place; otherwise the value itself."""
    for definition in binding.definitions:
        element = unit.names.parents.get(definition)
        display = unit.names.parents.get(element) if isinstance(element, cst.Element) else None
        if not isinstance(display, cst.Tuple) or unpacked(unit.names, definition) is not made:
            continue
        place = next(i for i, one in enumerate(display.elements) if one is element)
        found = _returned_at(state, made, place, len(display.elements))
        if found:
            return found
    return [(other, made)]


def _returned_at(state: State, call: cst.CSTNode, place: int, number: int) -> list[tuple[Unit, cst.BaseExpression]]:
    """What the functions of the program that a call can reach have at one place of the tuples that they return."""
    reach = reach_of(state)
    found: list[tuple[Unit, cst.BaseExpression]] = []
    for function in reach.called(call) if isinstance(call, cst.Call) else ():
        other = reach.unit(function)
        for returned in other.names.returns.get(function, ()):
            value = returned.value
            plain = isinstance(value, cst.Tuple) and all(isinstance(e, cst.Element) for e in value.elements)
            if not isinstance(value, cst.Tuple) or not plain or len(value.elements) != number:
                return []
            found.append((other, value.elements[place].value))
    return found


def holds_several(state: State, unit: Unit, binding: Binding, seen: set[Binding]) -> bool:
    """Whether a variable is given a tuple, a list or a dict that the script spells: its elements are no rows."""
    if binding in seen or any(isinstance(unit.names.parents.get(d), cst.Element) for d in binding.definitions):
        return False
    seen.add(binding)
    for other, made in made_of(state, unit, binding):
        held = other.names.binding(made) if isinstance(made, cst.Name) else None
        if isinstance(made, _DISPLAYS) or (held is not None and holds_several(state, other, held, seen)):
            return True
    return False


def is_data(state: State, unit: Unit, value: cst.CSTNode, seen: set[cst.CSTNode]) -> bool:
    """Whether an expression gives a tensor or an array of data, as far as its spelling tells."""
    if value in seen:
        return False
    seen.add(value)
    if isinstance(value, cst.Name):
        binding = unit.names.binding(value)
        return binding is not None and any(
            is_data(state, *one, seen)
            for other, made in made_of(state, unit, binding)
            for one in entries_of(state, unit, binding, other, made)
        )
    if isinstance(value, _DISPLAYS):
        return any(is_data(state, unit, e.value, seen) for e in value.elements)
    if isinstance(value, cst.Subscript) and is_numpy_stack(state, value):
        return True
    if isinstance(value, (cst.Subscript, cst.UnaryOperation)):
        return is_data(state, unit, value.value if isinstance(value, cst.Subscript) else value.expression, seen)
    if isinstance(value, cst.Comparison):
        return is_data(state, unit, value.left, seen)
    if isinstance(value, cst.BinaryOperation):
        return is_data(state, unit, value.left, seen) or is_data(state, unit, value.right, seen)
    if isinstance(value, cst.Attribute):
        return value.attr.value in ("data", "T") and is_data(state, unit, value.value, seen)
    if not isinstance(value, cst.Call):
        return False
    if any(a.keyword is not None and a.keyword.value == "requires_grad" for a in value.args):
        return False
    record = state.calls.get(value)
    if record is None or origins(record.result, *(role for role in Role if role not in _OF_TENSORS)):
        return False
    for name in _applied(state, value) or outside_names(record):
        if randomness.splits(name) is not None:  # `train_test_split(x, y)` gives parts of each
            return any(is_data(state, unit, arg.value, seen) for arg in value.args if arg.keyword is None)
        found = row(name)
        if found is not None and isinstance(found.transfer, _OF_DATA):
            return name.rpartition(".")[2] not in _OF_NOTHING
        if found is None and name.startswith(("torch.", "numpy.")):
            return True
    for thing in record.callees:
        function = state.method_of(thing) if isinstance(thing, Bound) else thing
        if isinstance(function, Function):
            given = (r.value for r in function.unit.names.returns.get(function.node, ()))
            if any(is_data(state, function.unit, v, seen) for v in given if v is not None):
                return True
    if not isinstance(value.func, cst.Attribute):
        return False
    shape = transfer(f"torch.Tensor.{method_name(value)}", tensors.Reshape)
    if shape is not None and shape.how != "split":  # nothing but tensors and arrays has such methods
        return True
    found = row(f"torch.Tensor.{method_name(value)}")
    return found is not None and isinstance(found.transfer, _OF_DATA) and is_data(state, unit, value.func.value, seen)


def is_numpy_stack(state: State, node: cst.Subscript) -> bool:
    """``np.r_[a, b]``, ``np.c_[a, b]``: joined arrays, spelled as an index."""
    held = state.values.get(node.value)
    names = [t.qualified for t in held.things if isinstance(t, External)] if held is not None else []
    return any(name in ("numpy.r_", "numpy.c_") for name in names)


def _applied(state: State, call: cst.Call) -> list[str]:
    """The outside functions that make each entry of ``map(torch.tensor, columns)``."""
    if outside_names(state.calls[call]) != ["builtins.map"] or not call.args:
        return []
    handed = state.values.get(call.args[0].value)
    return [t.qualified for t in handed.things if isinstance(t, External)] if handed is not None else []


_DISPLAYS = (cst.Tuple, cst.List, cst.Dict)
_OF_TENSORS = (Role.BATCH, Role.OUTPUT, Role.LOSS, Role.LOCAL, Role.CHECKPOINT)
_OF_NOTHING = frozenset("zeros ones empty full eye".split())
"""What is made with one value everywhere is a state or a mask, and no data."""
_OF_DATA = (
    tensors.Pointwise,
    tensors.Reshape,
    tensors.Concat,
    tensors.Product,
    tensors.Create,
    tensors.Convert,
    tensors.Random,
    tensors.Same,
    tensors.AlongDim,
    tensors.Detach,
    tensors.Choose,
)
