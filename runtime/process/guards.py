"""Who runs what: decorators and contexts that single out a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from ..types import Decorated
from .group import wait_for_everyone


def only_when(chosen: Callable[[], bool], function: Decorated) -> Decorated:
    """`function`, called where `chosen()` is true; elsewhere the call returns None."""

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if chosen() else None

    return guarded


@contextmanager
def goes_first(chosen: bool) -> Iterator[None]:
    """
    Let the chosen processes run the body before all others.

    The others are released also when the body raises, so that nobody waits for a process that has failed. Inside of
    another such body nothing is waited for: the order is there already, and a process that finds its file need not come
    by the inner one at all.
    """
    if _in_turn.get():
        yield
        return
    if not chosen:
        wait_for_everyone()
    token = _in_turn.set(True)
    try:
        yield
    finally:
        _in_turn.reset(token)
        if chosen:
            wait_for_everyone()


_in_turn: ContextVar[bool] = ContextVar("in_turn", default=False)
