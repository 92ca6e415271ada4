"""Where a script that distributes itself joins its processes."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from ..dataflow.values import Unit


@dataclass(frozen=True)
class Start:
    """Where the script joins its processes: the accelerator is made there."""

    unit: Unit
    statement: cst.CSTNode
    whole: bool
    """Nothing else happens in the statement: the accelerator takes its place."""
    chooses: cst.CSTNode | None = None
    """The function that is called here, where it does nothing but join and give the device."""
