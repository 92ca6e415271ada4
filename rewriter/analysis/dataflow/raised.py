"""Which exceptions all processes meet alike, and which one of them may meet alone."""

from __future__ import annotations

import libcst as cst

from ...facts.torch_api import surroundings
from .values import External, State


def met_alone(state: State, caught: cst.BaseExpression | None) -> bool:
    """Whether a handler catches what one process may meet alone: none of its kinds comes on all alike."""
    kinds = [e.value for e in caught.elements] if isinstance(caught, cst.Tuple) else [caught]
    return not all(kind is not None and comes_alike(state, kind) for kind in kinds)


def comes_alike(state: State, kind: cst.BaseExpression) -> bool:
    """Whether all processes meet exceptions of a kind at the same place, or none of them."""
    slot = state.values.get(kind)
    names = [t.qualified for t in (slot.things if slot is not None else ()) if isinstance(t, External)]
    return bool(names) and all(map(surroundings.raised_alike, names))
