"""Which expressions are weights of prepared models, seen from outside of these after ``prepare``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Reach
from ..dataflow.expressions import PARAMETERS
from ..dataflow.values import State, Unit, Unknown, origins
from ..devices.use_before_prepare import Stands
from ..effects.checkpoints import in_front
from ..syntax.nodes import dotted
from ..syntax.walk import descendants
from ..training.training import whole

_THROUGH = frozenset({"data", "detach", "cpu", "clone", "float"})
"""Attributes and methods of a tensor that give the same numbers."""


@dataclass(eq=False)
class ShardedWeights:
    """Answers for one program."""

    state: State
    reach: Reach
    stands: Mapping[Origin, Stands]
    """Where each model is prepared."""

    def sharded(self, unit: Unit, node: cst.CSTNode, model: Origin) -> bool:
        """Whether a model, or that of which it is a part, is sharded by the time that a node runs."""
        held = whole(self.state, model)
        stands = self.stands.get(held)
        if stands is None or unit.names.function(node) not in self.reach.reachable:
            return False
        return not self._inside(unit, node) and not in_front(stands, unit, self.reach, node)

    def _inside(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether code is that of a model: in its forward pass its weights are whole."""
        classes = (unit.classes.get(a) for a in unit.names.ancestors(node) if isinstance(a, cst.ClassDef))
        return any(klass is not None and klass.role is Role.MODEL for klass in classes)

    def models(self, unit: Unit, node: cst.CSTNode) -> list[Origin]:
        """The sharded models that an expression holds, as a whole."""
        held = origins(self.state.values.get(node), Role.MODEL)
        return [one for one in held if whole(self.state, one) is one and self.sharded(unit, node, one)]

    def listed(self, unit: Unit, node: cst.CSTNode) -> list[Origin]:
        """The models whose parameters an expression holds, some or all of them."""
        return [o.source for o in origins(self.state.values.get(node), Role.PARAMETERS) if o.source is not None]

    def of(self, unit: Unit, node: cst.BaseExpression) -> Origin | None:
        """The sharded model whose single weight an expression is: ``model.head.weight.data``, or a loop's ``p``."""
        inner = plain(node)
        found = self._attribute(unit, inner) if isinstance(inner, cst.Attribute) else None
        if found is None and isinstance(inner, cst.Name) and _is_element(unit, inner):
            found = next(iter(self.listed(unit, inner)), None)
        return found if found is not None and self.sharded(unit, node, found) else None

    def _attribute(self, unit: Unit, node: cst.Attribute) -> Origin | None:
        """The model whose parameter an attribute is."""
        for model in origins(self.state.values.get(node.value), Role.MODEL):
            slot = self.state.values.get(node)
            made = slot is not None and any(isinstance(t, Unknown) and t.qualified in PARAMETERS for t in slot.things)
            if made or (model not in self.state.klass and node.attr.value.startswith(("weight", "bias"))):
                return model
        return None

    def within(self, unit: Unit, nodes: Iterator[cst.CSTNode]) -> Iterator[tuple[cst.CSTNode, Origin]]:
        """Those of some nodes that hold weights of sharded models, one or several."""
        for node in nodes:
            if isinstance(node, (cst.Name, cst.Attribute, cst.Call)):
                models = [m for m in self.listed(unit, node) if self.sharded(unit, node, m)]
                single = self.of(unit, node) if isinstance(node, cst.Attribute) else None
                for model in [*models, *([single] if single is not None else [])][:1]:
                    yield node, model


def plain(node: cst.BaseExpression) -> cst.BaseExpression:
    """An expression without ``.data`` and ``.detach()`` at its end."""
    while True:
        inner = node.func if isinstance(node, cst.Call) and not node.args else node
        if not isinstance(inner, cst.Attribute) or inner.attr.value not in _THROUGH:
            return node
        node = inner.value


def _is_element(unit: Unit, name: cst.Name) -> bool:
    """Whether a variable is bound by a loop: ``for p in model.parameters()``."""
    binding = unit.names.binding(name)
    bound = binding.definitions if binding is not None else ()
    return any(
        isinstance(around, (cst.For, cst.CompFor)) and one in descendants(around.target)
        for one in bound
        for around in unit.names.ancestors(one)
    )


def text(unit: Unit, node: cst.CSTNode) -> str:
    """An expression as the script has it, on one line."""
    return dotted(node) or unit.names.one_line(node)
