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
from concurrent.futures import Future
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
        done: Future[R] = Future()

        def work() -> None:
            try:
                done.set_result(function(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # raised again where the result is asked for
                done.set_exception(error)

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
            return done.result()
        finally:
            sys.setrecursionlimit(limit)

    return run
