"""
Room for code that nests deeply: sums of a thousand terms, choices with five hundred branches.

Trees are walked by functions that call themselves. Python's limit for that is about a thousand calls, and the parser's
is the stack of the thread that it runs in: past its end the process dies. A thread may ask for a larger stack, which
costs nothing before it is used.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_STACK = 512 << 20
_CALLS = 200_000
_NAME = "torchlift-deep-stack"
_starting = threading.Lock()


def deep_stack(function: Callable[P, R]) -> Callable[P, R]:
    """A function that runs in a thread with a large stack, and raises what the function raises."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if threading.current_thread().name == _NAME:
            return function(*args, **kwargs)
        given: list[R] = []
        raised: list[BaseException] = []

        def work() -> None:
            try:
                given.append(function(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # raised again below
                raised.append(error)

        limit = sys.getrecursionlimit()
        with _starting:
            size = threading.stack_size(_STACK)
            try:
                thread = threading.Thread(target=work, name=_NAME, daemon=True)  # Ctrl-C does not wait for it
                sys.setrecursionlimit(max(limit, _CALLS))
                thread.start()
            finally:
                threading.stack_size(size)
        try:
            thread.join()
        finally:
            sys.setrecursionlimit(limit)
        if raised:
            raise raised[0]
        return given[0]

    return run
