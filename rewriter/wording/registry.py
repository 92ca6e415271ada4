"""The words for each kind of reason."""

from __future__ import annotations

from functools import singledispatch
from importlib import import_module

from ..facts import reasons
from ..facts.reasons import Reason
from ..findings import Finding


@singledispatch
def worded(reason: Reason) -> Finding:
    """What is reported for a reason; a finding that has its words already stays as it is. The words for the reasons of
    a module are in the room of its name, which is loaded with the first of them: most programs need few."""
    package, _, room = type(reason).__module__.rpartition(".")
    if package == reasons.__name__:
        import_module(f"{__package__}.{room}")
    if worded.dispatch(type(reason)) is worded.dispatch(object):
        raise TypeError(f"no words for {type(reason).__name__}")
    return worded(reason)


@worded.register(Finding)
def _already(told: Finding) -> Finding:
    return told
