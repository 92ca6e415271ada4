"""Figures of a batch that its rows make together: they are not those of several batches that are joined."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from .engine.layout import NORMALISED, Partial, Unclear, inner
from .loop_layouts import LoopLayouts


def joint_figure(layouts: LoopLayouts, figures: Iterable[cst.BaseExpression]) -> cst.BaseExpression | None:
    """
    The first of some expressions in an evaluation loop that is a figure of one batch: a PSNR, an F1, the best row.

    ``figures``: what the loop collects, and what decides whether it does.
    """
    for figure in figures:
        layout = inner(layouts.value(figure))
        if isinstance(layout, Unclear) and layout.joint:
            return figure
        if isinstance(layout, Partial) and layout.host and layout.uneven == NORMALISED:
            return figure
    return None
