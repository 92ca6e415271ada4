"""The names of GPUs, as ``"cuda:0"``, that lose their number, because the accelerator does not take their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import origins
from ..analysis.devices.constants import gpus_by_number
from ..analysis.devices.device_fields import DeviceField
from ..analysis.devices.gpu_numbers import is_called_one, is_number
from ..analysis.syntax.definitions import bindings_value
from ..analysis.syntax.nodes import parameters
from ..facts.placement import Move, Placement
from ..facts.roles import Role
from .accelerator_path import Way
from .collected import Collected


class NumberedGpus:
    """
    Those of one module: what many read, what code reads where the accelerator is not, what functions are given still.

    Args:
        found: what was found in the module.
        way: where the accelerator reaches.
        here: whether the accelerator is there when a node runs.
        redefines: whether an attribute is given the accelerator's device where it is set.
    """

    def __init__(
        self,
        found: Collected,
        way: Way,
        here: Callable[[cst.CSTNode], bool],
        redefines: Callable[[DeviceField], bool],
    ) -> None:
        self._program, self._unit, self._placements = found.program, found.unit, found.placements
        self._way, self._here, self._redefines = way, here, redefines

    def beside(self, gone: set[cst.CSTNode]) -> Iterator[cst.BaseExpression]:
        """All of them that are not among what goes anyway."""
        yield from self._program.settings.constants.numbered(self._unit)
        yield from self._given(gone)
        yield from self._of_variables()
        # so is what a layer keeps, `self.device = "cuda:0"`: without its number it is the GPU of the process
        for field in self._program.fields:
            if field.unit is self._unit and not self._redefines(field):
                yield from _written(field.value)
        for placement in self._placements:
            if placement.move is Move.RETARGET and not self._here(placement.node):
                yield from self._of_move(placement)

    def _of_variables(self) -> Iterator[cst.BaseExpression]:
        """Of code that the accelerator does not reach: a model's forward in a module of its own."""
        own = self._program.existing is not None
        for unit, name in self._program.devices:
            if unit is not self._unit or name.binding in self._way.replaced:
                continue
            code = name.binding.scope.node
            used = any(not self._is_given_back(read) for read in name.binding.reads)
            if used and (own or (isinstance(code, cst.FunctionDef) and code not in self._way.reaches)):
                for value in name.values:
                    yield from _written(value)

    def _of_move(self, placement: Placement) -> Iterator[cst.BaseExpression]:
        """Of a move that is aimed where the accelerator is not."""
        unit, call = self._unit, placement.node
        if not isinstance(call, cst.Call):
            return
        aim = placement.target
        if aim is None and method_name(call) == "cuda" and call.args:
            aim = call.args[0].value
        if aim is not None and (is_number(self._program.state, unit, aim) or is_called_one(aim, of_several=True)):
            yield aim
        for value in (arg.value for arg in call.args):
            binding = unit.names.binding(value) if isinstance(value, cst.Name) else None
            local = binding is not None and binding.scope.node is unit.names.function(call)
            for each in bindings_value(unit.names, binding) if binding is not None and local else [value]:
                yield from _written(each)

    def _is_given_back(self, read: cst.Name) -> bool:
        """Whether a function returns the device that is read, perhaps among others: what calls it has the
        accelerator's."""
        node: cst.CSTNode = read
        for around in self._unit.names.ancestors(read):
            if isinstance(around, cst.Return):
                return True
            made = self._program.state.values.get(node)
            if not isinstance(around, (cst.BaseElement, cst.Tuple, cst.List, cst.Dict)) and not (
                made is not None and origins(made, Role.DEVICE)
            ):
                return False
            node = around
        return False

    def _given(self, gone: set[cst.CSTNode]) -> Iterator[cst.BaseExpression]:
        """The GPUs that parameters of the program's functions name by number: their defaults, and what calls give."""
        unit, reach = self._unit, self._program.reach
        for owner in reach.units:
            for code in (code for code in owner.names.functions if code in reach.reachable):
                bindings = owner.names.scopes[code].bindings
                for param, binding in ((param, bindings[param.name.value]) for param in parameters(code)):
                    if binding in self._way.replaced or not origins(self._program.state.binding(binding), Role.DEVICE):
                        continue
                    values = [value for caller, value in reach.given(binding) if caller is unit and value not in gone]
                    if owner is unit and param.default is not None and not gone.issuperset(binding.reads):
                        values.append(param.default)
                    yield from (node for value in values for node in gpus_by_number(value))


def _written(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The GPUs that an expression names by number, where it is written out."""
    return (node for node in gpus_by_number(value) if isinstance(node, cst.SimpleString))
