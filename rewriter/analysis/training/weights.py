"""Which modules have parameters: those that make some, and those that hold other modules that have some."""

from __future__ import annotations

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from ..dataflow.callees import method_name, outside_names
from ..dataflow.values import CallRecord, Klass, State, origins
from ..syntax.walk import nodes_in

_BASES = frozenset({"builtins.object", "abc.ABC", "typing.Generic"})


def has_weights(state: State, model: Origin, seen: frozenset[Origin] = frozenset()) -> bool:
    """Whether a module has parameters, of its own or of a module that it is handed; also where that is not known."""
    if makes_weights(state, model, seen):
        return True
    return any(part not in seen and has_weights(state, part, seen | {model}) for part in _parts(state, model))


def makes_weights(state: State, model: Origin, seen: frozenset[Origin] = frozenset()) -> bool:
    """
    Whether a module makes parameters, or the modules that have some; also where that is not known.

    A distillation loss is handed the model that teaches, and makes none.
    """
    klass = state.klass.get(model)
    if klass is not None:
        return _class_makes(state, klass, seen | {model})
    parts = [part for part in _parts(state, model) if part not in seen]
    if questions.contains_modules(model.qualified) and parts:
        return any(has_weights(state, part, seen | {model}) for part in parts)
    return questions.contains_modules(model.qualified) or not questions.is_bare(model.qualified)


def draws_weights(state: State, model: Origin, seen: frozenset[Origin] = frozenset()) -> bool:
    """Whether a layer of torch's own, with weights that it draws, is made where a module is made."""
    if model.qualified.startswith("torch.nn.") and not questions.begins_constant(model.qualified):
        return True
    klass = state.klass.get(model)
    roots = [model.node] if klass is None else [one.node for one in klass.lineage()]
    calls = (node for root in roots for node in nodes_in(root, cst.Call) if node in state.calls)
    made = (part for call in calls for part in origins(state.calls[call].result, Role.MODEL) if part.node is call)
    return any(part not in seen and part is not model and draws_weights(state, part, seen | {model}) for part in made)


def _parts(state: State, model: Origin) -> list[Origin]:
    parts = state.parts.get(model, {})
    return [part for part in parts if isinstance(part, Origin) and part.role is Role.MODEL]


def _class_makes(state: State, klass: Klass, seen: frozenset[Origin]) -> bool:
    """Whether the code of a class, or of its bases, makes parameters or modules with some."""
    if any(not (questions.is_bare(name) or name in _BASES) for name in klass.externals):
        return True
    if any(_class_makes(state, base, seen) for base in klass.bases):
        return True
    calls = (node for node in nodes_in(klass.node, cst.Call) if node in state.calls)
    return any(_call_makes(state, state.calls[call], seen) for call in calls)


def _call_makes(state: State, record: CallRecord, seen: frozenset[Origin]) -> bool:
    names = outside_names(record)
    if any(map(questions.is_parameter, names)) or method_name(record.node) == "register_parameter":
        return True
    slots = [record.receiver, *(state.values.get(arg.value) for arg in record.node.args)]
    handed = {thing for slot in slots if slot is not None for thing in slot.things}
    made = [o for o in origins(record.result, Role.MODEL) if o not in handed and o not in seen]
    if any(has_weights(state, each, seen) for each in made):
        return True
    return not made and any(map(questions.is_unknown, names)) and _is_kept(record)


def _is_kept(record: CallRecord) -> bool:
    """Whether an attribute gets what a call returns, itself or by its methods: ``self.net = Net().cuda()``."""
    parents = record.unit.names.parents
    node: cst.CSTNode = record.node
    above = parents.get(node)
    while isinstance(above, cst.Attribute) or (isinstance(above, cst.Call) and above.func is node):
        node, above = above, parents.get(above)
    return isinstance(above, cst.Assign) and any(isinstance(t.target, cst.Attribute) for t in above.targets)
