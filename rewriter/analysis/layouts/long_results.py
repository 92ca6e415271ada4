"""What a model gives that is as long as the longest row of its batch: a value for each token of a padded text."""

from __future__ import annotations

import libcst as cst

from ...facts.module import Gather
from ...facts.roles import Role
from ..dataflow.values import State, origins
from .engine.layout import Layout, Shard, parts
from .loop_layouts import LoopLayouts


def is_long(state: State, layouts: LoopLayouts | None, loop: cst.CSTNode, gather: Gather) -> bool:
    """Whether something to be gathered that a model gave has a value for each place of a padded row."""
    if layouts is None or not isinstance(loop, cst.For):
        return False
    names = set(gather.names).difference(gather.sized)
    found: list[tuple[cst.BaseExpression, Layout]] = [
        (name, layout) for name, layout in layouts.set_in(loop) if name.value in names
    ]
    found += [(part, layouts.value(part)) for part in gather.inline]
    return any(
        isinstance(one, Shard) and one.long
        for node, layout in found
        if not origins(state.values.get(node), Role.BATCH)
        for one in parts(layout)
    )
