"""The words for each kind of reason."""

from __future__ import annotations

from functools import singledispatch

from ..facts.reasons import Reason
from ..findings import Finding


@singledispatch
def worded(reason: Reason) -> Finding:
    """What is reported for a reason; a finding that has its words already stays as it is."""
    raise TypeError(f"no words for {type(reason).__name__}")


@worded.register(Finding)
def _already(told: Finding) -> Finding:
    return told
